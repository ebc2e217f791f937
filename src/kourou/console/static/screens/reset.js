// Where a group continues: reset its offsets, or skip the waiting messages. The preview lists each queue.

import { Field, Problem, Select } from "../parts/basic.js";
import { ChangeDialog } from "../parts/dialog.js";
import { Table } from "../parts/table.js";
import { local } from "../parts/filter.js";
import { at } from "../lib/api.js";
import { place } from "../lib/router.js";
import { html, useState } from "../lib/ui.js";
import { number, t } from "../lib/words.js";

function Shown({ preview }) {
  const columns = [
    { key: "queue", title: t("queue"), grow: true, cell: (row) => html`<code>${row.broker}:${row.queue}</code>` },
    { key: "committed", title: t("group.committed"), align: "right", cell: (row) => html`<span class="number">${number(row.committed)}</span>` },
    { key: "target", title: t("reset.target"), align: "right", cell: (row) => html`<span class="number">${number(row.target)}</span>` },
    { key: "again", title: t("reset.again"), align: "right", cell: (row) => html`<span class="number">${number(row.again)}</span>` },
    { key: "skipped", title: t("reset.skipped"), align: "right", cell: (row) => html`<span class="number">${number(row.skipped)}</span>` },
  ];
  return html`
    <p><strong>${t("reset.sum", { n: preview.again, again: number(preview.again), skipped: number(preview.skipped) })}</strong> ${t("reset.members", { n: preview.members })}</p>
    <${Table} label=${t("preview")} columns=${columns} rows=${preview.queues} param="-" rowKey=${(row) => `${row.broker} ${row.queue}`} />
  `;
}

const topicsOf = (data) => data.topics.filter((name) => !name.startsWith("%RETRY%"));

export function ResetDialog({ data, done }) {
  const topics = topicsOf(data);
  const asked = place.value.query.topic;
  const [form, setForm] = useState({ topic: topics.includes(asked) ? asked : (topics[0] ?? ""), to: "time", when: local(Date.now() - 3600000), queue: "", offset: "" });
  const set = (name) => (value) => setForm({ ...form, [name]: value?.target ? value.target.value : value });
  const queues = data.queues.filter((one) => one.topic === form.topic);
  const chosen = queues.find((one) => `${one.broker} ${one.queue}` === form.queue);
  const one = form.to === "offset";
  const body = {
    topic: form.topic,
    to: form.to,
    time_ms: form.to === "time" ? new Date(form.when).getTime() : null,
    broker: one ? (chosen?.broker ?? null) : null,
    queue: one ? (chosen?.queue ?? null) : null,
    offset: one ? form.offset : null,
  };
  const ready = form.topic && (form.to !== "time" || !Number.isNaN(body.time_ms)) && (!one || (chosen && /^\d+$/.test(form.offset)));
  const pick = (value) => setForm({ ...form, queue: value, offset: queues.find((row) => `${row.broker} ${row.queue}` === value)?.committed ?? "" });
  return html`<${ChangeDialog}
    wide
    danger
    title=${t("reset.title", { name: data.name })}
    action=${t("reset.do")}
    request=${ready ? { method: "POST", path: at`groups/${data.name}/reset`, body } : null}
    shown=${(preview) => html`<${Shown} preview=${preview} />`}
    said=${t("reset.done", { name: data.name })}
    done=${done}
  >
    ${!topics.length && html`<${Problem} error=${new Error(t("reset.no_topics"))} />`}
    <div class="row">
      <${Field} label=${t("topic")}><${Select} name="topic" value=${form.topic} onChange=${set("topic")} options=${topics.map((name) => [name, name])} /></${Field}>
      <${Field} label=${t("reset.to")}><${Select} name="to" value=${form.to} onChange=${set("to")} options=${["time", "first", "end", "offset"].map((name) => [name, t(`reset.to.${name}`)])} /></${Field}>
      ${form.to === "time" && html`<${Field} label=${t("reset.when")}><input type="datetime-local" name="when" step="1" value=${form.when} onInput=${set("when")} /></${Field}>`}
      ${one && html`<${Field} label=${t("queue")}><${Select} name="queue" value=${form.queue} onChange=${pick} options=${[["", "–"], ...queues.map((row) => [`${row.broker} ${row.queue}`, `${row.broker}:${row.queue}`])]} /></${Field}>`}
      ${one && html`<${Field} label=${t("reset.offset")}><input type="text" inputmode="numeric" name="offset" value=${form.offset} onInput=${set("offset")} /></${Field}>`}
    </div>
  </${ChangeDialog}>`;
}

export function SkipDialog({ data, done }) {
  const topics = topicsOf(data);
  const [topic, setTopic] = useState(topics[0] ?? "");
  return html`<${ChangeDialog}
    wide
    danger
    title=${t("skip.title", { name: data.name })}
    action=${t("skip.do")}
    request=${topic ? { method: "POST", path: at`groups/${data.name}/skip`, body: { topic } } : null}
    shown=${(preview) => html`<${Shown} preview=${preview} />`}
    said=${t("skip.done", { name: data.name })}
    done=${done}
  >
    <p>${t("skip.what")}</p>
    <${Field} label=${t("topic")}><${Select} name="topic" value=${topic} onChange=${setTopic} options=${topics.map((name) => [name, name])} /></${Field}>
  </${ChangeDialog}>`;
}
