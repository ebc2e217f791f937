// Producers and consumers that are connected.

import { Badge, Head, Loading, Problem, Search } from "../parts/basic.js";
import { Pager, RowLink, Table } from "../parts/table.js";
import { amend, href, place } from "../lib/router.js";
import { useAnswer, useLater } from "../lib/use.js";
import { html } from "../lib/ui.js";
import { t, time } from "../lib/words.js";

const SIZE = 100;

export function Clients() {
  const { q = "", page } = place.value.query;
  const asked = useLater(q, 200);
  const at = Math.max(0, Number(page ?? 1) - 1 || 0);
  const { data, error, loading, reload } = useAnswer("clients", { q: asked, offset: at * SIZE, limit: SIZE }, { every: 10000 });
  const consumer = (row) => row.role === "consumer" && row.groups[0];
  const columns = [
    { key: "id", title: t("client.id"), grow: true, sort: (row) => row.id, cell: (row) => (consumer(row) ? html`<${RowLink} href=${href(["groups", row.groups[0]], { tab: "members", member: row.id })}>${row.id}</${RowLink}>` : row.id) },
    { key: "role", title: t("client.role"), sort: (row) => row.role, cell: (row) => html`<${Badge} tone=${row.role === "producer" ? "accent" : "plain"}>${t(`client.role.${row.role}`)}</${Badge}>` },
    { key: "groups", title: t("nav.groups"), cell: (row) => html`<div class="chips">${row.groups.map((name) => (row.role === "consumer" ? html`<a key=${name} class="chip" href=${href(["groups", name])}>${name}</a>` : html`<code key=${name} class="chip">${name}</code>`))}</div>` },
    { key: "address", title: t("broker.address"), sort: (row) => row.address, cell: (row) => html`<code>${row.address}</code>` },
    { key: "language", title: t("client.language"), cell: (row) => row.language },
    { key: "version", title: t("broker.version"), cell: (row) => row.version },
    { key: "brokers", title: t("nav.brokers"), cell: (row) => html`<span class="soft clip" title=${row.brokers.join(", ")}>${row.brokers.join(", ")}</span>` },
    { key: "last", title: t("client.last"), align: "right", sort: (row) => row.last_ms, cell: (row) => html`<span class="number">${time(row.last_ms, { millis: false })}</span>` },
  ];
  return html`
    <${Head} title=${t("nav.clients")} />
    <div class="tools"><${Search} value=${q} onInput=${(value) => amend({ q: value, page: undefined })} placeholder=${t("clients.search")} /></div>
    <${Problem} error=${error} retry=${reload} />
    ${data
      ? html`<section class="panel"><${Table} label=${t("nav.clients")} columns=${columns} rows=${data.clients} rowKey=${(row) => `${row.role} ${row.id} ${row.address} ${row.groups.join()}`} empty=${t("clients.none")} /></section><${Pager} total=${data.total} size=${SIZE} />`
      : loading && html`<${Loading} />`}
  `;
}
