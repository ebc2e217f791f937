// The body of a message: text nodes only, whatever it contains.

import { Badge, Button, Copy } from "./basic.js";
import { at, url } from "../lib/api.js";
import { html, useState } from "../lib/ui.js";
import { bytes, t } from "../lib/words.js";

/** One line for a list. */
export function Snippet({ body }) {
  if (!body) return html`<span class="soft">${t("body.hidden")}</span>`;
  if (body.kind === "broken") return html`<span class="soft">${t("body.broken")}</span>`;
  if (!body.text) return html`<span class="soft">${t("body.empty")}</span>`;
  const text = body.kind === "binary" ? body.text.slice(0, 64).replace(/../g, "$& ") : body.text.slice(0, 300).replace(/\s+/g, " ");
  return html`<code class=${`snippet ${body.kind}`}>${text}</code>`;
}

export function Body({ body, message }) {
  const [raw, setRaw] = useState(false);
  if (!body) return html`<p class="soft">${t("body.hidden")}</p>`;
  const kinds = { json: indented, binary: dump, text: (text) => text, broken: (text) => text };
  const text = raw ? body.text : kinds[body.kind](body.text);
  return html`<div class="body">
    <div class="body-head">
      <${Badge}>${t(`body.${body.kind}`)}</${Badge}><span class="soft">${bytes(body.size)}</span>
      ${body.truncated && html`<${Badge} tone="warn">${t("body.truncated")}</${Badge}>`}
      <span class="spring"></span>
      ${(body.kind === "json" || body.kind === "binary") && html`<${Button} tone="bare small" aria-pressed=${raw} onClick=${() => setRaw(!raw)}>${t("body.raw")}</${Button}>`}
      <${Copy} text=${body.text} label=${t("body.copy")} />
      ${message && html`<a class="button bare small" href=${url(at`messages/${message.offset_id}/body`, { topic: message.topic })} download>${t("body.download")}</a>`}
    </div>
    <pre tabindex="0" aria-label=${t("body")}>${text || t("body.empty")}</pre>
  </div>`;
}

/** JSON with line ends and indents. The text is not parsed into values, so that large numbers stay as they are. */
export function indented(text) {
  let depth = 0;
  let out = "";
  const line = () => `\n${"  ".repeat(Math.min(depth, 40))}`;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"?|[{}[\],:]|[^\s"{}[\],:]+/g)) {
    if (token === "{" || token === "[") {
      depth += 1;
      out += token + line();
    } else if (token === "}" || token === "]") {
      depth = Math.max(0, depth - 1);
      out = /[{[]\s*$/.test(out.slice(-100)) ? out.trimEnd() + token : out + line() + token;
    } else if (token === ",") out += token + line();
    else out += token === ":" ? ": " : token;
  }
  return out;
}

/** Hexadecimal digits as lines of sixteen bytes, with what is printable beside. */
function dump(hex) {
  const lines = [];
  for (let from = 0; from < hex.length; from += 32) {
    const row = hex.slice(from, from + 32).match(/../g) ?? [];
    const text = row.map((pair) => Number.parseInt(pair, 16)).map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "."));
    lines.push(`${(from / 2).toString(16).padStart(6, "0")}  ${row.join(" ").padEnd(48)} ${text.join("")}`);
  }
  return lines.join("\n");
}
