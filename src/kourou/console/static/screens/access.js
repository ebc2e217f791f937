// Users and rules of brokers with access control.

import { Do } from "../parts/actions.js";
import { Badge, Check, Empty, Field, Head, Loading, Problem, Select } from "../parts/basic.js";
import { ChangeDialog, closeDialog } from "../parts/dialog.js";
import { Table } from "../parts/table.js";
import { at } from "../lib/api.js";
import { amend, place } from "../lib/router.js";
import { hindrance, lacking } from "../lib/session.js";
import { useAnswer } from "../lib/use.js";
import { html, useState } from "../lib/ui.js";
import { t } from "../lib/words.js";

const ACTIONS = ["All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List"];

export function Access() {
  const { query } = place.value;
  const denied = hindrance("administer");
  const may = denied === "" || denied === t("hindrance.read_only"); // a reader may look, and change nothing
  const { data, error, loading, reload } = useAnswer(may ? "acl" : null);
  const users = [
    { key: "name", title: t("acl.user"), grow: true, sort: (row) => row.name, cell: (row) => html`<strong>${row.name}</strong>` },
    { key: "broker", title: t("broker"), sort: (row) => row.broker, cell: (row) => row.broker },
    { key: "super", title: t("acl.super"), cell: (row) => (row.super ? html`<${Badge} tone="warn">${t("yes")}</${Badge}>` : t("no")) },
    { key: "enabled", title: t("acl.enabled"), cell: (row) => (row.enabled ? t("yes") : html`<${Badge} tone="bad">${t("no")}</${Badge}>`) },
    { key: "delete", title: "", cell: (row) => html`<${Do} name="delete-user" role="administer" tone="small bare" more=${{ name: row.name }}>${t("delete")}</${Do}>` },
  ];
  const rules = [
    { key: "subject", title: t("acl.subject"), sort: (row) => row.subject, cell: (row) => html`<strong>${row.subject}</strong>` },
    { key: "resource", title: t("acl.resource"), grow: true, sort: (row) => row.resource, cell: (row) => html`<code>${row.resource}</code>` },
    { key: "actions", title: t("acl.actions"), cell: (row) => row.actions.join(", ") },
    { key: "decision", title: t("acl.decision"), cell: (row) => html`<${Badge} tone=${/^allow$/i.test(row.decision) ? "good" : "bad"}>${row.decision}</${Badge}>` },
    { key: "addresses", title: t("acl.addresses"), cell: (row) => (row.addresses.length ? html`<code>${row.addresses.join(", ")}</code>` : html`<span class="soft">${t("acl.any")}</span>`) },
    { key: "broker", title: t("broker"), cell: (row) => row.broker },
    { key: "delete", title: "", cell: (row) => html`<${Do} name="delete-rule" role="administer" tone="small bare" more=${{ subject: row.subject, resource: row.resource }}>${t("delete")}</${Do}>` },
  ];
  const close = () => amend({ do: undefined, name: undefined, subject: undefined, resource: undefined });
  return html`
    <${Head} title=${t("nav.access")}>
      ${data?.on && html`<${Do} name="user" role="administer" tone="primary" icon="plus">${t("acl.user.create")}</${Do}><${Do} name="rule" role="administer" icon="plus">${t("acl.rule.create")}</${Do}>`}
    </${Head}>
    ${!may && html`<${Empty}>${denied}</${Empty}>`}
    <${Problem} error=${error} retry=${reload} />
    ${may && !data && loading && html`<${Loading} />`}
    ${data && !data.on && html`<section class="panel"><${Empty}>${lacking("acl") ? html`<p>${t("acl.off")}</p>` : null}<p class="soft">${data.reason}</p></${Empty}></section>`}
    ${data?.on &&
    html`<section class="panel"><h2>${t("acl.users")}</h2><${Table} label=${t("acl.users")} columns=${users} rows=${data.users} rowKey=${(row) => `${row.broker} ${row.name}`} empty=${t("acl.no_users")} /></section>
      <section class="panel"><h2>${t("acl.rules")}</h2><${Table} label=${t("acl.rules")} columns=${rules} rows=${data.rules} param="rules" rowKey=${(row) => `${row.broker} ${row.subject} ${row.type} ${row.resource}`} empty=${t("acl.no_rules")} /></section>`}
    ${query.do === "user" && html`<${CreateUser} done=${reload} />`} ${query.do === "rule" && html`<${CreateRule} done=${reload} />`}
    ${query.do === "delete-user" && query.name &&
    html`<${ChangeDialog} danger title=${t("acl.user.delete", { name: query.name })} action=${t("delete")} request=${{ method: "DELETE", path: at`acl/users/${query.name}`, body: {} }} done=${reload} close=${close} />`}
    ${query.do === "delete-rule" && query.subject &&
    html`<${ChangeDialog} danger title=${t("acl.rule.delete")} action=${t("delete")} request=${{ method: "DELETE", path: "acl/rules", body: { subject: query.subject, resource: query.resource } }} done=${reload} close=${close}><p><code>${query.subject}</code> <code>${query.resource}</code></p></${ChangeDialog}>`}
  `;
}

function CreateUser({ done }) {
  const [form, setForm] = useState({ name: "", password: "", super: false });
  const set = (name) => (value) => setForm({ ...form, [name]: value?.target ? value.target.value : value });
  const ready = form.name.trim() && form.password;
  return html`<${ChangeDialog} title=${t("acl.user.create")} action=${t("create")} request=${ready ? { method: "POST", path: "acl/users", body: { ...form, name: form.name.trim() } } : null} done=${done} close=${closeDialog}>
    <div class="row">
      <${Field} label=${t("acl.user")}><input type="text" name="name" value=${form.name} onInput=${set("name")} autofocus autocomplete="off" spellcheck=${false} /></${Field}>
      <${Field} label=${t("acl.password")}><input type="password" name="password" value=${form.password} onInput=${set("password")} autocomplete="new-password" /></${Field}>
    </div>
    <${Check} label=${t("acl.super.long")} checked=${form.super} onChange=${set("super")} />
  </${ChangeDialog}>`;
}

function CreateRule({ done }) {
  const [form, setForm] = useState({ subject: "User:", resource: "Topic:", actions: ["Pub"], addresses: "", decision: "Allow" });
  const set = (name) => (value) => setForm({ ...form, [name]: value?.target ? value.target.value : value });
  const mark = (action) => (on) => setForm({ ...form, actions: on ? [...form.actions, action] : form.actions.filter((one) => one !== action) });
  const ready = /:.+/.test(form.subject) && /:.+/.test(form.resource) && form.actions.length;
  const body = { ...form, addresses: form.addresses.split(/[\s,]+/).filter(Boolean) };
  return html`<${ChangeDialog} title=${t("acl.rule.create")} action=${t("create")} request=${ready ? { method: "POST", path: "acl/rules", body } : null} done=${done} close=${closeDialog}>
    <div class="row">
      <${Field} label=${t("acl.subject")}><input type="text" name="subject" value=${form.subject} onInput=${set("subject")} autofocus spellcheck=${false} /></${Field}>
      <${Field} label=${t("acl.resource")} hint=${t("acl.resource.hint")}><input type="text" name="resource" value=${form.resource} onInput=${set("resource")} spellcheck=${false} /></${Field}>
    </div>
    <fieldset class="checks"><legend class="field-label">${t("acl.actions")}</legend>${ACTIONS.map((action) => html`<${Check} key=${action} label=${action} checked=${form.actions.includes(action)} onChange=${mark(action)} />`)}</fieldset>
    <div class="row">
      <${Field} label=${t("acl.decision")}><${Select} name="decision" value=${form.decision} onChange=${set("decision")} options=${[["Allow", "Allow"], ["Deny", "Deny"]]} /></${Field}>
      <${Field} label=${t("acl.addresses")} hint=${t("acl.addresses.hint")}><input type="text" name="addresses" value=${form.addresses} onInput=${set("addresses")} spellcheck=${false} /></${Field}>
    </div>
  </${ChangeDialog}>`;
}
