// The address holds all state of a page: `/topics/orders?tab=queues&sort=-lag`. Screens read `place` and change it
// with `go` (a new page, an entry of the history) and `amend` (the query of this page).

import { signal } from "../vendor/signals.js";

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // not encoded by us, so taken as it is
  }
}

function here() {
  const query = {};
  for (const [name, value] of new URLSearchParams(window.location.search)) query[name] = value;
  return { path: window.location.pathname.split("/").filter(Boolean).map(decoded), query };
}

export const place = signal(here());

window.addEventListener("popstate", () => {
  place.value = here();
});

/** The address of a page. Empty values are left out of the query. */
export function href(path, query = {}) {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(pairs).toString();
  return `/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** A link that the server sends: only a path of this site is one. */
export const ours = (link) => (/^\/(?![/\\])/.test(link ?? "") ? link : null);

/** Goes to an address of ours. */
export function visit(address, { replace = false } = {}) {
  const target = new URL(address, window.location.origin);
  if (target.origin !== window.location.origin) return;
  const text = target.pathname + target.search;
  if (text === window.location.pathname + window.location.search) return;
  if (replace) window.history.replaceState(null, "", text);
  else window.history.pushState(null, "", text);
  place.value = here();
  if (!replace) window.scrollTo(0, 0);
}

export const go = (path, query = {}, options = {}) => visit(href(path, query), options);

/** Changes some values of the query, in place unless `push`. Undefined removes a value. */
export function amend(changes, { push = false } = {}) {
  go(place.value.path, { ...place.value.query, ...changes }, { replace: !push });
}

/** The address of this page with some values of the query changed. */
export const changed = (changes) => href(place.value.path, { ...place.value.query, ...changes });

/** Links to pages of ours change the place without loading anything. */
document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target.closest?.("a[href]");
  if (!link || link.target || link.hasAttribute("download") || link.origin !== window.location.origin) return;
  if (/^\/(api|events|static)(\/|$)/.test(link.pathname) || link.getAttribute("href").startsWith("#")) return;
  event.preventDefault();
  visit(link.href);
});
