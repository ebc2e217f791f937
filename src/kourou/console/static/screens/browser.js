// The messages of a topic: filter, time span, page by page, export.

import { Button, Icon, Problem } from "../parts/basic.js";
import { FilterLine } from "../parts/filter.js";
import { messageKey, MessageTable } from "../parts/messages.js";
import { at, url } from "../lib/api.js";
import { usePages } from "../lib/paging.js";
import { place } from "../lib/router.js";
import { hindrance } from "../lib/session.js";
import { useLater } from "../lib/use.js";
import { html } from "../lib/ui.js";
import { number, t } from "../lib/words.js";

export function Browser({ topic }) {
  const { q, from, to, order, key } = place.value.query;
  const asked = useLater(q ?? "", 350);
  const query = key ? { key } : { q: asked, from, to, order };
  const pages = usePages(at`topics/${topic}/messages`, query, { identity: messageKey });
  const denied = hindrance("bodies");
  const link = (format) => url(at`topics/${topic}/export`, { format, q: asked, from, to });
  return html`
    <${FilterLine} query=${place.value.query} problem=${pages.error}>
      <span class="spring"></span>
      <${Button} tone="bare" onClick=${pages.again}><${Icon} name="refresh" size=${14} />${t("refresh")}</${Button}>
      ${denied
        ? html`<span class="button" aria-disabled="true" title=${denied}>${t("export")}</span>`
        : html`<span class="joined"><a class="button" href=${link("jsonl")} download><${Icon} name="download" size=${14} />JSON</a><a class="button" href=${link("csv")} download>CSV</a></span>`}
    </${FilterLine}>
    ${pages.error?.code !== "bad_filter" && html`<${Problem} error=${pages.error} retry=${pages.again} of=${pages.extra} />`}
    <section class="panel">
      <${MessageTable} label=${t("topic.tab.messages")} messages=${pages.messages} empty=${pages.busy ? t("loading") : asked || from ? t("messages.none_found") : t("messages.none")} />
    </section>
    <${Progress} pages=${pages} />
  `;
}

/** How much was read, and on with it. */
export function Progress({ pages }) {
  const { messages, scanned, of, busy, cursor, stopped } = pages;
  return html`<div class="pager" aria-live="polite">
    <span class="soft">${t("messages.read", { shown: number(messages.length), scanned: number(scanned), of: number(of) })}${!busy && stopped === "bound" ? ` ${t("messages.bound")}` : ""}</span>
    ${busy ? html`<${Button} onClick=${pages.stop}>${t("stop")}</${Button}>` : cursor && html`<${Button} onClick=${pages.more}>${t("messages.more")}</${Button}>`}
  </div>`;
}
