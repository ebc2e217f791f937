// The texts of the pages in the language of the reader: words/en.json and words/zh.json, which have equal keys.

import { signal } from "../vendor/signals.js";

export const LANGUAGES = ["en", "zh"];
export const language = signal("en");
const words = signal({});

async function load(name) {
  const answer = await fetch(new URL(`../words/${name}.json`, import.meta.url));
  return answer.json();
}

function preferred() {
  const kept = window.localStorage.getItem("kourou.language");
  if (LANGUAGES.includes(kept)) return kept;
  return (navigator.languages || [navigator.language]).some((tag, index) => index === 0 && /^zh/i.test(tag)) ? "zh" : "en";
}

export async function speak(name = preferred(), { keep = false } = {}) {
  words.value = await load(name);
  language.value = name;
  document.documentElement.lang = name === "zh" ? "zh-CN" : name;
  if (keep) window.localStorage.setItem("kourou.language", name);
}

/** The text of a key, with {values}. `one|many` has a form for n = 1. */
export function t(key, values = {}) {
  let text = words.value[key];
  if (text === undefined) return key;
  const forms = text.split("|");
  if (forms.length === 2) text = Number(values.n) === 1 ? forms[0] : forms[1];
  return filled(text, values);
}

const filled = (text, values) => text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? shown(values[name]) : whole));

/** Findings of the doctor, which the server says in English. */
export async function translated(findings, group) {
  if (language.value === "en") return findings;
  const texts = await load(`findings.${language.value}`);
  return findings.map((finding) => {
    const values = { ...finding.args, group };
    if ("ms" in values) values.ms = span(values.ms);
    const [text, remedy] = (texts[finding.code] ?? [finding.text, finding.remedy]).map((one) => filled(one, values));
    return { ...finding, text, remedy };
  });
}

/** Whether there is a text: names that come from a broker may have none. */
export const known = (key) => words.value[key] !== undefined;

const shown = (value) => (typeof value === "number" ? number(value) : String(value));

/** A whole number with separators. 64-bit numbers come as strings and are not rounded. */
export function number(value) {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value === "string" && /^-?\d+$/.test(value)) return BigInt(value).toLocaleString(language.value);
  const figure = Number(value);
  if (!Number.isFinite(figure)) return "–";
  return figure.toLocaleString(language.value, { maximumFractionDigits: Math.abs(figure) < 10 ? 2 : 0 });
}

/** A number in three digits: 8.2k, 41M. */
export function short(value) {
  if (value === null || value === undefined) return "–";
  const figure = Number(value);
  if (!Number.isFinite(figure)) return "–";
  const size = Math.abs(figure);
  if (size < 10) return String(Math.round(figure * 10) / 10);
  if (size < 1000) return String(Math.round(figure));
  const [unit, name] = size < 1e6 ? [1e3, "k"] : size < 1e9 ? [1e6, "M"] : size < 1e12 ? [1e9, "G"] : [1e12, "T"];
  const parts = figure / unit;
  return `${Math.abs(parts) < 10 ? Math.round(parts * 10) / 10 : Math.round(parts)}${name}`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const size = Number(value);
  if (size < 1024) return `${size} B`;
  const names = ["KiB", "MiB", "GiB", "TiB", "PiB"];
  let figure = size;
  let at = -1;
  while (figure >= 1024 && at < names.length - 1) {
    figure /= 1024;
    at += 1;
  }
  return `${figure < 10 ? figure.toFixed(1) : Math.round(figure)} ${names[at]}`;
}

/** A duration in its two largest units: 41 s, 2 min 5 s, 3 h, 9 d. */
export function span(ms) {
  if (ms === null || ms === undefined) return "–";
  const total = Math.abs(Number(ms));
  if (!Number.isFinite(total)) return "–";
  if (total < 1000) return `${Math.round(total)} ms`;
  const seconds = total / 1000;
  if (seconds < 10) return `${(Math.round(seconds * 10) / 10).toString()} s`;
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = units.findIndex(([size]) => seconds >= size);
  const [size, name] = units[first];
  const whole = Math.floor(seconds / size);
  const next = units[first + 1];
  const rest = next && whole < 10 ? Math.floor((seconds - whole * size) / next[0]) : 0;
  return rest ? `${whole} ${name} ${rest} ${next[1]}` : `${whole} ${name}`;
}

const two = (figure, width = 2) => String(figure).padStart(width, "0");

/** A time of this clock and zone: 12:01:33.120 today, with the date on other days. */
export function time(ms, { date = false, millis = true } = {}) {
  if (ms === null || ms === undefined || Number(ms) <= 0) return "–";
  const when = new Date(Number(ms));
  if (Number.isNaN(when.getTime())) return "–";
  const clock = `${two(when.getHours())}:${two(when.getMinutes())}:${two(when.getSeconds())}`;
  const text = millis ? `${clock}.${two(when.getMilliseconds(), 3)}` : clock;
  const today = new Date().toDateString() === when.toDateString();
  if (today && !date) return text;
  return `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())} ${text}`;
}

/** What is not printable becomes visible: control characters, and those that turn the direction of text. */
export function visible(text) {
  return String(text).replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g,
    (char) => `\\u${char.codePointAt(0).toString(16).padStart(4, "0")}`,
  );
}
