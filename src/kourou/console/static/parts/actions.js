// Buttons of changes: grey, with the reason, for a reader or brokers that can't.

import { Icon } from "./basic.js";
import { changed } from "../lib/router.js";
import { hindrance, lacking } from "../lib/session.js";
import { html } from "../lib/ui.js";

/** Opens the dialog `name` of this page: `?do=name`. */
export function Do({ name, role = "operate", feature, children, tone = "", icon, more = {} }) {
  const reason = hindrance(role) || (feature ? lacking(feature) : "");
  const inner = html`${icon && html`<${Icon} name=${icon} size=${14} />`}${children}`;
  if (reason) return html`<span class=${`button ${tone}`} aria-disabled="true" role="link" tabindex="0" title=${reason} aria-description=${reason}>${inner}</span>`;
  return html`<a class=${`button ${tone}`} href=${changed({ do: name, ...more })}>${inner}</a>`;
}
