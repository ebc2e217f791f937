// Requests to the console's own server, and nothing else.

import { signal } from "../vendor/signals.js";

/** A refusal: `text` says what failed and why, `remedy` what to do. */
export class Refusal extends Error {
  constructor(status, { code = "unknown", text = "", remedy = "" } = {}) {
    super(text || `HTTP ${status}`);
    this.status = status;
    this.code = code;
    this.remedy = remedy;
  }
}

/** False once the server has said that there is no session. */
export const signedIn = signal(true);

export function url(path, query = {}) {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(pairs).toString();
  return `/api/${path}${text ? `?${text}` : ""}`;
}

/** A path with names in it: at`topics/${name}`. */
export const at = (parts, ...names) =>
  parts.reduce((path, part, index) => path + part + (index < names.length ? encodeURIComponent(names[index]) : ""), "");

export async function call(method, path, { query, body, signal: stop, bytes = false } = {}) {
  const headers = { Accept: bytes ? "*/*" : "application/json", "X-Kourou": "1" };
  if (body !== undefined || method !== "GET") headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(url(path, query), {
      method,
      headers,
      body: method === "GET" ? undefined : JSON.stringify(body ?? {}),
      signal: stop,
      credentials: "same-origin",
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, { code: "unreachable" });
  }
  if (answer.ok && bytes) return answer.arrayBuffer();
  const content = await parsed(answer);
  if (answer.ok) return content;
  if (answer.status === 401 && path !== "session") signedIn.value = false;
  throw new Refusal(answer.status, content);
}

async function parsed(answer) {
  const text = await answer.text();
  try {
    return text ? JSON.parse(text) : {};
  } catch {
    return { text: "" };
  }
}

export const get = (path, query, options = {}) => call("GET", path, { query, ...options });
export const post = (path, body, options = {}) => call("POST", path, { body, ...options });
export const remove = (path, body, options = {}) => call("DELETE", path, { body, ...options });
