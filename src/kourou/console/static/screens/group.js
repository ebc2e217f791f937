// One group: how far it is, its members, its doctor, its settings.

import { GroupForm } from "./groups.js";
import { ResetDialog, SkipDialog } from "./reset.js";
import { Do } from "../parts/actions.js";
import { Badge, ButtonLink, Check, Figure, Head, Icon, Loading, Problem, Tabs } from "../parts/basic.js";
import { Chart } from "../parts/chart.js";
import { ChangeDialog, closeDialog, Dialog } from "../parts/dialog.js";
import { RowLink, Table } from "../parts/table.js";
import { at } from "../lib/api.js";
import { useFacts } from "../lib/live.js";
import { changed, go, href, place } from "../lib/router.js";
import { useAnswer } from "../lib/use.js";
import { html, useEffect, useState } from "../lib/ui.js";
import { number, short, span, t, time, translated } from "../lib/words.js";

const TABS = ["queues", "members", "doctor", "config"];

export function Group() {
  const { path, query } = place.value;
  const name = path[1];
  const first = useFacts(at`groups/${name}`, `group:${name}`);
  const { data } = first;
  const tab = TABS.includes(query.tab) ? query.tab : "queues";
  const tabs = TABS.map((one) => ({
    name: one,
    title: t(`group.tab.${one}`),
    href: href(path, { tab: one === "queues" ? undefined : one }),
    count: { queues: data?.queues.length, members: data?.members.length }[one],
  }));
  const enabled = data?.settings.every((one) => one.consume_enable) ?? true;
  const facts = data && [
    data.kind && t(`group.kind.${data.kind}`),
    data.model && t(`group.model.${data.model}`),
    t("group.member_count", { n: data.members.length }),
    data.from_where && t(`group.from.${data.from_where}`),
    !enabled && html`<${Badge} tone="bad">${t("group.disabled")}</${Badge}>`,
  ];
  const kind = html`<a href="/groups">${t("nav.groups")}</a>`;
  if (!data && first.error?.code === "not_found") return html`<${Head} title=${name} kind=${kind} /><${Problem} error=${first.error} retry=${first.reload} />`;
  return html`
    <${Head} title=${name} kind=${kind} facts=${facts || []}>
      <${ButtonLink} href=${href(path, { tab: "doctor" })}>${t("group.doctor")}</${ButtonLink}>
      <${Do} name="reset" role="operate">${t("group.reset")}</${Do}>
      <${Do} name="skip" role="operate">${t("group.skip")}</${Do}>
      <${Do} name="edit" role="administer">${t("edit")}</${Do}>
      <${Do} name="delete" role="administer" tone="danger-text">${t("delete")}</${Do}>
    </${Head}>
    <${Problem} error=${first.error} retry=${first.reload} of=${data} />
    ${data && html`<${Figures} data=${data} />`}
    <${Tabs} tabs=${tabs} at=${tab} label=${t("group.tabs")} />
    ${!data && first.loading && tab !== "doctor" && html`<${Loading} />`}
    ${data && tab === "queues" && html`<${Queues} data=${data} />`} ${data && tab === "members" && html`<${Members} data=${data} />`}
    ${tab === "doctor" && html`<${Doctor} name=${name} />`} ${data && tab === "config" && html`<${Config} data=${data} />`}
    ${data && query.do === "reset" && html`<${ResetDialog} data=${data} done=${first.reload} />`}
    ${data && query.do === "skip" && html`<${SkipDialog} data=${data} done=${first.reload} />`}
    ${data && query.do === "edit" && html`<${GroupForm} group=${data} done=${first.reload} />`}
    ${query.do === "delete" && html`<${DeleteGroup} name=${name} />`}
    ${query.member && html`<${Member} group=${name} id=${query.member} />`}
  `;
}

const Figures = ({ data }) => html`
  <section class="figures" aria-label=${t("group.figures")}>
    <${Figure} label=${t("group.lag")} value=${short(data.lag)} sub=${t("group.lag.sub")} tone=${data.lag_ms > 60000 ? "bad" : ""} />
    <${Figure} label=${t("group.lag_ms")} value=${span(data.lag_ms)} sub=${t("group.lag_ms.sub")} tone=${data.lag_ms > 60000 ? "bad" : ""} />
    <${Figure} label=${t("group.rate")} value=${data.rate === null ? "–" : html`${short(data.rate)}<small>/s</small>`} />
    <${Figure} label=${t("group.in_flight")} value=${short(data.in_flight)} />
    <${Figure} label=${t("group.retrying")} value=${`${short(data.retrying)}${data.retrying_is_least ? "+" : ""}`} />
    <${Figure} label=${t("group.dead")} href=${href(["dead", data.name])} value=${short(data.dead)} tone=${Number(data.dead) ? "warn" : ""} />
  </section>
`;

function Queues({ data }) {
  const columns = [
    { key: "topic", title: t("topic"), grow: true, sort: (row) => row.topic, cell: (row) => html`<${RowLink} href=${href(["topics", row.topic], { tab: "queues" })}>${row.topic}</${RowLink}>` },
    { key: "queue", title: t("queue"), sort: (row) => `${row.broker}:${row.queue}`, cell: (row) => html`<code>${row.broker}:${row.queue}</code>` },
    { key: "member", title: t("group.member"), sort: (row) => row.member, cell: (row) => (row.member ? html`<a class="clip" title=${row.member} href=${changed({ member: row.member })}>${row.member}</a>` : html`<span class="soft">${t("none")}</span>`) },
    { key: "committed", title: t("group.committed"), align: "right", cell: (row) => html`<span class="number">${number(row.committed)}</span>` },
    { key: "end", title: t("queue.end"), align: "right", cell: (row) => html`<span class="number">${number(row.end)}</span>` },
    { key: "lag", title: t("group.lag"), align: "right", sort: (row) => row.lag, cell: (row) => html`<span class="number">${number(row.lag)}</span>` },
    { key: "lag_ms", title: t("group.lag_ms"), align: "right", sort: (row) => row.lag_ms, cell: (row) => html`<span class="number">${span(row.lag_ms)}</span>` },
    { key: "in_flight", title: t("group.in_flight"), align: "right", sort: (row) => row.in_flight, cell: (row) => html`<span class="number">${number(row.in_flight)}</span>` },
    { key: "last", title: t("group.last"), align: "right", sort: (row) => row.last_ms, cell: (row) => html`<span class="number">${time(row.last_ms, { millis: false })}</span>` },
  ];
  return html`
    <div class="columns">
      <section class="panel"><${Chart} history=${data.history} names=${[["lag", t("group.lag")]]} title=${t("group.lag.hour")} height=${130} /></section>
      <section class="panel"><${Chart} history=${data.history} names=${[["lag_ms", t("group.lag_ms")]]} title=${t("group.lag_ms.hour")} unit="ms" height=${130} /></section>
    </div>
    <section class="panel"><${Table} label=${t("group.tab.queues")} columns=${columns} rows=${data.queues} order="-lag" rowKey=${(row) => `${row.topic} ${row.broker} ${row.queue}`} empty=${t("group.no_queues")} /></section>
  `;
}

function Members({ data }) {
  const columns = [
    { key: "id", title: t("group.member"), grow: true, sort: (row) => row.id, cell: (row) => html`<${RowLink} href=${changed({ member: row.id })}>${row.id}</${RowLink}>` },
    { key: "address", title: t("broker.address"), cell: (row) => html`<code>${row.address}</code>` },
    { key: "language", title: t("client.language"), cell: (row) => row.language },
    { key: "version", title: t("broker.version"), cell: (row) => row.version },
    { key: "queues", title: t("topic.queues"), align: "right", sort: (row) => row.queues, cell: (row) => html`<span class="number">${number(row.queues)}</span>` },
  ];
  const subscriptions = [
    { key: "topic", title: t("topic"), cell: (row) => html`<a href=${href(["topics", row.topic])}>${row.topic}</a>` },
    { key: "expression", title: t("group.expression"), grow: true, cell: (row) => html`<code>${row.expression}</code>` },
    { key: "type", title: t("topic.type"), cell: (row) => row.type },
  ];
  return html`
    <section class="panel"><${Table} label=${t("group.tab.members")} columns=${columns} rows=${data.members} rowKey=${(row) => row.id} empty=${t("group.no_members")} /></section>
    <section class="panel"><h2>${t("group.subscriptions")}</h2><${Table} label=${t("group.subscriptions")} columns=${subscriptions} rows=${data.subscriptions} rowKey=${(row) => `${row.topic} ${row.expression}`} /></section>
  `;
}

function Config({ data }) {
  const flag = (value) => (value ? t("yes") : t("no"));
  const columns = [
    { key: "broker", title: t("broker"), grow: true, cell: (row) => html`<${RowLink} href=${href(["brokers", row.address])}>${row.broker}</${RowLink}>` },
    { key: "consume", title: t("group.consume_enable"), cell: (row) => flag(row.consume_enable) },
    { key: "broadcast", title: t("group.broadcast_enable"), cell: (row) => flag(row.broadcast_enable) },
    { key: "orderly", title: t("group.orderly"), cell: (row) => flag(row.orderly) },
    { key: "retry", title: t("group.retry_max"), align: "right", cell: (row) => html`<span class="number">${row.retry_max}</span>` },
    { key: "queues", title: t("group.retry_queues"), align: "right", cell: (row) => html`<span class="number">${row.retry_queues}</span>` },
    { key: "attributes", title: t("attributes"), cell: (row) => Object.entries(row.attributes ?? {}).map(([key, value]) => html`<code key=${key} class="chip">${key}=${value}</code>`) },
  ];
  return html`<section class="panel"><${Table} label=${t("group.tab.config")} columns=${columns} rows=${data.settings} rowKey=${(row) => row.address} /></section>`;
}

const TONES = { good: "check", doubtful: "warn", bad: "bad" };

/** Why a group does not consume: what was checked, what was seen, and what to do. */
function Doctor({ name }) {
  const { data, error, loading, reload } = useAnswer(at`groups/${name}/doctor`);
  const [findings, setFindings] = useState(null);
  useEffect(() => {
    if (data) translated(data.findings, name).then(setFindings, () => setFindings(data.findings));
  }, [data]);
  if (!data || !findings) return html`<${Problem} error=${error} retry=${reload} />${loading && html`<${Loading} />`}`;
  return html`
    <section class="panel">
      <h2>${t("doctor.title")}<span class="spring"></span><span class="soft">${time(data.at, { millis: false })}</span>
        <button class="button bare small" type="button" onClick=${reload} disabled=${loading}><${Icon} name="refresh" size=${14} />${t("doctor.again")}</button></h2>
      ${findings.map(
        (finding, index) => html`<div key=${index} class=${`finding ${finding.severity}`}>
          <${Icon} name=${TONES[finding.severity] ?? "info"} size=${18} />
          <div>
            <strong>${finding.text}</strong>
            ${finding.remedy && html`<p class="remedy">${finding.remedy}</p>`}
            ${finding.evidence?.length > 0 &&
            html`<table><caption class="hidden">${t("doctor.evidence")}</caption><tbody>${finding.evidence.map((row, at) => html`<tr key=${at}>${row.map((cell, index) => html`<td key=${index}><code>${cell}</code></td>`)}</tr>`)}</tbody></table>`}
          </div>
        </div>`,
      )}
      ${!findings.length && html`<div class="empty">${t("doctor.nothing")}</div>`}
    </section>
  `;
}

/** One member, as it says itself: queues, rates, and where its threads are. */
function Member({ group, id }) {
  const [stacks, setStacks] = useState(false);
  const { data, error, loading } = useAnswer(at`groups/${group}/members/${id}`, { stacks: stacks ? "1" : "" });
  const close = () => go(place.value.path, { ...place.value.query, member: undefined }, { replace: true });
  const queues = [
    { key: "topic", title: t("topic"), grow: true, cell: (row) => row.topic },
    { key: "queue", title: t("queue"), cell: (row) => html`<code>${row.broker}:${row.queue}</code>` },
    { key: "committed", title: t("group.committed"), align: "right", cell: (row) => html`<span class="number">${number(row.committed)}</span>` },
    { key: "cached", title: t("member.cached"), align: "right", cell: (row) => html`<span class="number">${number(row.cached)}</span>` },
    { key: "pull", title: t("member.last_pull"), align: "right", cell: (row) => html`<span class="number">${time(row.last_pull_ms, { millis: false })}</span>` },
    { key: "consume", title: t("member.last_consume"), align: "right", cell: (row) => html`<span class="number">${time(row.last_consume_ms, { millis: false })}</span>` },
  ];
  const rates = [
    { key: "topic", title: t("topic"), grow: true, cell: (row) => row.topic },
    { key: "pull", title: t("member.pull_rate"), align: "right", cell: (row) => html`<span class="number">${number(row.pull_rate)}/s, ${number(row.pull_ms)} ms</span>` },
    { key: "ok", title: t("member.ok_rate"), align: "right", cell: (row) => html`<span class="number">${number(row.ok_rate)}/s, ${number(row.consume_ms)} ms</span>` },
    { key: "failed", title: t("member.failed"), align: "right", cell: (row) => html`<span class="number">${number(row.failed)}</span>` },
  ];
  return html`<${Dialog} wide title=${id} close=${close}>
    <div class="dialog-body">
      <${Problem} error=${error} />
      ${!data && loading && html`<${Loading} />`}
      ${data &&
      html`<${Table} label=${t("topic.queues")} columns=${queues} rows=${data.queues} param="-" rowKey=${(row) => `${row.topic} ${row.broker} ${row.queue}`} />
        <${Table} label=${t("member.rates")} columns=${rates} rows=${data.rates} param="-" rowKey=${(row) => row.topic} />`}
      <${Check} label=${t("member.stacks")} checked=${stacks} onChange=${setStacks} />
      ${data?.stacks && html`<pre class="stacks" tabindex="0">${data.stacks}</pre>`}
    </div>
  </${Dialog}>`;
}

function DeleteGroup({ name }) {
  const [offsets, setOffsets] = useState(false);
  return html`<${ChangeDialog}
    title=${t("group.delete", { name })}
    action=${t("group.delete.do")}
    danger
    request=${{ method: "DELETE", path: at`groups/${name}`, body: { offsets } }}
    said=${t("group.deleted", { name })}
    done=${() => go(["groups"])}
    close=${closeDialog}
  >
    <p>${t("group.delete.what")}</p>
    <${Check} label=${t("group.delete.offsets")} checked=${offsets} onChange=${setOffsets} />
  </${ChangeDialog}>`;
}
