// The dialog that sends a message.

import { Check, Field, Select } from "./basic.js";
import { ChangeDialog, closeDialog } from "./dialog.js";
import { say } from "./toasts.js";
import { messageLink } from "./messages.js";
import { at } from "../lib/api.js";
import { html, useState } from "../lib/ui.js";
import { t } from "../lib/words.js";
import { visit } from "../lib/router.js";

const EMPTY = { body: "", encoding: "text", tag: "", keys: "", properties: "", ordering_key: "", delay: "", queue: "" };

/** Lines of `name=value` as an object. */
export function pairs(text) {
  const found = {};
  for (const line of text.split("\n")) {
    const cut = line.indexOf("=");
    if (cut > 0) found[line.slice(0, cut).trim()] = line.slice(cut + 1).trim();
  }
  return found;
}

export function ProduceDialog({ topic, queues, start = {} }) {
  const [form, setForm] = useState({ ...EMPTY, ...start });
  const [stay, setStay] = useState(false);
  const set = (name) => (value) => setForm({ ...form, [name]: value?.target ? value.target.value : value });
  const [broker, queue] = form.queue ? form.queue.split(" ") : [null, null];
  const body = {
    body: form.body,
    encoding: form.encoding,
    tag: form.tag.trim() || null,
    keys: form.keys.split(/\s+/).filter(Boolean),
    properties: pairs(form.properties),
    ordering_key: form.ordering_key.trim() || null,
    delay_ms: form.delay ? Math.round(Number(form.delay) * 1000) : null,
    deliver_at_ms: null,
    broker,
    queue: queue === null ? null : Number(queue),
  };
  const done = ({ done: result }) => {
    say(t("produce.sent", { place: `${result.broker}:${result.queue}@${result.offset}` }));
    if (!stay) visit(messageLink({ id: result.id, offset_id: result.offset_id, topic }));
  };
  return html`<${ChangeDialog} wide title=${t("produce.title", { topic })} action=${t("produce.send")} said=${null} request=${{ method: "POST", path: at`topics/${topic}/messages`, body }} done=${done} keep=${stay} close=${closeDialog}>
    <${Field} label=${t("body")} wide><textarea name="body" rows="8" value=${form.body} onInput=${set("body")} autofocus spellcheck=${false}></textarea></${Field}>
    <div class="row">
      <${Field} label=${t("produce.encoding")}><${Select} name="encoding" value=${form.encoding} onChange=${set("encoding")} options=${[["text", t("produce.text")], ["base64", "base64"]]} /></${Field}>
      <${Field} label=${t("message.tag")}><input type="text" name="tag" value=${form.tag} onInput=${set("tag")} autocomplete="off" /></${Field}>
      <${Field} label=${t("message.keys")} hint=${t("produce.keys.hint")}><input type="text" name="keys" value=${form.keys} onInput=${set("keys")} autocomplete="off" /></${Field}>
    </div>
    <div class="row">
      <${Field} label=${t("produce.ordering_key")}><input type="text" name="ordering_key" value=${form.ordering_key} onInput=${set("ordering_key")} autocomplete="off" /></${Field}>
      <${Field} label=${t("produce.delay")}><input type="number" name="delay" min="0" step="any" value=${form.delay} onInput=${set("delay")} /></${Field}>
      <${Field} label=${t("queue")}><${Select} name="queue" value=${form.queue} onChange=${set("queue")} options=${[["", t("produce.any_queue")], ...queues.map((one) => [`${one.broker} ${one.queue}`, `${one.broker}:${one.queue}`])]} /></${Field}>
    </div>
    <${Field} label=${t("message.properties")} hint=${t("produce.properties.hint")} wide><textarea name="properties" rows="2" value=${form.properties} onInput=${set("properties")} spellcheck=${false}></textarea></${Field}>
    <${Check} label=${t("produce.stay")} checked=${stay} onChange=${setStay} />
  </${ChangeDialog}>`;
}
