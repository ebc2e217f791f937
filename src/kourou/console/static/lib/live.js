// One stream of events for this tab. Components say what they watch; the stream is opened again when that changes.

import { signedIn } from "./api.js";
import { session } from "./session.js";
import { signal, useEffect, useRef, useState } from "./ui.js";
import { useAnswer } from "./use.js";

const SETTLE_MS = 60; // components of one page mount together: one stream for all of them
const WATCHES = 8; // as many as the server takes
const AGAIN_MS = 15000;

/** "on", "off" (nothing is watched), "waiting" (the stream broke and is tried again), "ended". */
export const stream = signal("off");

const listeners = new Map(); // what is watched -> the functions that take its events
const extras = new Map(); // further values of the query: the filter of the tail, the rows on screen
let source = null;
let opened = "";
let timer = 0;

function address() {
  const names = [...listeners.keys()].slice(0, WATCHES);
  if (!names.length) return "";
  const query = new URLSearchParams([...extras].filter(([, value]) => value)).toString();
  return `/events?watch=${names.map(encodeURIComponent).join(",")}${query ? `&${query}` : ""}`;
}

function settle() {
  const target = address();
  if (target === opened) return;
  source?.close();
  source = null;
  opened = target;
  stream.value = target ? "waiting" : "off";
  if (target) open(target);
}

function open(target) {
  source = new EventSource(target);
  source.addEventListener("hello", () => {
    stream.value = "on";
  });
  source.addEventListener("end", (event) => {
    const { code } = parsed(event);
    source?.close();
    source = null;
    opened = ""; // a page that watches again opens again
    stream.value = "ended";
    if (code === "not_signed_in") signedIn.value = false;
  });
  const mine = source;
  source.onerror = (event) => {
    if (event.data) return; // an error that the server reports: see below
    stream.value = "waiting";
    if (mine.readyState !== EventSource.CLOSED || mine !== source) return;
    stream.value = "ended"; // the server refused it: asked again later, and the pages ask for their figures meanwhile
    setTimeout(() => {
      if (mine !== source) return;
      opened = "";
      settle();
    }, AGAIN_MS);
  };
  source.addEventListener("error", (event) => {
    if (!event.data) return;
    const problem = parsed(event);
    for (const take of listeners.get(problem.watch) ?? []) take(null, problem);
  });
  for (const name of listeners.keys()) {
    const event = name.startsWith("tail:") ? "tail" : name;
    source.addEventListener(event, (message) => {
      for (const take of listeners.get(name) ?? []) take(parsed(message), null);
    });
  }
}

function parsed(event) {
  try {
    return JSON.parse(event.data);
  } catch {
    return {};
  }
}

function soon() {
  clearTimeout(timer);
  timer = setTimeout(settle, SETTLE_MS);
}

function watch(name, take) {
  const takers = listeners.get(name) ?? new Set();
  takers.add(take);
  listeners.set(name, takers);
  soon();
  return () => {
    takers.delete(take);
    if (!takers.size) listeners.delete(name);
    soon();
  };
}

/** Calls `take(facts, problem)` for the events of a name, while the component is on screen. Null watches nothing. */
export function useLive(name, take, extra = {}) {
  const latest = useRef(take);
  latest.current = take;
  const more = JSON.stringify(extra);
  useEffect(() => {
    if (name === null) return undefined;
    const entries = Object.entries(JSON.parse(more));
    for (const [key, value] of entries) extras.set(key, value);
    const stop = watch(name, (...values) => latest.current(...values));
    return () => {
      for (const [key] of entries) extras.delete(key);
      stop();
    };
  }, [name, more]);
}

/** The answer to a GET, then the events of `name` as they come; without a stream it is asked again and again. */
export function useFacts(path, name) {
  const answer = useAnswer(path, {}, { every: stream.value === "on" ? 0 : Math.max(2000, session.value.refresh_ms) });
  const [live, setLive] = useState(null);
  useLive(name, (facts) => facts && setLive(facts));
  const data = live && (!answer.data || live.at >= answer.data.at) ? live : answer.data;
  return { ...answer, data };
}
