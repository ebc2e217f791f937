// The first page: problems first, then the cluster in figures, then its brokers.

import { ButtonLink, Figure, Head, Icon, Loading, Problem, Spark } from "../parts/basic.js";
import { BrokerTable } from "../parts/brokers.js";
import { Chart } from "../parts/chart.js";
import { useFacts } from "../lib/live.js";
import { ours } from "../lib/router.js";
import { html } from "../lib/ui.js";
import { bytes, known, number, short, span, t } from "../lib/words.js";

export function Overview() {
  const { data, error, loading, reload } = useFacts("overview", "overview");
  if (!data) return html`<${Head} title=${t("nav.overview")} /><${Problem} error=${error} retry=${reload} />${loading && html`<${Loading} />`}`;
  const up = data.brokers.filter((broker) => broker.ok).length;
  const history = data.history?.series ?? {};
  return html`
    <${Head} title=${t("nav.overview")} facts=${[data.clusters.join(", ")]} />
    <${Problems} problems=${data.problems} checked=${data.checked} of=${data.groups} />
    <section class="figures" aria-label=${t("overview.figures")}>
      <${Figure} href="/brokers" label=${t("nav.brokers")} value=${`${up}/${data.brokers.length}`} sub=${up === data.brokers.length ? t("overview.all_up") : t("overview.some_down")} tone=${up < data.brokers.length ? "bad" : ""} />
      <${Figure} href="/topics" label=${t("nav.topics")} value=${number(data.topics)} />
      <${Figure} href="/groups" label=${t("nav.groups")} value=${number(data.groups)} />
      <${Figure} label=${t("overview.in")} value=${html`${short(data.rates.in)}<small>/s</small>`}><${Spark} values=${history.in} label=${t("overview.in")} /></${Figure}>
      <${Figure} label=${t("overview.out")} value=${html`${short(data.rates.out)}<small>/s</small>`}><${Spark} values=${history.out} label=${t("overview.out")} /></${Figure}>
      <${Figure} label=${t("overview.disk")} value=${data.disk_ratio === null ? "–" : `${Math.round(data.disk_ratio * 100)} %`} sub=${data.disk_full_in_s ? t("overview.full_in", { span: span(data.disk_full_in_s * 1000) }) : ""} />
    </section>
    <section class="panel">
      <h2>${t("nav.brokers")}</h2>
      <${BrokerTable} brokers=${data.brokers} />
    </section>
    <section class="panel">
      <h2>${t("overview.last_hour")}</h2>
      <${Chart} history=${data.history} names=${[["in", t("overview.in")], ["out", t("overview.out")]]} title=${t("overview.rates")} />
    </section>
  `;
}

function Problems({ problems, checked, of }) {
  if (!problems.length && checked < of) return html`<div class="problem" role="status"><${Icon} name="search" /><div>${t("overview.checking", { n: checked, of })}</div></div>`;
  if (!problems.length) return html`<div class="problem good" role="status"><${Icon} name="check" /><div>${t("overview.no_problems")}</div></div>`;
  return html`<section class="problems" aria-label=${t("overview.problems")}>
    ${problems.map((problem) => {
      const bad = problem.severity === "bad";
      return html`<div key=${problem.code + problem.link + Object.values(problem.args)[0]} class=${`problem ${bad ? "bad" : "warn"}`}>
        <${Icon} name=${bad ? "bad" : "warn"} />
        <div>${problemText(problem)}</div>
        ${ours(problem.link) && html`<${ButtonLink} href=${problem.link}>${t(problem.action === "doctor" ? "problem.action.doctor" : "problem.action.look")}</${ButtonLink}>`}
      </div>`;
    })}
  </section>`;
}

/** In the reader's language if there are words for the code; else as the server says it. */
function problemText({ code, args, text }) {
  if (!known(`problem.${code}`)) return text;
  const values = { ...args };
  if ("ms" in values) values.ms = values.ms === null ? "–" : span(values.ms);
  if ("bytes" in values) values.bytes = bytes(values.bytes);
  if ("ratio" in values) values.ratio = `${Math.round(values.ratio * 100)} %`;
  for (const name of ["lag", "count"]) if (name in values) values[name] = number(values[name]);
  return t(`problem.${code}`, values);
}
