// Finds messages by id or by key.

import { Button, Field, Head, Problem, Select } from "../parts/basic.js";
import { MessageTable } from "../parts/messages.js";
import { at } from "../lib/api.js";
import { amend, go, place } from "../lib/router.js";
import { useAnswer } from "../lib/use.js";
import { html, useState } from "../lib/ui.js";
import { t } from "../lib/words.js";

export function Find() {
  const { topic = "", key = "" } = place.value.query;
  const [form, setForm] = useState({ by: key ? "key" : "id", topic, text: key });
  const set = (name) => (value) => setForm({ ...form, [name]: value?.target ? value.target.value : value });
  const topics = useAnswer("topics", { kind: "all", limit: 500 });
  const found = useAnswer(topic && key ? at`topics/${topic}/messages` : null, { key });
  const submit = (event) => {
    event.preventDefault();
    const text = form.text.trim();
    if (!text) return;
    if (form.by === "id") go(["messages", text], { topic: form.topic.trim() });
    else amend({ topic: form.topic.trim(), key: text }, { push: true });
  };
  return html`
    <${Head} title=${t("find.title")} />
    <form class="panel" onSubmit=${submit}>
      <div class="content">
        <div class="row">
          <${Field} label=${t("find.by")}><${Select} name="by" value=${form.by} onChange=${set("by")} options=${[["id", t("find.id")], ["key", t("find.key")]]} /></${Field}>
          <${Field} label=${form.by === "id" ? t("find.id") : t("find.key")}><input type="text" name="text" data-search required value=${form.text} onInput=${set("text")} autocomplete="off" spellcheck=${false} /></${Field}>
          <${Field} label=${form.by === "id" ? t("find.topic_if_known") : t("topic")}>
            <input type="text" name="topic" list="topics" required=${form.by === "key"} value=${form.topic} onInput=${set("topic")} autocomplete="off" spellcheck=${false} />
            <datalist id="topics">${(topics.data?.topics ?? []).map((one) => html`<option key=${one.name} value=${one.name} />`)}</datalist>
          </${Field}>
        </div>
        <div><${Button} type="submit" tone="primary">${t("find.do")}</${Button}></div>
        <p class="soft">${form.by === "id" ? t("find.id.hint") : t("find.key.hint")}</p>
      </div>
    </form>
    <${Problem} error=${found.error} retry=${found.reload} />
    ${found.data && html`<section class="panel"><${MessageTable} label=${t("find.found")} messages=${found.data.messages} empty=${t("find.none")} /></section>`}
  `;
}
