// Short notices of what was done, read out by screen readers.

import { Icon } from "./basic.js";
import { html, signal } from "../lib/ui.js";

const SHOWN_MS = 6000;
const notices = signal([]);
let last = 0;

export function say(text, tone = "good") {
  last += 1;
  const notice = { id: last, text, tone };
  notices.value = [...notices.value.slice(-3), notice];
  setTimeout(() => {
    notices.value = notices.value.filter((one) => one.id !== notice.id);
  }, SHOWN_MS);
}

export const Toasts = () => html`
  <div class="toasts" role="status" aria-live="polite">
    ${notices.value.map(
      ({ id, text, tone }) => html`<div key=${id} class=${`toast ${tone}`}><${Icon} name=${tone === "good" ? "check" : "warn"} />${text}</div>`,
    )}
  </div>
`;
