// The dead letters of a group: read, chosen, sent again.

import { Progress } from "./browser.js";
import { Jobs } from "./dead.js";
import { Do } from "../parts/actions.js";
import { Badge, Check, Field, Head, Problem, Select } from "../parts/basic.js";
import { ChangeDialog } from "../parts/dialog.js";
import { FilterLine } from "../parts/filter.js";
import { messageKey, MessageTable } from "../parts/messages.js";
import { at } from "../lib/api.js";
import { usePages } from "../lib/paging.js";
import { amend, changed, href, place } from "../lib/router.js";
import { useLater } from "../lib/use.js";
import { html, useState } from "../lib/ui.js";
import { number, t } from "../lib/words.js";

export function DeadGroup() {
  const { path, query } = place.value;
  const group = path[1];
  const asked = useLater(query.q ?? "", 350);
  const pages = usePages(at`dead/${group}`, { q: asked, from: query.from, to: query.to, order: query.order }, { identity: messageKey });
  const [chosen, setChosen] = useState(new Set());
  const kinds = new Map();
  for (const message of pages.messages) {
    const kind = JSON.stringify([message.origin?.topic ?? message.topic, message.tag]);
    kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
  }
  const only = pages.messages.filter((message) => chosen.has(messageKey(message))).map(({ broker, queue, offset }) => ({ broker, queue, offset }));
  const more = [
    { key: "origin", title: t("dead.origin"), cell: (row) => (row.origin?.topic ? html`<a href=${href(["messages", row.origin.id || row.id], { topic: row.origin.topic })}>${row.origin.topic}</a>` : html`<span class="soft">–</span>`) },
    { key: "redriven", title: t("job.title"), cell: (row) => (row.redriven ? html`<a href=${changed({ job: row.redriven })}><${Badge} tone="good">${t("dead.redriven")}</${Badge}></a>` : null) },
  ];
  return html`
    <${Head} title=${group} kind=${html`<a href="/dead">${t("nav.dead")}</a>`} facts=${[pages.extra.count !== undefined && t("dead.letters", { n: number(pages.extra.count) }), html`<a href=${href(["groups", group])}>${t("dead.to_group")}</a>`]}>
      <${Do} name="redrive" role="operate" tone="primary">${only.length ? t("dead.redrive_chosen", { n: only.length }) : t("dead.redrive")}</${Do}>
    </${Head}>
    <${FilterLine} query=${query} problem=${pages.error} />
    ${pages.error?.code !== "bad_filter" && html`<${Problem} error=${pages.error} retry=${pages.again} of=${pages.extra} />`}
    ${kinds.size > 0 &&
    html`<div class="tools" aria-label=${t("dead.kinds")}>
      ${[...kinds].map(([kind, count]) => {
        const [topic, tag] = JSON.parse(kind);
        return html`<a key=${kind} class="button small" href=${changed({ q: tag ? `tag:${quoted(tag)}` : undefined })}>${topic}${tag ? ` ${tag}` : ""}<span class="count">${number(count)}</span></a>`;
      })}
    </div>`}
    <section class="panel"><${MessageTable} label=${t("nav.dead")} messages=${pages.messages} more=${more} chosen=${chosen} onChoose=${setChosen} empty=${pages.busy ? t("loading") : t("dead.none_here")} /></section>
    <${Progress} pages=${pages} />
    <${Jobs} group=${group} />
    ${query.do === "redrive" && html`<${Redrive} group=${group} only=${only} query=${{ q: asked, from: query.from, to: query.to }} done=${() => { setChosen(new Set()); }} />`}
  `;
}

const RATE_MAX = 1000; // as the server has it

const quoted = (text) => (/[\s"]/.test(text) ? `"${text.replace(/["\\]/g, "\\$&")}"` : text);

function Redrive({ group, only, query, done }) {
  const [form, setForm] = useState({ target: "retry", topic: "", rate: "100", again: false });
  const set = (name) => (value) => setForm({ ...form, [name]: value?.target ? value.target.value : value });
  const ready = (form.target !== "topic" || form.topic.trim()) && Number(form.rate) > 0 && Number(form.rate) <= RATE_MAX;
  const body = {
    target: form.target,
    topic: form.target === "topic" ? form.topic.trim() : null,
    only: only.length ? only : null,
    q: only.length ? "" : (query.q ?? ""),
    from: only.length ? null : (query.from ?? null),
    to: only.length ? null : (query.to ?? null),
    rate: Number(form.rate),
    again: form.again,
  };
  const shown = (preview) => html`
    ${!preview.complete && html`<p class="note warn">${t("redrive.more", { read: number(preview.read), of: number(preview.of) })}</p>`}
    <p><strong>${t("redrive.count", { n: number(preview.count) })}</strong> ${Number(preview.before) > 0 && !form.again ? t("redrive.before", { n: number(preview.before) }) : ""} ${Number(preview.without_target) > 0 ? t("redrive.without", { n: number(preview.without_target) }) : ""} ${Number(preview.missing) > 0 ? t("redrive.missing", { n: number(preview.missing) }) : ""}</p>
    <ul>${Object.entries(preview.to ?? {}).map(([topic, count]) => html`<li key=${topic}><code>${topic}</code> <span class="number">${number(count)}</span></li>`)}</ul>
  `;
  return html`<${ChangeDialog}
    wide
    danger
    title=${t("redrive.title", { group })}
    action=${t("redrive.do")}
    request=${ready ? { method: "POST", path: at`dead/${group}/redrive`, body } : null}
    shown=${shown}
    said=${null}
    done=${(answer) => {
      done();
      amend({ do: undefined, job: answer.done?.job });
    }}
  >
    <div class="row">
      <${Field} label=${t("redrive.target")}><${Select} name="target" value=${form.target} onChange=${set("target")} options=${["retry", "origin", "topic"].map((name) => [name, t(`redrive.target.${name}`)])} /></${Field}>
      ${form.target === "topic" && html`<${Field} label=${t("topic")}><input type="text" name="topic" value=${form.topic} onInput=${set("topic")} autocomplete="off" spellcheck=${false} /></${Field}>`}
      <${Field} label=${t("redrive.rate")}><input type="number" name="rate" min="1" max=${RATE_MAX} value=${form.rate} onInput=${set("rate")} /></${Field}>
    </div>
    <${Check} label=${t("redrive.again")} checked=${form.again} onChange=${set("again")} />
  </${ChangeDialog}>`;
}
