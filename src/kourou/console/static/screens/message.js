// One message: its way through the groups, its body, its properties.

import { Do } from "../parts/actions.js";
import { Badge, Copy, Head, Icon, Loading, Pairs, Problem } from "../parts/basic.js";
import { Body } from "../parts/body.js";
import { ChangeDialog } from "../parts/dialog.js";
import { placeOf } from "../parts/messages.js";
import { ProduceDialog } from "../parts/produce.js";
import { at, get } from "../lib/api.js";
import { amend, href, place } from "../lib/router.js";
import { useAnswer } from "../lib/use.js";
import { html, useEffect, useState } from "../lib/ui.js";
import { bytes, language, number, span, t, time } from "../lib/words.js";

export function Message() {
  const { path, query } = place.value;
  const id = path[1];
  const topic = query.topic;
  const exact = query.at; // which of several messages with this id
  const found = useAnswer(at`messages/${exact ?? id}`, { topic });
  const journey = useAnswer(at`journey/${id}`, { topic }, { every: 5000 });
  const message = found.data?.message ?? journey.data?.message;
  const facts = message && [
    html`<a href=${href(["topics", message.topic])}>${message.topic}</a>`,
    ...message.keys.map((key) => t("message.key", { key })),
    message.tag && html`<${Badge}>${message.tag}</${Badge}>`,
    html`<code>${placeOf(message)}</code>`,
    bytes(message.body?.size ?? message.size),
  ];
  return html`
    <${Head} title=${id} kind=${html`<a href="/messages">${t("nav.messages")}</a>`} facts=${facts || []}>
      <${Copy} text=${id} label=${t("message.copy_id")} />
      ${message?.body && html`<${Do} name="produce" role="operate">${t("message.again")}</${Do}>`}
    </${Head}>
    <${Problem} error=${found.error} retry=${found.reload} />
    <section class="panel" aria-busy=${journey.loading}>
      <h2>${t("journey.title")}${journey.data && !journey.data.trace && html`<span class="soft">${t("journey.no_trace")}</span>`}${journey.data?.trace_url && html` <a href=${journey.data.trace_url} target="_blank" rel="noreferrer">${t("journey.trace")}</a>`}</h2>
      ${journey.data ? html`<${Journey} journey=${journey.data} />` : journey.error ? html`<div class="content"><${Problem} error=${journey.error} retry=${journey.reload} /></div>` : html`<${Loading} />`}
    </section>
    ${message &&
    html`<section class="panel"><h2>${t("body")}</h2><${Body} body=${message.body} message=${message} /></section>
      <div class="columns">
        <section class="panel"><h2>${t("message.facts")}</h2><div class="content"><${Pairs} pairs=${factsOf(message)} /></div></section>
        <section class="panel"><h2>${t("message.properties")}</h2><div class="content"><${Properties} of=${message.properties} /><${Properties} of=${message.system} soft /></div></section>
      </div>`}
    ${found.data?.same?.length > 0 && html`<${Same} id=${id} messages=${found.data.same} />`}
    ${!message && found.loading && html`<${Loading} />`}
    ${query.do === "produce" && message?.body && html`<${AgainDialog} message=${message} />`}
    ${query.do === "retry" && message && html`<${RetryDialog} id=${id} topic=${message.topic} group=${query.group} done=${journey.reload} />`}
  `;
}

const factsOf = (message) => [
  [t("message.stored"), time(message.stored_ms, { date: true })],
  [t("message.born"), time(message.born_ms, { date: true })],
  [t("message.from"), html`<code>${message.born_host}</code>`],
  [t("message.offset_id"), html`<code>${message.offset_id}</code>`],
  [t("broker"), message.broker || "–"],
  [t("queue"), `${message.queue}`],
  [t("message.offset"), number(message.offset)],
  [t("message.reconsume"), number(message.reconsume)],
];

/** Sends a copy, with the bytes of the body: what is shown of them may be digits, escaped or cut. */
function AgainDialog({ message }) {
  const [start, setStart] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    const stop = new AbortController();
    get(at`messages/${message.offset_id}/body`, { topic: message.topic }, { bytes: true, signal: stop.signal }).then(
      (data) => setStart(copyOf(message, data)),
      (refusal) => refusal.name !== "AbortError" && setError(refusal),
    );
    return () => stop.abort();
  }, [message.offset_id]);
  if (error) return html`<${Problem} error=${error} />`;
  return start && html`<${ProduceDialog} topic=${message.topic} queues=${[]} start=${start} />`;
}

const copyOf = (message, data) => ({
  ...written(data),
  tag: message.tag ?? "",
  keys: message.keys.join(" "),
  properties: Object.entries(message.properties).map(([name, value]) => `${name}=${value}`).join("\n"),
});

/** Bytes for a text field: as text, or as base64 where a text field would change them. */
function written(data) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
    if (!/[\x00-\x08\x0b-\x1f\x7f]/.test(text)) return { body: text, encoding: "text" };
  } catch {
    // not UTF-8
  }
  return { body: btoa(Array.from(new Uint8Array(data), (byte) => String.fromCharCode(byte)).join("")), encoding: "base64" };
}

function Properties({ of, soft }) {
  const names = Object.keys(of ?? {});
  if (!names.length) return soft ? null : html`<p class="soft">${t("message.no_properties")}</p>`;
  return html`<${Pairs} pairs=${names.map((name) => [name, html`<code class=${soft ? "soft" : ""}>${of[name]}</code>`])} />`;
}

function Same({ id, messages }) {
  return html`<section class="panel"><h2>${t("message.same")}</h2><div class="content">
    <ul>${messages.map((one) => html`<li key=${one.offset_id}><a href=${href(["messages", id], { topic: one.topic, at: one.offset_id })}>${one.topic} <code>${placeOf(one)}</code> ${time(one.stored_ms)}</a></li>`)}</ul>
  </div></section>`;
}

const STATES = { consumed: "good", not_yet: "wait", retrying: "bad", dead: "bad", not_subscribed: "plain", held: "wait", unknown: "wait" };

export function Journey({ journey }) {
  const { sent, held, groups, message } = journey;
  return html`<div class="journey">
    <div class="way">
      <div class="way-who">${t("journey.producer")}<span class="soft">${sent?.by ?? message?.born_host}</span></div>
      <ol class="steps">
        ${sent && html`<${Step} title=${t("journey.sent")} lines=${[time(sent.at_ms), sent.cost_ms === null ? null : t("journey.cost", { ms: number(sent.cost_ms) })]} source=${sent.source} tone="good" />`}
        ${held && html`<${Step} title=${t(`journey.held.${held.kind}`)} lines=${[held.due_ms ? t("journey.due", { time: time(held.due_ms) }) : null]} tone="wait" />`}
        ${message && html`<${Step} title=${t("journey.stored")} lines=${[time(message.stored_ms), placeOf(message)]} tone="good" />`}
      </ol>
    </div>
    ${groups.map((group) => html`<${GroupWay} key=${group.group} group=${group} />`)}
    ${!groups.length && html`<div class="empty">${t("journey.no_groups")}</div>`}
  </div>`;
}

function GroupWay({ group }) {
  const trying = group.state === "retrying" || group.state === "held" || group.state === "not_yet";
  return html`<div class="way">
    <div class="way-who"><a href=${href(["groups", group.group])}>${group.group}</a><span class="soft">${t(`journey.state.${group.state}`)}</span></div>
    <ol class="steps">
      ${group.attempts.map((attempt) => {
        const name = attempt.ok === true ? t("journey.consumed") : attempt.ok === false ? t("journey.failed", { n: attempt.n }) : t("journey.tried", { n: attempt.n });
        const lines = [attempt.at_ms && time(attempt.at_ms), attempt.host, attempt.cost_ms === null ? null : t("journey.cost", { ms: number(attempt.cost_ms) }), attempt.level === null ? null : t("journey.level", { n: attempt.level })];
        return html`<${Step} key=${attempt.n} title=${name} lines=${lines} source=${attempt.source} tone=${attempt.ok === true ? "good" : attempt.ok === false ? "bad" : "wait"} />`;
      })}
      ${!group.attempts.length && html`<${Step} title=${t(`journey.state.${group.state}`)} lines=${[language.value === "en" ? group.text : group.before && t("journey.before", { n: number(group.before) })]} tone=${STATES[group.state] ?? "wait"} />`}
      ${group.next && html`<${Step} title=${t("journey.next")} lines=${[time(group.next.at_ms), t("journey.level", { n: group.next.level }), group.left === null ? null : t("journey.left", { n: group.left })]} tone="wait" />`}
      ${group.dead && html`<${Step} title=${t("journey.dead")} lines=${[time(group.dead.at_ms), placeOf(group.dead)]} tone="bad" link=${href(["dead", group.group])} />`}
      ${group.redriven?.map((one) => html`<${Step} key=${one.id} title=${t("journey.redriven")} lines=${[time(one.at_ms), one.to]} tone="good" />`)}
      ${trying && html`<li class="step"><${Do} name="retry" role="operate" more=${{ group: group.group }} tone="small">${t("journey.try_now")}</${Do}></li>`}
    </ol>
  </div>`;
}

const SIGNS = { good: "check", bad: "close", wait: "delayed" };

const Step = ({ title, lines, tone, source, link }) => html`<li class="step">
  <div class=${`step-box ${tone}`}>
    <b>${SIGNS[tone] && html`<${Icon} name=${SIGNS[tone]} size=${13} />`}${link ? html`<a href=${link}>${title}</a>` : title}</b>
    ${lines.filter(Boolean).map((line, index) => html`<span key=${index} class="number">${line}</span>`)}
    ${source === "trace" && html`<span>${t("journey.by_trace")}</span>`}
  </div>
</li>`;

function RetryDialog({ id, topic, group, done }) {
  return html`<${ChangeDialog}
    title=${t("journey.try_now")}
    action=${t("journey.try_now")}
    request=${{ method: "POST", path: at`journey/${id}/retry`, body: { topic, group, client: null } }}
    said=${t("journey.tried_now", { group })}
    done=${done}
    close=${() => amend({ do: undefined, group: undefined })}
  ><p>${t("journey.try_now.what", { group })}</p></${ChangeDialog}>`;
}
