// Who changed what through this console.

import { Badge, Copy, Empty, Head, Loading, Problem } from "../parts/basic.js";
import { Table } from "../parts/table.js";
import { hindrance } from "../lib/session.js";
import { useAnswer } from "../lib/use.js";
import { html } from "../lib/ui.js";
import { t, time } from "../lib/words.js";

export function Audit() {
  const denied = hindrance("operate");
  const may = denied === "" || denied === t("hindrance.read_only");
  const { data, error, loading, reload } = useAnswer(may ? "audit" : null, { limit: 200 }, { every: 10000 });
  const columns = [
    { key: "at", title: t("audit.at"), sort: (row) => row.at_ms, cell: (row) => html`<span class="number">${time(row.at_ms, { millis: false })}</span>` },
    { key: "user", title: t("audit.user"), sort: (row) => row.user, cell: (row) => html`${row.user} <span class="soft">${row.address}</span>` },
    { key: "action", title: t("audit.action"), sort: (row) => row.action, cell: (row) => html`<code>${row.action}</code>` },
    { key: "what", title: t("audit.what"), cell: (row) => row.what },
    { key: "ok", title: t("audit.result"), cell: (row) => (row.ok ? html`<${Badge} tone="good">${t("audit.ok")}</${Badge}>` : html`<${Badge} tone="bad" title=${row.text}>${t("audit.failed")}</${Badge}>`) },
    { key: "cli", title: t("audit.cli"), grow: true, cell: (row) => (row.cli ? html`<code class="clip-wide" title=${row.cli}>${row.cli}</code><${Copy} text=${row.cli} label=${t("copy.command")} />` : html`<span class="soft">${row.text}</span>`) },
  ];
  return html`
    <${Head} title=${t("nav.audit")} />
    ${!may && html`<${Empty}>${denied}</${Empty}>`}
    <${Problem} error=${error} retry=${reload} />
    ${data ? html`<section class="panel"><${Table} label=${t("nav.audit")} columns=${columns} rows=${data.entries.map((row, index) => ({ ...row, index }))} rowKey=${(row) => `${row.at_ms} ${row.index}`} empty=${t("audit.none")} /></section>` : may && loading && html`<${Loading} />`}
  `;
}
