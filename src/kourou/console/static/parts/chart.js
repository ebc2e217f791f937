// Curves with axes, drawn by uPlot, which is loaded when the first one is on screen.

import { isDark, look } from "../lib/look.js";
import { html, useEffect, useRef } from "../lib/ui.js";
import { number, short, span, t } from "../lib/words.js";

let library = null;

const load = () => (library ??= import("../vendor/uplot.js").then((module) => module.default));

const tone = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const COLOURS = ["accent", "second", "warn"];
const UNITS = { number: short, ms: span, ratio: (value) => (value === null ? "–" : `${Math.round(value * 100)} %`) };

/** `history` is {times, series: {name: values}}; `names` chooses series, as [name, title]. */
export function Chart({ history, names, title, unit = "number", height = 150 }) {
  const frame = useRef(null);
  const plot = useRef(null);
  const data = history && [history.times, ...names.map(([name]) => history.series[name] ?? history.times.map(() => null))];
  const latest = useRef(data);
  latest.current = data;
  const drawn = (data?.[0]?.length ?? 0) > 1;
  useEffect(() => {
    if (!drawn) return undefined;
    let gone = false;
    const element = frame.current;
    load().then((UPlot) => {
      if (!gone) plot.current = new UPlot(options(element, names, unit, height), latest.current, element);
    });
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      gone = true;
      observer.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [drawn, names.map(([name]) => name).join(), look.value]);
  useEffect(() => {
    if (data) plot.current?.setData(data);
  }, [history]);
  const last = names.map(([name, label]) => `${label} ${format(unit, lastOf(history?.series?.[name]))}`).join(", ");
  return html`<figure class="chart">
    <figcaption>${title}<span class="legend">${names.map(
      ([name, label], index) => html`<span key=${name} class=${`legend-${index}`}>${label} <b class="number">${format(unit, lastOf(history?.series?.[name]))}</b></span>`,
    )}</span></figcaption>
    ${drawn ? html`<div ref=${frame} class="chart-area" role="img" aria-label=${`${title}: ${last}`}></div>` : html`<div class="chart-area empty">${t("chart.empty")}</div>`}
  </figure>`;
}

const lastOf = (values) => (values?.length ? values[values.length - 1] : null);
const format = (unit, value) => (value === null || value === undefined ? "–" : UNITS[unit](value));

function options(element, names, unit, height) {
  const line = tone("line");
  const axis = { stroke: tone("soft"), grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1, size: 4 }, font: "11px system-ui, sans-serif" };
  return {
    width: element.clientWidth,
    height,
    legend: { show: false },
    cursor: { y: false, drag: { x: true, y: false } },
    scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.15 : 1] } },
    axes: [
      { ...axis, size: 28, values: [[3600, "{HH}:{mm}"], [60, "{HH}:{mm}"], [1, "{HH}:{mm}:{ss}"]].map(([size, text]) => [size, text, null, null, null, null, null, null, 1]) },
      { ...axis, size: unit === "ms" ? 76 : 56, values: (_, ticks) => ticks.map((value) => (unit === "number" && value >= 1000 ? short(value) : unit === "number" ? number(value) : format(unit, value))) },
    ],
    series: [
      {},
      ...names.map(([name, label], index) => ({
        label,
        stroke: tone(COLOURS[index]),
        width: 1.5,
        fill: names.length === 1 ? `${tone(COLOURS[index])}${isDark() ? "26" : "1f"}` : undefined,
        points: { show: false },
        spanGaps: false,
        key: name,
      })),
    ],
  };
}
