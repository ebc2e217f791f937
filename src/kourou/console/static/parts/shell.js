// What surrounds every screen: navigation, search, look, language, session.

import { Icon, IconButton, Mark } from "./basic.js";
import { HelpDialog } from "./help.js";
import { Palette } from "./palette.js";
import { Toasts } from "./toasts.js";
import { help, palette } from "../lib/keys.js";
import { stream } from "../lib/live.js";
import { look, LOOKS, wear } from "../lib/look.js";
import { href, place } from "../lib/router.js";
import { lacking, leave, session } from "../lib/session.js";
import { html } from "../lib/ui.js";
import { language, speak, t } from "../lib/words.js";

const PAGES = [
  ["overview", []],
  ["topics", ["topics"]],
  ["groups", ["groups"]],
  ["messages", ["messages"]],
  ["dead", ["dead"]],
  ["delayed", ["delayed"]],
  ["brokers", ["brokers"]],
  ["clients", ["clients"]],
  ["access", ["access"]],
  ["audit", ["audit"]],
];

export function Shell({ children }) {
  const at = place.value.path[0];
  return html`
    <a class="skip" href="#main" onClick=${toMain}>${t("skip")}</a>
    <nav class="side" aria-label=${t("navigation")}>
      <a class="brand" href="/"><${Mark} size=${24} /><span>Kourou</span></a>
      <ul>
        ${PAGES.map(([name, path]) => {
          const current = (path[0] ?? undefined) === at;
          const reason = name === "access" ? lacking("acl") : "";
          return html`<li key=${name}>
            <a href=${href(path)} aria-current=${current ? "page" : undefined} class=${reason ? "grey" : ""} title=${reason || t(`nav.${name}`)}>
              <${Icon} name=${name} /><span>${t(`nav.${name}`)}</span>
            </a>
          </li>`;
        })}
      </ul>
      <div class="side-foot">
        <span class="number">${session.value?.version}</span>
      </div>
    </nav>
    <header class="top">
      <button class="finder" type="button" onClick=${() => (palette.value = true)}>
        <${Icon} name="search" /><span>${t("palette.open")}</span><kbd>Ctrl K</kbd>
      </button>
      <div class="top-right">
        <${Stream} />
        ${session.value?.read_only && html`<span class="badge warn">${t("read_only")}</span>`}
        <${IconButton} icon=${look.value} label=${t("look", { name: t(`look.${look.value}`) })} onClick=${() => wear(LOOKS[(LOOKS.indexOf(look.value) + 1) % LOOKS.length])} />
        <button class="button bare" type="button" lang=${language.value === "en" ? "zh-CN" : "en"} onClick=${() => speak(language.value === "en" ? "zh" : "en", { keep: true })}>
          ${language.value === "en" ? "中文" : "English"}
        </button>
        <${IconButton} icon="info" label=${t("help.title")} onClick=${() => (help.value = true)} />
        ${session.value?.user && html`<span class="user" title=${t(`role.${session.value.role}`)}>${session.value.user}</span>`}
        <${IconButton} icon="out" label=${t("sign_out")} onClick=${leave} />
      </div>
    </header>
    <main id="main" tabindex="-1">${children}</main>
    ${palette.value && html`<${Palette} />`} ${help.value && html`<${HelpDialog} />`}
    <${Toasts} />
  `;
}

function toMain(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

/** Whether figures on this page are live. */
function Stream() {
  if (stream.value === "off") return null;
  return html`<span class=${`stream ${stream.value}`} title=${t(`stream.${stream.value}.why`)}><i></i>${t(`stream.${stream.value}`)}</span>`;
}
