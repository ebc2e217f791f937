// The table of brokers, on the overview and on their own page.

import { Badge, Bar } from "./basic.js";
import { RowLink, Table } from "./table.js";
import { href } from "../lib/router.js";
import { html } from "../lib/ui.js";
import { bytes, short, span, t } from "../lib/words.js";

const rate = (value) => (value === null || value === undefined ? "–" : `${short(value)}/s`);

export function BrokerTable({ brokers }) {
  const columns = [
    { key: "name", title: t("broker"), grow: true, sort: (row) => row.name, cell: (row) => html`<${RowLink} href=${href(["brokers", row.address])}>${row.name}</${RowLink}>${row.id > 0 && html` <span class="soft">#${row.id}</span>`}` },
    { key: "state", title: t("broker.state"), cell: (row) => (row.ok ? html`<${Badge} tone="good">${t("broker.up")}</${Badge}>` : html`<${Badge} tone="bad" title=${row.reason}>${t("broker.down")}</${Badge}>`) },
    { key: "role", title: t("broker.role"), cell: (row) => t(`broker.role.${row.role}`) },
    { key: "address", title: t("broker.address"), cell: (row) => html`<code>${row.address}</code>` },
    { key: "version", title: t("broker.version"), cell: (row) => html`${row.kourou ? "Kourou " : ""}${row.version}` },
    { key: "in", title: t("overview.in"), align: "right", sort: (row) => row.in, cell: (row) => html`<span class="number">${rate(row.in)}</span>` },
    { key: "out", title: t("overview.out"), align: "right", sort: (row) => row.out, cell: (row) => html`<span class="number">${rate(row.out)}</span>` },
    { key: "p99", title: t("broker.put_p99"), align: "right", cell: (row) => html`<span class="number">${row.put_p99_ms === null ? "–" : `${row.put_p99_ms} ms`}</span>` },
    { key: "flush", title: t("broker.flush_behind"), align: "right", cell: (row) => html`<span class="number">${bytes(row.flush_behind)}</span>` },
    { key: "disk", title: t("overview.disk"), cell: (row) => html`<${Bar} ratio=${row.disk_ratio} />` },
    { key: "keeps", title: t("broker.keeps"), align: "right", cell: (row) => html`<span class="number">${span(row.keeps_ms)}</span>` },
  ];
  return html`<${Table} label=${t("nav.brokers")} columns=${columns} rows=${brokers} rowKey=${(row) => row.address} empty=${t("broker.none")} />`;
}
