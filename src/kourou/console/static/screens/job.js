// A redrive as it runs: how far, what failed and why, and a button that stops it.

import { Badge, Button, Loading, Pairs, Problem } from "../parts/basic.js";
import { Dialog } from "../parts/dialog.js";
import { Table } from "../parts/table.js";
import { at, remove } from "../lib/api.js";
import { useLive } from "../lib/live.js";
import { amend } from "../lib/router.js";
import { hindrance } from "../lib/session.js";
import { useAction, useAnswer } from "../lib/use.js";
import { html, useState } from "../lib/ui.js";
import { number, t, time } from "../lib/words.js";

const TONES = { running: "accent", done: "good", stopped: "warn", failed: "bad" };

const SHOWN = 200; // of the newest results

export const JobState = ({ state }) => html`<${Badge} tone=${TONES[state]}>${t(`job.state.${state}`)}</${Badge}>`;

export function JobDialog({ id }) {
  const first = useAnswer(at`jobs/${id}`, {}, { every: 2000 });
  const [live, setLive] = useState(null);
  useLive(`job:${id}`, (facts) => facts && setLive(facts));
  const newer = live && (!first.data || live.sent + live.failed >= first.data.sent + first.data.failed) && first.data?.state !== "stopped";
  const job = newer ? live : first.data;
  const stop = useAction(() => remove(at`jobs/${id}`));
  const columns = [
    { key: "place", title: t("message.place"), cell: (row) => html`<code>${row.broker}:${row.queue}@${row.offset}</code>` },
    { key: "id", title: t("message.id"), cell: (row) => html`<code>${row.id}</code>` },
    { key: "reason", title: t("job.reason"), grow: true, cell: (row) => row.reason },
  ];
  const results = [
    { key: "place", title: t("message.place"), cell: (row) => html`<code>${row.broker}:${row.queue}@${row.offset}</code>` },
    { key: "id", title: t("message.id"), cell: (row) => html`<code>${row.id}</code>` },
    { key: "ok", title: t("audit.result"), cell: (row) => html`<${Badge} tone=${row.ok ? "good" : "bad"}>${row.ok ? t("job.sent") : t("job.failed")}</${Badge}>` },
    { key: "to", title: t("job.target"), grow: true, cell: (row) => row.to || "–" },
  ];
  return html`<${Dialog} wide title=${t("job.title")} close=${() => amend({ job: undefined })}>
    <div class="dialog-body">
      <${Problem} error=${first.error ?? stop.error} />
      ${!job && first.loading && html`<${Loading} />`}
      ${job &&
      html`
        <progress class="progress" max=${Math.max(1, job.total)} value=${job.sent + job.failed + job.skipped} aria-label=${t("job.progress")}></progress>
        <${Pairs} pairs=${[
          [t("job.state"), html`<${JobState} state=${job.state} />`],
          [t("group.name"), job.group],
          [t("job.sent"), `${number(job.sent)} / ${number(job.total)}${job.is_least ? "+" : ""}`],
          [t("job.failed"), number(job.failed)],
          [t("job.skipped"), number(job.skipped)],
          [t("job.target"), job.target],
          [t("job.rate"), `${number(job.rate)}/s`],
          [t("job.started"), time(job.started_ms)],
          [t("job.ended"), time(job.ended_ms)],
        ]} />
        ${job.state === "failed" && html`<p class="note">${job.text}</p>`}
        ${job.failures.length > 0 && html`<${Table} label=${t("job.failures")} columns=${columns} rows=${job.failures} param="-" rowKey=${(row) => `${row.broker} ${row.queue} ${row.offset}`} />`}
        ${job.results.length > 0 && html`<h3>${t("job.results")}</h3><${Table} label=${t("job.results")} columns=${results} rows=${[...job.results].reverse().slice(0, SHOWN)} param="-" rowKey=${(row) => `${row.broker} ${row.queue} ${row.offset}`} />`}
        ${job.results.length > SHOWN && html`<p class="note">${t("job.results.newest", { n: SHOWN })}</p>`}
      `}
    </div>
    <footer>
      ${job?.state === "running" && html`<${Button} tone="danger" disabled=${stop.busy || hindrance("operate")} onClick=${async () => { await stop.run(); first.reload(); }}>${t("stop")}</${Button}>`}
      <${Button} onClick=${() => amend({ job: undefined })}>${t("close")}</${Button}>
    </footer>
  </${Dialog}>`;
}
