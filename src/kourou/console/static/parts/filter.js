// The line that filters messages, the time span, and what the filter understands.

import { Button, Field, Search, Select } from "./basic.js";
import { Dialog } from "./dialog.js";
import { amend } from "../lib/router.js";
import { html, useState } from "../lib/ui.js";
import { t, time } from "../lib/words.js";

const SPANS = ["", "-5m", "-15m", "-1h", "-6h", "-1d", "-7d"];

/** What is typed is asked for with Enter or after a pause; `problem` is the server's refusal of the filter. */
export function FilterLine({ query, problem, spans = true, children }) {
  const { q = "", from = "", to = "", order = "newest" } = query;
  const [help, setHelp] = useState(false);
  const [exact, setExact] = useState(Boolean(to) || /^\d+$/.test(from));
  const bad = problem?.code === "bad_filter";
  return html`
    <div class="tools">
      <${Search} wide value=${q} onInput=${(value) => amend({ q: value })} placeholder=${t("filter.placeholder")} label=${t("filter")} invalid=${bad} describedby=${bad ? "filter-problem" : undefined} />
      <${Button} tone="bare" onClick=${() => setHelp(true)}>${t("filter.help")}</${Button}>
      ${spans &&
      html`<${Select}
          value=${exact ? "exact" : from}
          aria-label=${t("filter.from")}
          options=${[...SPANS.map((name) => [name, name ? t("filter.last", { span: t(`filter.span${name}`) }) : t("filter.all_times")]), ["exact", t("filter.exact")]]}
          onChange=${(value) => {
            setExact(value === "exact");
            if (value !== "exact") amend({ from: value, to: undefined });
          }}
        />
        <${Select} value=${order} aria-label=${t("filter.order")} options=${[["newest", t("filter.newest")], ["oldest", t("filter.oldest")]]} onChange=${(value) => amend({ order: value === "newest" ? undefined : value })} />`}
      ${children}
    </div>
    ${spans && exact && html`<div class="tools"><${When} name="from" value=${from} label=${t("filter.from")} /><${When} name="to" value=${to} label=${t("filter.to")} /></div>`}
    ${bad && html`<p id="filter-problem" class="note bad" role="alert">${problem.message}</p>`}
    ${help && html`<${FilterHelp} close=${() => setHelp(false)} />`}
  `;
}

export const local = (ms) => {
  if (!/^\d+$/.test(String(ms))) return "";
  const when = new Date(Number(ms));
  return new Date(when.getTime() - when.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
};

function When({ name, value, label }) {
  const take = (event) => amend({ [name]: event.target.value ? String(new Date(event.target.value).getTime()) : undefined });
  return html`<${Field} label=${label}><input type="datetime-local" step="1" value=${local(value)} title=${time(value, { date: true })} onChange=${take} /></${Field}>`;
}

const EXAMPLES = ["paid", '"two words"', 'body~"Lyon"', "tag:paid", "key:42", "amount>100", "order.city=Lyon", "-tag:test", "queue:3", "broker:broker-a", "retries>0", "size>1000"];

function FilterHelp({ close }) {
  const use = (text) => {
    amend({ q: text });
    close();
  };
  return html`<${Dialog} title=${t("filter.help")} close=${close}>
    <div class="dialog-body">
      <p>${t("filter.help.text")}</p>
      <ul class="examples">
        ${EXAMPLES.map((text) => html`<li key=${text}><button type="button" class="button bare" onClick=${() => use(text)}><code>${text}</code></button><span>${t(`filter.example.${EXAMPLES.indexOf(text)}`)}</span></li>`)}
      </ul>
    </div>
  </${Dialog}>`;
}
