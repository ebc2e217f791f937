// All groups, with the figures of those on screen.

import { Do } from "../parts/actions.js";
import { Badge, Check, Field, Head, Loading, Problem, Search } from "../parts/basic.js";
import { ChangeDialog } from "../parts/dialog.js";
import { Pager, RowLink, Table } from "../parts/table.js";
import { amend, go, href, place } from "../lib/router.js";
import { session } from "../lib/session.js";
import { useAnswer, useLater } from "../lib/use.js";
import { html, useState } from "../lib/ui.js";
import { number, short, span, t } from "../lib/words.js";

const SIZE = 20; // as many as one request for figures takes

export function Groups() {
  const { q = "", kind, page, do: open } = place.value.query;
  const asked = useLater(q, 150);
  const at = Math.max(0, Number(page ?? 1) - 1 || 0);
  const refresh = session.value.refresh_ms;
  const { data, error, loading, reload } = useAnswer("groups", { q: asked, kind, offset: at * SIZE, limit: SIZE }, { every: refresh * 5 });
  const names = (data?.groups ?? []).map((group) => group.name);
  const figures = useAnswer(names.length ? "groups/figures" : null, { names: names.join(",") }, { every: refresh * 2 });
  const rows = (data?.groups ?? []).map((group) => ({ ...group, figures: figures.data?.figures?.[group.name] }));
  const figure = (key, title, show = number) => ({
    key,
    title,
    align: "right",
    sort: (row) => row.figures?.[key],
    cell: (row) => html`<span class="number">${show(row.figures?.[key])}</span>`,
  });
  const columns = [
    { key: "name", title: t("group.name"), grow: true, sort: (row) => row.name, cell: (row) => html`<${RowLink} href=${href(["groups", row.name])}>${row.name}</${RowLink}>` },
    { key: "state", title: t("group.state"), cell: (row) => html`<${GroupState} group=${row} />` },
    figure("members", t("group.members")),
    figure("lag", t("group.lag")),
    figure("lag_ms", t("group.lag_ms"), span),
    figure("rate", t("group.rate"), (value) => (value === null || value === undefined ? "–" : `${short(value)}/s`)),
    figure("in_flight", t("group.in_flight")),
    { ...figure("dead", t("group.dead")), cell: (row) => (Number(row.figures?.dead) > 0 ? html`<a class="number" href=${href(["dead", row.name])}>${number(row.figures.dead)}</a>` : html`<span class="number">${number(row.figures?.dead)}</span>`) },
    { key: "topics", title: t("nav.topics"), cell: (row) => html`<span class="soft clip" title=${row.figures?.topics?.join(", ")}>${row.figures?.topics?.join(", ") ?? "–"}</span>` },
  ];
  return html`
    <${Head} title=${t("nav.groups")}><${Do} name="create" role="administer" tone="primary" icon="plus">${t("group.create")}</${Do}></${Head}>
    <div class="tools"><${Search} value=${q} onInput=${(value) => amend({ q: value, page: undefined })} placeholder=${t("groups.search")} /><${Check} label=${t("groups.system")} checked=${kind === "all"} onChange=${(on) => amend({ kind: on ? "all" : undefined, page: undefined })} /></div>
    <${Problem} error=${error} retry=${reload} of=${data} />
    ${data
      ? html`<section class="panel"><${Table} label=${t("nav.groups")} columns=${columns} rows=${rows} rowKey=${(row) => row.name} empty=${q ? t("groups.none_found", { q }) : t("groups.none")} /></section>
          <${Pager} total=${data.total} size=${SIZE} />`
      : loading && html`<${Loading} />`}
    ${open === "create" && html`<${GroupForm} />`}
  `;
}

export function GroupState({ group }) {
  if (!group.consume_enable) return html`<${Badge} tone="bad">${t("group.disabled")}</${Badge}>`;
  if (group.orderly) return html`<${Badge} tone="accent">${t("group.orderly")}</${Badge}>`;
  return html`<${Badge} tone="good">${t("group.enabled")}</${Badge}>`;
}

/** Creates a group, or changes the settings of `group`. */
export function GroupForm({ group, done }) {
  const settings = group?.settings[0];
  const [form, setForm] = useState({
    name: group?.name ?? "",
    retry_max: String(settings?.retry_max ?? 16),
    consume_enable: settings?.consume_enable ?? true,
    orderly: settings?.orderly ?? false,
    broadcast_enable: settings?.broadcast_enable ?? true,
  });
  const set = (name) => (value) => setForm({ ...form, [name]: value?.target ? value.target.value : value });
  const name = form.name.trim();
  const { name: _, ...rest } = { ...form, retry_max: Number(form.retry_max) };
  const ready = name && form.retry_max !== "";
  const request = group ? { method: "PATCH", path: `groups/${encodeURIComponent(name)}`, body: rest } : { method: "POST", path: "groups", body: { name, ...rest } };
  return html`<${ChangeDialog}
    title=${group ? t("group.edit", { name }) : t("group.create")}
    action=${group ? t("save") : t("create")}
    request=${ready ? request : null}
    done=${() => (group ? done() : go(["groups", name]))}
  >
    <div class="row">
      <${Field} label=${t("group.name")}><input type="text" name="name" value=${form.name} disabled=${Boolean(group)} onInput=${set("name")} autofocus autocomplete="off" spellcheck=${false} /></${Field}>
      <${Field} label=${t("group.retry_max")}><input type="number" name="retry_max" min="-1" max="1000" value=${form.retry_max} onInput=${set("retry_max")} /></${Field}>
    </div>
    <${Check} label=${t("group.consume_enable")} checked=${form.consume_enable} onChange=${set("consume_enable")} />
    <${Check} label=${t("group.orderly.long")} checked=${form.orderly} onChange=${set("orderly")} />
    <${Check} label=${t("group.broadcast_enable")} checked=${form.broadcast_enable} onChange=${set("broadcast_enable")} />
  </${ChangeDialog}>`;
}
