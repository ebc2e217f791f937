// All topics: found by name and kind, figures of the rows on screen, and a dialog that creates one.

import { Do } from "../parts/actions.js";
import { Badge, Field, Check, Head, Loading, Problem, Search, Select } from "../parts/basic.js";
import { ChangeDialog } from "../parts/dialog.js";
import { Pager, RowLink, Table } from "../parts/table.js";
import { amend, go, href, place } from "../lib/router.js";
import { session } from "../lib/session.js";
import { useAnswer, useLater } from "../lib/use.js";
import { html, useState } from "../lib/ui.js";
import { number, short, t, time } from "../lib/words.js";

const SIZE = 50;
const KINDS = ["normal", "retry", "dlq", "system", "all"];
export const TYPES = ["NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"];
export const PERMISSIONS = ["rw", "r", "w", "-"];

export function Topics() {
  const { q = "", kind = "normal", page, do: open } = place.value.query;
  const asked = useLater(q, 150);
  const at = Math.max(0, Number(page ?? 1) - 1 || 0);
  const refresh = session.value.refresh_ms;
  const { data, error, loading, reload } = useAnswer("topics", { q: asked, kind, offset: at * SIZE, limit: SIZE }, { every: refresh * 5 });
  const names = (data?.topics ?? []).map((topic) => topic.name);
  const figures = useAnswer(names.length ? "topics/figures" : null, { names: names.join(",") }, { every: refresh * 2 });
  const rows = (data?.topics ?? []).map((topic) => ({ ...topic, figures: figures.data?.figures?.[topic.name] }));
  const columns = [
    { key: "name", title: t("topic"), grow: true, sort: (row) => row.name, cell: (row) => html`<${RowLink} href=${href(["topics", row.name])}>${row.name}</${RowLink}>` },
    { key: "type", title: t("topic.type"), cell: (row) => html`<${TypeBadge} type=${row.type} />` },
    { key: "perm", title: t("topic.perm"), cell: (row) => html`<${Perm} perm=${row.perm} />` },
    { key: "queues", title: t("topic.queues"), align: "right", sort: (row) => row.queues, cell: (row) => html`<span class="number">${row.queues === row.read_queues ? row.queues : `${row.queues} / ${row.read_queues}`}</span>` },
    { key: "messages", title: t("topic.messages"), align: "right", sort: (row) => row.figures?.messages, cell: (row) => html`<span class="number">${number(row.figures?.messages)}</span>` },
    { key: "rate", title: t("topic.rate"), align: "right", sort: (row) => row.figures?.rate, cell: (row) => html`<span class="number">${row.figures?.rate === null || row.figures === undefined ? "–" : `${short(row.figures.rate)}/s`}</span>` },
    { key: "last", title: t("topic.last"), align: "right", sort: (row) => row.figures?.last_ms, cell: (row) => html`<span class="number">${time(row.figures?.last_ms, { millis: false })}</span>` },
    { key: "groups", title: t("nav.groups"), align: "right", sort: (row) => row.figures?.groups, cell: (row) => html`<span class="number">${number(row.figures?.groups)}</span>` },
    { key: "brokers", title: t("nav.brokers"), cell: (row) => html`<span class="soft clip" title=${row.brokers.join(", ")}>${row.brokers.length > 3 ? t("brokers.count", { n: row.brokers.length }) : row.brokers.join(", ")}</span>` },
  ];
  return html`
    <${Head} title=${t("nav.topics")}><${Do} name="create" role="administer" tone="primary" icon="plus">${t("topic.create")}</${Do}></${Head}>
    <div class="tools">
      <${Search} value=${q} onInput=${(value) => amend({ q: value, page: undefined })} placeholder=${t("topics.search")} />
      <${Select} value=${kind} aria-label=${t("topic.kind")} options=${KINDS.map((name) => [name, t(`topic.kind.${name}`)])} onChange=${(value) => amend({ kind: value === "normal" ? undefined : value, page: undefined })} />
    </div>
    <${Problem} error=${error} retry=${reload} of=${data} />
    ${data
      ? html`<section class="panel"><${Table} label=${t("nav.topics")} columns=${columns} rows=${rows} rowKey=${(row) => row.name} empty=${q ? t("topics.none_found", { q }) : t("topics.none")} /></section>
          <${Pager} total=${data.total} size=${SIZE} />`
      : loading && html`<${Loading} />`}
    ${open === "create" && html`<${CreateTopic} done=${(name) => go(["topics", name])} />`}
  `;
}

export const TypeBadge = ({ type }) => (type && type !== "UNSPECIFIED" ? html`<${Badge} tone=${type === "NORMAL" ? "plain" : "accent"}>${typeName(type)}</${Badge}>` : html`<span class="soft">–</span>`);

/** The name of a type of topics; brokers may have others. */
export const typeName = (type) => (TYPES.includes(type) ? t(`topic.type.${type}`) : type);

export const Perm = ({ perm }) => (perm === "rw" ? html`<code>rw</code>` : html`<${Badge} tone="warn" title=${t(`perm.${perm}`)}>${perm === "-" ? t("perm.-") : perm}</${Badge}>`);

function CreateTopic({ done }) {
  const [form, setForm] = useState({ name: "", queues: "8", perm: "rw", type: "NORMAL", order: false });
  const set = (name) => (value) => setForm({ ...form, [name]: value?.target ? value.target.value : value });
  const ready = form.name.trim() && Number(form.queues) > 0;
  const body = { ...form, name: form.name.trim(), queues: Number(form.queues), cluster: null };
  return html`<${ChangeDialog}
    title=${t("topic.create")}
    action=${t("create")}
    request=${ready ? { method: "POST", path: "topics", body } : null}
    said=${t("topic.created", { name: body.name })}
    done=${() => done(body.name)}
  >
    <${Field} label=${t("topic")} hint=${t("topic.name.hint")} wide>
      <input type="text" name="name" value=${form.name} onInput=${set("name")} autofocus autocomplete="off" spellcheck=${false} maxlength="127" />
    </${Field}>
    <div class="row">
      <${Field} label=${t("topic.queues.per_broker")}><input type="number" name="queues" min="1" max="1024" value=${form.queues} onInput=${set("queues")} /></${Field}>
      <${Field} label=${t("topic.perm")}><${Select} name="perm" value=${form.perm} onChange=${set("perm")} options=${PERMISSIONS.map((perm) => [perm, t(`perm.${perm}`)])} /></${Field}>
      <${Field} label=${t("topic.type")}><${Select} name="type" value=${form.type} onChange=${set("type")} options=${TYPES.map((type) => [type, t(`topic.type.${type}`)])} /></${Field}>
    </div>
    <${Check} label=${t("topic.order")} checked=${form.order} onChange=${set("order")} />
  </${ChangeDialog}>`;
}
