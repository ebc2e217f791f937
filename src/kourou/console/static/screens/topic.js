// One topic: its messages, live messages, queues, groups and settings.

import { Do } from "../parts/actions.js";
import { Field, Head, Loading, Pairs, Problem, Select, Tabs } from "../parts/basic.js";
import { Chart } from "../parts/chart.js";
import { ChangeDialog } from "../parts/dialog.js";
import { ProduceDialog } from "../parts/produce.js";
import { RowLink, Table } from "../parts/table.js";
import { Browser } from "./browser.js";
import { Tail } from "./tail.js";
import { Perm, PERMISSIONS, typeName } from "./topics.js";
import { at } from "../lib/api.js";
import { useFacts } from "../lib/live.js";
import { go, href, place } from "../lib/router.js";
import { useAnswer } from "../lib/use.js";
import { html, useState } from "../lib/ui.js";
import { number, short, span, t, time } from "../lib/words.js";

const TABS = ["messages", "live", "queues", "groups", "config"];

export function Topic() {
  const { path, query } = place.value;
  const name = path[1];
  const first = useFacts(at`topics/${name}`, `topic:${name}`);
  const { data } = first;
  const tab = TABS.includes(query.tab) ? query.tab : "messages";
  const tabs = TABS.map((one) => ({
    name: one,
    title: t(`topic.tab.${one}`),
    href: href(path, { tab: one === "messages" ? undefined : one }),
    count: { queues: data?.queues.length, groups: data?.groups.length }[one],
  }));
  const facts = data && [
    data.kind === "normal" ? null : t(`topic.kind.${data.kind}`),
    data.type && data.type !== "UNSPECIFIED" ? typeName(data.type) : null,
    t("topic.queue_count", { n: data.queues.length }),
    html`<${Perm} perm=${data.perm} />`,
    t("topic.message_count", { n: number(data.messages) }),
    data.rate === null ? null : `${short(data.rate)}/s`,
    data.keeps_ms === null ? null : t("topic.keeps", { span: span(data.keeps_ms) }),
  ];
  const kind = html`<a href="/topics">${t("nav.topics")}</a>`;
  if (!data && first.error?.code === "not_found") return html`<${Head} title=${name} kind=${kind} /><${Problem} error=${first.error} retry=${first.reload} />`;
  return html`
    <${Head} title=${name} kind=${kind} facts=${facts || []}>
      <${Do} name="produce" role="operate" tone="primary" icon="plus">${t("topic.produce")}</${Do}>
      <${Do} name="edit" role="administer">${t("edit")}</${Do}>
      <${Do} name="delete" role="administer" tone="danger-text">${t("delete")}</${Do}>
    </${Head}>
    <${Problem} error=${first.error} retry=${first.reload} of=${data} />
    <${Tabs} tabs=${tabs} at=${tab} label=${t("topic.tabs")} />
    ${tab === "messages" && html`<${Browser} topic=${name} />`} ${tab === "live" && html`<${Tail} topic=${name} />`}
    ${!data && first.loading && (tab === "queues" || tab === "groups" || tab === "config") && html`<${Loading} />`}
    ${data && tab === "queues" && html`<${Queues} data=${data} />`} ${data && tab === "groups" && html`<${Groups} data=${data} />`}
    ${data && tab === "config" && html`<${Config} data=${data} />`}
    ${query.do === "produce" && html`<${ProduceDialog} topic=${name} queues=${data?.queues ?? []} />`}
    ${query.do === "edit" && data && html`<${EditTopic} data=${data} done=${first.reload} />`}
    ${query.do === "delete" && html`<${DeleteTopic} name=${name} />`}
  `;
}

function Queues({ data }) {
  const columns = [
    { key: "broker", title: t("broker"), grow: true, sort: (row) => row.broker, cell: (row) => html`<${RowLink} href=${href(["topics", data.name], { q: `broker:${row.broker} queue:${row.queue}` })}>${row.broker}</${RowLink}>` },
    { key: "queue", title: t("queue"), align: "right", sort: (row) => row.queue, cell: (row) => html`<span class="number">${row.queue}</span>` },
    { key: "min", title: t("queue.min"), align: "right", sort: (row) => row.min, cell: (row) => html`<span class="number">${number(row.min)}</span>` },
    { key: "end", title: t("queue.end"), align: "right", sort: (row) => row.end, cell: (row) => html`<span class="number">${number(row.end)}</span>` },
    { key: "messages", title: t("topic.messages"), align: "right", sort: (row) => row.messages, cell: (row) => html`<span class="number">${number(row.messages)}</span>` },
    { key: "last", title: t("topic.last"), align: "right", sort: (row) => row.last_ms, cell: (row) => html`<span class="number">${time(row.last_ms)}</span>` },
  ];
  return html`
    <section class="panel"><${Chart} history=${data.history} names=${[["in", t("topic.rate")]]} title=${t("topic.rate_hour")} height=${120} /></section>
    <section class="panel"><${Table} label=${t("topic.tab.queues")} columns=${columns} rows=${data.queues} rowKey=${(row) => `${row.broker} ${row.queue}`} /></section>
  `;
}

function Groups({ data }) {
  const figures = useAnswer(data.groups.length ? "groups/figures" : null, { names: data.groups.slice(0, 20).join(",") }, { every: 5000 });
  const rows = data.groups.map((name) => ({ name, ...(figures.data?.figures?.[name] ?? {}) }));
  const columns = [
    { key: "name", title: t("group.name"), grow: true, sort: (row) => row.name, cell: (row) => html`<${RowLink} href=${href(["groups", row.name])}>${row.name}</${RowLink}>` },
    { key: "members", title: t("group.members"), align: "right", sort: (row) => row.members, cell: (row) => html`<span class="number">${number(row.members)}</span>` },
    { key: "lag", title: t("group.lag"), align: "right", sort: (row) => row.lag, cell: (row) => html`<span class="number">${number(row.lag)}</span>` },
    { key: "lag_ms", title: t("group.lag_ms"), align: "right", sort: (row) => row.lag_ms, cell: (row) => html`<span class="number">${span(row.lag_ms)}</span>` },
    { key: "rate", title: t("group.rate"), align: "right", sort: (row) => row.rate, cell: (row) => html`<span class="number">${row.rate === null || row.rate === undefined ? "–" : `${short(row.rate)}/s`}</span>` },
  ];
  return html`<section class="panel"><${Table} label=${t("topic.tab.groups")} columns=${columns} rows=${rows} rowKey=${(row) => row.name} empty=${t("topic.no_groups")} /></section>`;
}

function Config({ data }) {
  const columns = [
    { key: "broker", title: t("broker"), grow: true, sort: (row) => row.broker, cell: (row) => html`<${RowLink} href=${href(["brokers", row.address])}>${row.broker}</${RowLink}>` },
    { key: "address", title: t("broker.address"), cell: (row) => html`<code>${row.address}</code>` },
    { key: "write", title: t("topic.write_queues"), align: "right", cell: (row) => html`<span class="number">${row.write_queues}</span>` },
    { key: "read", title: t("topic.read_queues"), align: "right", cell: (row) => html`<span class="number">${row.read_queues}</span>` },
    { key: "perm", title: t("topic.perm"), cell: (row) => html`<${Perm} perm=${row.perm} />` },
    { key: "order", title: t("topic.order"), cell: (row) => (row.order ? t("yes") : t("no")) },
    { key: "attributes", title: t("attributes"), cell: (row) => Object.entries(row.attributes).map(([key, value]) => html`<code key=${key} class="chip">${key}=${value}</code>`) },
  ];
  return html`<section class="panel"><${Table} label=${t("topic.tab.config")} columns=${columns} rows=${data.settings} rowKey=${(row) => row.address} /></section>`;
}

function EditTopic({ data, done }) {
  const first = data.settings[0] ?? { write_queues: 8, read_queues: 8, perm: "rw" };
  const [form, setForm] = useState({ broker: "", write_queues: String(first.write_queues), read_queues: String(first.read_queues), perm: first.perm });
  const set = (name) => (value) => setForm({ ...form, [name]: value?.target ? value.target.value : value });
  const here = data.settings.filter((one) => !form.broker || one.address === form.broker);
  const body = {};
  for (const name of ["write_queues", "read_queues"]) if (here.some((one) => one[name] !== Number(form[name]))) body[name] = Number(form[name]);
  if (here.some((one) => one.perm !== form.perm)) body.perm = form.perm;
  const ready = Object.keys(body).length > 0 && Number(form.write_queues) > 0 && Number(form.read_queues) > 0;
  const lost = data.settings.some((one) => Number(form.read_queues) < one.read_queues);
  return html`<${ChangeDialog}
    title=${t("topic.edit", { name: data.name })}
    action=${t("save")}
    request=${ready ? { method: "PATCH", path: at`topics/${data.name}`, body: { ...body, broker: form.broker || null } } : null}
    done=${done}
  >
    <${Field} label=${t("broker")} wide><${Select} name="broker" value=${form.broker} onChange=${set("broker")} options=${[["", t("brokers.all")], ...data.settings.map((one) => [one.address, `${one.broker} (${one.address})`])]} /></${Field}>
    <div class="row">
      <${Field} label=${t("topic.write_queues")}><input type="number" name="write_queues" min="1" max="1024" value=${form.write_queues} onInput=${set("write_queues")} /></${Field}>
      <${Field} label=${t("topic.read_queues")}><input type="number" name="read_queues" min="1" max="1024" value=${form.read_queues} onInput=${set("read_queues")} /></${Field}>
      <${Field} label=${t("topic.perm")}><${Select} name="perm" value=${form.perm} onChange=${set("perm")} options=${PERMISSIONS.map((perm) => [perm, t(`perm.${perm}`)])} /></${Field}>
    </div>
    ${lost && html`<p class="note warn">${t("topic.edit.fewer")}</p>`}
  </${ChangeDialog}>`;
}

function DeleteTopic({ name }) {
  const shown = (preview) => html`
    <p>${t("topic.delete.what", { name })}</p>
    <${Pairs} pairs=${[
      [t("topic.messages"), number(preview.messages)],
      [t("topic.queues"), number(preview.queues)],
      [t("nav.groups"), preview.groups?.length ? preview.groups.join(", ") : t("none")],
    ]} />
  `;
  return html`<${ChangeDialog}
    title=${t("topic.delete", { name })}
    action=${t("topic.delete.do")}
    danger
    shown=${shown}
    request=${{ method: "DELETE", path: at`topics/${name}`, body: {} }}
    said=${t("topic.deleted", { name })}
    done=${() => go(["topics"])}
  />`;
}
