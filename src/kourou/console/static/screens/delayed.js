// Messages that wait: delay levels, times, and transactions that are not decided.

import { Badge, Head, Loading, Problem, Tabs } from "../parts/basic.js";
import { messageKey, MessageTable } from "../parts/messages.js";
import { RowLink, Table } from "../parts/table.js";
import { Progress } from "./browser.js";
import { usePages } from "../lib/paging.js";
import { changed, href, place } from "../lib/router.js";
import { useAnswer } from "../lib/use.js";
import { html } from "../lib/ui.js";
import { number, t, time } from "../lib/words.js";

const TABS = ["levels", "timed", "half"];

export function Delayed() {
  const { path, query } = place.value;
  const tab = TABS.includes(query.tab) ? query.tab : "levels";
  const { data, error, loading, reload } = useAnswer("delayed", {}, { every: 5000 });
  const tabs = TABS.map((name) => ({ name, title: t(`delayed.${name}`), href: href(path, { tab: name === "levels" ? undefined : name }) }));
  return html`
    <${Head} title=${t("nav.delayed")} />
    <${Tabs} tabs=${tabs} at=${tab} label=${t("nav.delayed")} />
    ${tab !== "half" && html`<${Problem} error=${error} retry=${reload} />`}
    ${!data && loading && tab !== "half" && html`<${Loading} />`}
    ${data && tab === "levels" && html`<${Levels} levels=${data.levels} level=${query.level} />`}
    ${data && tab === "timed" && html`<${Timed} timed=${data.timed} />`} ${tab === "half" && html`<${Half} />`}
  `;
}

function Levels({ levels, level }) {
  const columns = [
    { key: "level", title: t("delayed.level"), sort: (row) => row.level, cell: (row) => html`<${RowLink} href=${changed({ level: row.level })}>${t("delayed.level_n", { n: row.level })}</${RowLink}>` },
    { key: "delay", title: t("delayed.delay"), cell: (row) => html`<code>${row.delay}</code>` },
    { key: "broker", title: t("broker"), grow: true, sort: (row) => row.broker, cell: (row) => row.broker },
    { key: "waiting", title: t("delayed.waiting"), align: "right", sort: (row) => row.waiting, cell: (row) => html`<span class="number">${number(row.waiting)}</span>` },
    { key: "next", title: t("delayed.next"), align: "right", sort: (row) => row.next_ms, cell: (row) => html`<span class="number">${time(row.next_ms, { millis: false })}</span>` },
  ];
  return html`
    <section class="panel"><${Table} label=${t("delayed.levels")} columns=${columns} rows=${levels} rowKey=${(row) => `${row.broker} ${row.level}`} empty=${t("delayed.none")} /></section>
    ${level && html`<h2>${t("delayed.level_n", { n: level })}</h2><${Waiting} path="delayed/messages" level=${level} />`}
  `;
}

function Waiting({ path, level }) {
  const pages = usePages(path, { level }, { identity: messageKey });
  const more = [
    { key: "topic", title: t("topic"), cell: (row) => html`<a href=${href(["topics", row.real_topic])}>${row.real_topic}</a>` },
    { key: "due", title: t("delayed.due"), cell: (row) => html`<span class="number">${time(row.due_ms)}</span>` },
  ];
  return html`<${Problem} error=${pages.error} /><section class="panel"><${MessageTable} label=${t("delayed.messages")} messages=${pages.messages} more=${more} empty=${pages.busy ? t("loading") : t("delayed.none")} /></section><${Progress} pages=${pages} />`;
}

function Timed({ timed }) {
  const columns = [
    { key: "broker", title: t("broker"), grow: true, cell: (row) => row.broker },
    { key: "count", title: t("delayed.waiting"), align: "right", sort: (row) => row.count, cell: (row) => html`<span class="number">${row.supported ? number(row.count) : "–"}</span>` },
    { key: "topics", title: t("nav.topics"), cell: (row) => Object.entries(row.topics ?? {}).map(([name, count]) => html`<a key=${name} class="chip" href=${href(["topics", name])}>${name} ${number(count)}</a>`) },
    { key: "reason", title: "", cell: (row) => (row.supported ? null : html`<span class="soft">${row.reason}</span>`) },
  ];
  return html`<section class="panel"><${Table} label=${t("delayed.timed")} columns=${columns} rows=${timed} rowKey=${(row) => row.broker} /></section><h2>${t("delayed.messages")}</h2><${Waiting} path="delayed/timed" />`;
}

function Half() {
  const pages = usePages("half", {}, { identity: messageKey });
  const more = [
    { key: "topic", title: t("topic"), cell: (row) => html`<a href=${href(["topics", row.real_topic])}>${row.real_topic}</a>` },
    { key: "group", title: t("delayed.producer_group"), cell: (row) => row.group },
    { key: "open", title: t("broker.state"), cell: (row) => (row.open === null ? "–" : html`<${Badge} tone=${row.open ? "warn" : "plain"}>${t(row.open ? "delayed.open" : "delayed.ended")}</${Badge}>`) },
    { key: "checks", title: t("delayed.checks"), align: "right", cell: (row) => html`<span class="number">${number(row.checks)}</span>` },
  ];
  return html`
    <${Problem} error=${pages.error} retry=${pages.again} />
    <section class="panel"><${MessageTable} label=${t("delayed.half")} messages=${pages.messages} more=${more} empty=${pages.busy ? t("loading") : t("delayed.none")} /></section>
    <${Progress} pages=${pages} />
  `;
}
