// Messages as they arrive. Nothing is committed, and no group is used.

import { Button, Icon, Problem } from "../parts/basic.js";
import { FilterLine } from "../parts/filter.js";
import { MessageTable } from "../parts/messages.js";
import { useLive } from "../lib/live.js";
import { place } from "../lib/router.js";
import { hindrance } from "../lib/session.js";
import { get } from "../lib/api.js";
import { useLater } from "../lib/use.js";
import { html, useEffect, useState } from "../lib/ui.js";
import { number, t } from "../lib/words.js";

const KEPT = 500;

export function Tail({ topic }) {
  const asked = useLater(place.value.query.q ?? "", 400);
  const [paused, setPaused] = useState(false);
  const [problem, setProblem] = useState(null);
  const [filter, setFilter] = useState(null); // the last one that the server accepted
  const [state, setState] = useState({ messages: [], seen: 0, matched: 0, dropped: 0 });
  const denied = hindrance("bodies");
  useEffect(() => {
    let gone = false;
    const accept = () => {
      if (gone) return;
      setProblem(null);
      setFilter(asked);
    };
    if (!asked) accept();
    else get("filter", { q: asked }).then(accept, (error) => !gone && setProblem(error));
    return () => {
      gone = true;
    };
  }, [asked]);
  const watched = denied || paused || filter === null ? null : `tail:${topic}`;
  useLive(
    watched,
    (facts, error) => {
      if (error) {
        setProblem(Object.assign(new Error(error.text), error));
        return;
      }
      setState((was) => ({
        messages: [...facts.messages].reverse().concat(was.messages).slice(0, KEPT),
        seen: was.seen + Number(facts.seen),
        matched: was.matched + Number(facts.matched),
        dropped: was.dropped + Number(facts.dropped),
      }));
    },
    { q: filter ?? "" },
  );
  if (denied) return html`<div class="empty">${denied}</div>`;
  return html`
    <${FilterLine} query=${place.value.query} problem=${problem} spans=${false}>
      <span class="spring"></span>
      <${Button} onClick=${() => setPaused(!paused)} aria-pressed=${paused}><${Icon} name=${paused ? "play" : "pause"} size=${14} />${paused ? t("tail.go_on") : t("tail.pause")}</${Button}>
      <${Button} tone="bare" onClick=${() => setState({ messages: [], seen: 0, matched: 0, dropped: 0 })}>${t("tail.clear")}</${Button}>
    </${FilterLine}>
    ${problem && problem.code !== "bad_filter" && html`<${Problem} error=${problem} />`}
    ${state.dropped > 0 && html`<p class="note warn" role="status">${t("tail.dropped", { n: number(state.dropped) })}</p>`}
    <section class="panel">
      <${MessageTable} label=${t("topic.tab.live")} messages=${state.messages} empty=${paused ? t("tail.paused") : t("tail.waiting")} />
    </section>
    <div class="pager soft">${t("tail.figures", { shown: number(state.messages.length), matched: number(state.matched), seen: number(state.seen) })}</div>
  `;
}
