// The keys of the console.

import { Dialog } from "./dialog.js";
import { help, SEQUENCES } from "../lib/keys.js";
import { html } from "../lib/ui.js";
import { t } from "../lib/words.js";

const NAMES = { o: "overview", t: "topics", g: "groups", m: "messages", d: "dead", y: "delayed", b: "brokers", c: "clients", u: "access", a: "audit" };

export function HelpDialog() {
  const keys = [
    [["/"], t("keys.search")],
    [["Ctrl", "K"], t("keys.palette")],
    [["j"], t("keys.next")],
    [["k"], t("keys.before")],
    [["Enter"], t("keys.open")],
    [["Esc"], t("keys.close")],
    [["?"], t("keys.help")],
    ...SEQUENCES.map(([key]) => [["g", key], t(`nav.${NAMES[key]}`)]),
  ];
  return html`<${Dialog} title=${t("help.title")} close=${() => (help.value = false)}>
    <div class="dialog-body">
      <dl class="keys">
        ${keys.map(([names, text]) => html`<div key=${names.join()}><dt>${names.map((name) => html`<kbd key=${name}>${name}</kbd>`)}</dt><dd>${text}</dd></div>`)}
      </dl>
    </div>
  </${Dialog}>`;
}
