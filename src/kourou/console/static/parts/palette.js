// Ctrl-K: finds pages, topics, groups, brokers, and messages by id or key.

import { Icon, Problem } from "./basic.js";
import { Dialog } from "./dialog.js";
import { palette, SEQUENCES } from "../lib/keys.js";
import { href, ours, visit } from "../lib/router.js";
import { useAnswer, useLater } from "../lib/use.js";
import { html, useEffect, useRef, useState } from "../lib/ui.js";
import { t } from "../lib/words.js";

const ICONS = { topic: "topics", group: "groups", dead: "dead", broker: "brokers", message: "messages", key: "search", page: "right" };
const PAGE_NAMES = { o: "overview", t: "topics", g: "groups", m: "messages", d: "dead", y: "delayed", b: "brokers", c: "clients", u: "access", a: "audit" };

export function Palette() {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const list = useRef(null);
  const asked = useLater(text.trim(), 120);
  const { data, error } = useAnswer(asked ? "search" : null, { q: asked });
  const pages = SEQUENCES.map(([key, path]) => ({ kind: "page", name: t(`nav.${PAGE_NAMES[key]}`), link: href(path), keys: `g ${key}` }));
  const matching = pages.filter(({ name }) => name.toLowerCase().includes(text.trim().toLowerCase()));
  const hits = [...(asked ? (data?.hits ?? []).filter(({ link }) => ours(link)) : []), ...matching];
  const chosen = Math.min(at, hits.length - 1);
  useEffect(() => {
    list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [chosen]);
  const close = () => (palette.value = false);
  const open = (hit) => {
    close();
    visit(hit.link);
  };
  const pressed = (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setAt((Math.max(0, chosen) + (event.key === "ArrowDown" ? 1 : hits.length - 1)) % Math.max(1, hits.length));
    } else if (event.key === "Enter" && hits[chosen]) {
      event.preventDefault();
      open(hits[chosen]);
    }
  };
  return html`<${Dialog} label=${t("palette.open")} close=${close}>
    <div class="palette">
      <div class="palette-field">
        <${Icon} name="search" />
        <input
          type="text"
          role="combobox"
          aria-expanded="true"
          aria-controls="palette-list"
          aria-activedescendant=${hits[chosen] ? `palette-${chosen}` : undefined}
          aria-label=${t("palette.open")}
          placeholder=${t("palette.placeholder")}
          autocomplete="off"
          spellcheck=${false}
          autofocus
          value=${text}
          onInput=${(event) => {
            setText(event.target.value);
            setAt(0);
          }}
          onKeyDown=${pressed}
        />
      </div>
      <${Problem} error=${error} />
      <ul id="palette-list" role="listbox" aria-label=${t("palette.hits")} ref=${list}>
        ${hits.map(
          (hit, index) => html`<li
            key=${`${hit.kind} ${hit.name}`}
            id=${`palette-${index}`}
            role="option"
            aria-selected=${index === chosen ? "true" : "false"}
            onClick=${() => open(hit)}
          >
            <${Icon} name=${ICONS[hit.kind] ?? "right"} /><span class="hit-name">${hit.name}</span>
            <span class="soft">${hit.keys ?? t(`kind.${hit.kind}`)}</span>
          </li>`,
        )}
        ${!hits.length && html`<li class="empty" role="option" aria-disabled="true" aria-selected="false">${t("palette.none")}</li>`}
      </ul>
    </div>
  </${Dialog}>`;
}
