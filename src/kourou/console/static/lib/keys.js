// Keys that work on every page. Rows are links with data-row: j and k move the focus, Enter is the link's own.

import { go, place, amend } from "./router.js";
import { signal } from "./ui.js";

export const palette = signal(false);
export const help = signal(false);

const PLACES = {
  o: [],
  t: ["topics"],
  g: ["groups"],
  m: ["messages"],
  d: ["dead"],
  y: ["delayed"],
  b: ["brokers"],
  c: ["clients"],
  u: ["access"],
  a: ["audit"],
};
export const SEQUENCES = Object.entries(PLACES);

const SEQUENCE_MS = 1200;
let waiting = 0;

function typing(target) {
  return target.closest?.("input, textarea, select, [contenteditable]") !== null;
}

function step(by) {
  const rows = [...document.querySelectorAll("main [data-row]")];
  if (!rows.length) return;
  const at = rows.findIndex((row) => row === document.activeElement || row.closest("tr")?.contains(document.activeElement));
  const next = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by));
  rows[next].focus();
  rows[next].scrollIntoView({ block: "nearest" });
}

function pressed(event) {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    palette.value = !palette.value;
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  const sequence = performance.now() - waiting < SEQUENCE_MS;
  waiting = 0;
  if (sequence && PLACES[event.key]) {
    event.preventDefault();
    go(PLACES[event.key]);
    return;
  }
  const actions = {
    g: () => {
      waiting = performance.now();
    },
    "/": () => {
      const field = document.querySelector("main [data-search]");
      if (field) field.focus();
      else palette.value = true;
    },
    "?": () => {
      help.value = true;
    },
    j: () => step(1),
    k: () => step(-1),
    Escape: () => {
      if (place.value.query.do) amend({ do: undefined });
    },
  };
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

export const listenToKeys = () => document.addEventListener("keydown", pressed);
