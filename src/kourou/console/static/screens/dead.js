// Groups with dead letters, and the redrives that run or ran.

import { Badge, Head, Loading, Problem } from "../parts/basic.js";
import { RowLink, Table } from "../parts/table.js";
import { JobDialog, JobState } from "./job.js";
import { changed, href, place } from "../lib/router.js";
import { useAnswer } from "../lib/use.js";
import { html } from "../lib/ui.js";
import { number, t, time } from "../lib/words.js";

export function Dead() {
  const { data, error, loading, reload } = useAnswer("dead", {}, { every: 10000 });
  const columns = [
    { key: "group", title: t("group.name"), grow: true, sort: (row) => row.group, cell: (row) => html`<${RowLink} href=${href(["dead", row.group])}>${row.group}</${RowLink}>` },
    { key: "count", title: t("dead.count"), align: "right", sort: (row) => row.count, cell: (row) => html`<span class="number">${number(row.count)}</span>` },
    { key: "last", title: t("dead.last"), align: "right", sort: (row) => row.last_ms, cell: (row) => html`<span class="number">${time(row.last_ms, { millis: false })}</span>` },
    { key: "readable", title: "", cell: (row) => (row.readable ? null : html`<${Badge} tone="warn">${t("dead.not_readable")}</${Badge}>`) },
  ];
  return html`
    <${Head} title=${t("nav.dead")} />
    <${Problem} error=${error} retry=${reload} of=${data} />
    ${data ? html`<section class="panel"><${Table} label=${t("nav.dead")} columns=${columns} rows=${data.groups} order="-count" rowKey=${(row) => row.group} empty=${t("dead.none")} /></section>` : loading && html`<${Loading} />`}
    <${Jobs} />
  `;
}

export function Jobs({ group }) {
  const { data } = useAnswer("jobs", {}, { every: 3000 });
  const jobs = (data?.jobs ?? []).filter((job) => !group || job.group === group);
  const { job } = place.value.query;
  const columns = [
    { key: "started", title: t("job.started"), cell: (row) => html`<${RowLink} href=${changed({ job: row.id })}>${time(row.started_ms, { millis: false })}</${RowLink}>` },
    { key: "group", title: t("group.name"), grow: true, cell: (row) => row.group },
    { key: "state", title: t("job.state"), cell: (row) => html`<${JobState} state=${row.state} />` },
    { key: "sent", title: t("job.sent"), align: "right", cell: (row) => html`<span class="number">${number(row.sent)} / ${number(row.total)}${row.is_least ? "+" : ""}</span>` },
    { key: "failed", title: t("job.failed"), align: "right", cell: (row) => html`<span class="number">${number(row.failed)}</span>` },
    { key: "user", title: t("audit.user"), cell: (row) => row.user },
  ];
  if (!jobs.length && !job) return null;
  return html`
    <section class="panel"><h2>${t("jobs.title")}</h2><${Table} label=${t("jobs.title")} columns=${columns} rows=${jobs} param="-" rowKey=${(row) => row.id} /></section>
    ${job && html`<${JobDialog} id=${job} />`}
  `;
}
