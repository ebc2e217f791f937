// Small parts that all screens use.

import { Refusal } from "../lib/api.js";
import { html, useEffect, useRef, useState } from "../lib/ui.js";
import { known, t } from "../lib/words.js";

const PATHS = {
  overview: "M4 4h7v7H4zM13 4h7v4h-7zM13 10h7v10h-7zM4 13h7v7H4z",
  topics: "M12 3l9 5-9 5-9-5zM3 12l9 5 9-5M3 16l9 5 9-5",
  groups: "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM2.5 20c0-3.5 3-6 6.5-6s6.5 2.5 6.5 6M16 4.5a3.5 3.5 0 0 1 0 6.5M18 14.5c2 .8 3.5 2.800 3.5 5.5",
  messages: "M3 6h18v12H3zM3 7l9 7 9-7",
  dead: "M4 4h16v5H4zM6 9v11h12V9M10 13l4 4M14 13l-4 4",
  delayed: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5l3.5 2",
  brokers: "M3 4h18v7H3zM3 13h18v7H3zM7 7.5h.01M7 16.5h.01M11 7.5h6M11 16.5h6",
  clients: "M9 3v5M15 3v5M6 8h12v3a6 6 0 0 1-12 0zM12 17v4",
  access: "M15 9a1.5 1.5 0 1 0 0-.01M10.5 11.5L3 19v2h4v-2h2v-2h2l2.5-2.5A6 6 0 1 0 10.5 11.5z",
  audit: "M6 3h12v18H6zM9 8h6M9 12h6M9 16h4",
  search: "M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM15.5 15.5L21 21",
  auto: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 3v18M12 8h7.5M12 12h9M12 16h7.5",
  light: "M12 16.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM12 2v2.5M12 19.5V22M2 12h2.5M19.5 12H22M5 5l1.800 1.800M17.200 17.200L19 19M5 19l1.800-1.800M17.200 6.800L19 5",
  dark: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z",
  copy: "M8 8h12v12H8zM16 8V4H4v12h4",
  check: "M4 12.5l5 5L20 6.5",
  close: "M5 5l14 14M19 5L5 19",
  plus: "M12 5v14M5 12h14",
  download: "M12 4v11M7 11l5 5 5-5M4 20h16",
  refresh: "M20 11a8 8 0 1 0-.6 4M20 4v7h-7",
  pause: "M8 5v14M16 5v14",
  play: "M7 4l13 8-13 8z",
  warn: "M12 3.5L22 20H2zM12 10v4.5M12 17.300h.01",
  bad: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v6M12 16.300h.01",
  info: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 11v6M12 7.700h.01",
  right: "M9 5l7 7-7 7",
  out: "M10 4H4v16h6M14 8l4 4-4 4M8 12h10",
};

export const Icon = ({ name, size = 16 }) => html`
  <svg class="icon" width=${size} height=${size} viewBox="0 0 24 24" aria-hidden="true" focusable="false">
    <path d=${PATHS[name]} />
  </svg>
`;

/** The sign of Kourou. */
export const Mark = ({ size, ...rest }) => html`
  <svg width=${size} height=${size} viewBox="0 0 32 32" aria-hidden="true" ...${rest}><rect width="32" height="32" rx="7" /><path d="M10 6v20M10 17L21 6M14.5 12.5L22 26" /></svg>
`;

export const Badge = ({ tone = "plain", children, title }) =>
  html`<span class=${`badge ${tone}`} title=${title}>${children}</span>`;

/** A link that looks as a button. */
export const ButtonLink = ({ href, children, tone = "", ...rest }) =>
  html`<a class=${`button ${tone}`} href=${href} ...${rest}>${children}</a>`;

export const Button = ({ children, tone = "", type = "button", ...rest }) =>
  html`<button class=${`button ${tone}`} type=${type} ...${rest}>${children}</button>`;

export const IconButton = ({ icon, label, ...rest }) =>
  html`<button class="button bare" type="button" aria-label=${label} title=${label} ...${rest}><${Icon} name=${icon} /></button>`;

/** Copies a text, and says so for a moment. */
export function Copy({ text, label }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await put(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  const name = done ? t("copied") : label ?? t("copy");
  return html`<button class="button bare small" type="button" onClick=${copy} aria-label=${name} title=${name}>
    <${Icon} name=${done ? "check" : "copy"} size=${14} />
  </button>`;
}

async function put(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // without https the clipboard is closed to pages: the old way
    const field = document.createElement("textarea");
    field.value = text;
    (document.querySelector("dialog[open]") ?? document.body).append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

/** The command that does the same, as the server says it. */
export const CommandLine = ({ line }) =>
  line
    ? html`<div class="command">
        <span class="prompt" aria-hidden="true">$</span><code>${line}</code><${Copy} text=${line} label=${t("copy.command")} />
      </div>`
    : null;

/** What a refusal says: in the reader's language if the code is known, then the server's text and remedy. */
/** An error, or the brokers that are missing in an answer. */
export function Problem({ error, retry, of }) {
  if (!error)
    return of?.without
      ? html`<div class="problem warn" role="status"><${Icon} name="warn" /><div>${t("without", { brokers: of.without.join(", ") })}</div></div>`
      : null;
  const code = error instanceof Refusal ? error.code : "internal";
  const title = known(`error.${code}`) ? t(`error.${code}`) : null;
  return html`<div class="problem bad" role="alert">
    <${Icon} name="bad" />
    <div>
      ${title && html`<strong>${title}</strong>`}
      <p>${error.message}</p>
      ${error.remedy && html`<p class="soft">${error.remedy}</p>`}
    </div>
    ${retry && html`<${Button} onClick=${retry}>${t("retry")}</${Button}>`}
  </div>`;
}

export const Empty = ({ children }) => html`<div class="empty">${children}</div>`;

export const Loading = () => html`<div class="loading" role="status">${t("loading")}</div>`;

export const Figure = ({ label, value, sub, tone = "", href, children }) => html`
  <div class=${`figure ${tone}`}>
    <div class="figure-label">${href ? html`<a href=${href}>${label}</a>` : label}</div>
    <div class="figure-value">${value}</div>
    ${sub && html`<div class="figure-sub">${sub}</div>`} ${children}
  </div>
`;

/** A share of 1 as a bar. */
export function Bar({ ratio, label }) {
  if (ratio === null || ratio === undefined) return html`<span class="soft">–</span>`;
  const share = Math.max(0, Math.min(1, ratio));
  const tone = share > 0.9 ? "bad" : share > 0.75 ? "warn" : "";
  return html`<span class="bar-line">
    <svg class=${`bar ${tone}`} viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
      <rect class="bar-back" width="100" height="8" rx="2" /><rect class="bar-fill" width=${share * 100} height="8" rx="2" />
    </svg>
    <span class="number">${label ?? `${Math.round(share * 100)} %`}</span>
  </span>`;
}

/** A small curve without axes. */
export function Spark({ values, width = 120, height = 28, label }) {
  const known = (values ?? []).filter((value) => value !== null && value !== undefined);
  if (known.length < 2) return html`<svg class="spark" width=${width} height=${height} aria-hidden="true"></svg>`;
  const top = Math.max(...known) || 1;
  const step = width / (values.length - 1);
  const points = values.map((value, index) =>
    value === null || value === undefined ? null : [index * step, height - 2 - (value / top) * (height - 4)],
  );
  const line = points.map((point, index) => point && `${index && points[index - 1] ? "L" : "M"}${point[0].toFixed(1)} ${point[1].toFixed(1)}`);
  return html`<svg class="spark" height=${height} viewBox=${`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label=${label ?? ""}>
    <path d=${line.filter(Boolean).join("")} />
  </svg>`;
}

/** A label with its control. */
export const Field = ({ label, hint, children, wide }) => html`
  <label class=${wide ? "field wide" : "field"}>
    <span class="field-label">${label}</span>
    ${children} ${hint && html`<span class="field-hint">${hint}</span>`}
  </label>
`;

export const Check = ({ label, checked, onChange, disabled }) => html`
  <label class="check">
    <input type="checkbox" checked=${checked} disabled=${disabled} onChange=${(event) => onChange(event.target.checked)} />
    <span>${label}</span>
  </label>
`;

export const Select = ({ value, options, onChange, ...rest }) => html`
  <select value=${value} onChange=${(event) => onChange(event.target.value)} ...${rest}>
    ${options.map(([name, label]) => html`<option key=${name} value=${name} selected=${name === value}>${label}</option>`)}
  </select>
`;

/** Tabs are links: each has its address. */
export const Tabs = ({ tabs, at, label }) => html`
  <nav class="tabs" aria-label=${label}>
    ${tabs.map(
      ({ name, title, href, count }) => html`<a key=${name} href=${href} aria-current=${name === at ? "page" : undefined}>
        ${title}${count !== undefined && count !== null && html`<span class="count">${count}</span>`}
      </a>`,
    )}
  </nav>
`;

/** The head of a page: its name, what it is, its actions. */
export function Head({ title, kind, facts = [], children }) {
  useEffect(() => {
    document.title = `${title} – Kourou`;
  }, [title]);
  return html`<header class="head">
    <div class="head-text">
      ${kind && html`<div class="head-kind">${kind}</div>`}
      <h1>${title}</h1>
      ${facts.filter(Boolean).length > 0 && html`<div class="facts">${facts.filter(Boolean).map((fact, index) => html`<span key=${index}>${fact}</span>`)}</div>`}
    </div>
    <div class="head-actions">${children}</div>
  </header>`;
}

/** Pairs of a name and a value. */
export const Pairs = ({ pairs }) => html`
  <dl class="pairs">
    ${pairs.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>
`;

/** Calls back when Enter is pressed or the field is left. */
export function Search({ value, onInput, placeholder, label, wide, invalid, describedby }) {
  const field = useRef(null);
  return html`<span class=${wide ? "search wide" : "search"}>
    <${Icon} name="search" />
    <input
      ref=${field}
      type="search"
      data-search
      value=${value}
      placeholder=${placeholder}
      aria-label=${label ?? placeholder}
      aria-invalid=${invalid ? "true" : undefined}
      aria-describedby=${describedby}
      autocomplete="off"
      spellcheck=${false}
      onInput=${(event) => onInput(event.target.value)}
      onKeyDown=${(event) => event.key === "Escape" && field.current.blur()}
    />
    <kbd aria-hidden="true">/</kbd>
  </span>`;
}
