// The entry: words, session, then the screen of the address.

import { Problem } from "./parts/basic.js";
import { Shell } from "./parts/shell.js";
import { Overview } from "./screens/overview.js";
import { SignIn } from "./screens/sign_in.js";
import { signedIn } from "./lib/api.js";
import { listenToKeys } from "./lib/keys.js";
import "./lib/look.js";
import { place } from "./lib/router.js";
import { begin, session } from "./lib/session.js";
import { Fragment, html, render, useEffect, useState } from "./lib/ui.js";
import { language, speak, t } from "./lib/words.js";

/** The module and component of a page, by the first part of its path and whether there is a second. */
const SCREENS = {
  topics: [() => import("./screens/topics.js"), "Topics"],
  "topics/": [() => import("./screens/topic.js"), "Topic"],
  groups: [() => import("./screens/groups.js"), "Groups"],
  "groups/": [() => import("./screens/group.js"), "Group"],
  messages: [() => import("./screens/find.js"), "Find"],
  "messages/": [() => import("./screens/message.js"), "Message"],
  "journey/": [() => import("./screens/message.js"), "Message"],
  dead: [() => import("./screens/dead.js"), "Dead"],
  "dead/": [() => import("./screens/dead_group.js"), "DeadGroup"],
  delayed: [() => import("./screens/delayed.js"), "Delayed"],
  brokers: [() => import("./screens/brokers.js"), "Brokers"],
  "brokers/": [() => import("./screens/broker.js"), "Broker"],
  clients: [() => import("./screens/clients.js"), "Clients"],
  access: [() => import("./screens/access.js"), "Access"],
  audit: [() => import("./screens/audit.js"), "Audit"],
};

function Screen() {
  const { path } = place.value;
  const name = path.length > 1 ? `${path[0]}/` : path[0];
  const [loaded, setLoaded] = useState({ name: null, component: null, error: null });
  const found = SCREENS[name];
  useEffect(() => {
    if (!found) return undefined;
    let gone = false;
    const [load, export_] = found;
    load().then(
      (module) => !gone && setLoaded({ name, component: module[export_], error: null }),
      (error) => !gone && setLoaded({ name, component: null, error }),
    );
    return () => {
      gone = true;
    };
  }, [name]);
  if (!path.length || path[0] === "overview") return html`<${Overview} />`;
  if (!found) return html`<div class="empty">${t("no_page")} <a href="/">${t("nav.overview")}</a></div>`;
  if (loaded.name !== name) return null;
  if (loaded.error) return html`<${Problem} error=${loaded.error} />`;
  return html`<${loaded.component} key=${path.join("/")} />`;
}

function App({ failed }) {
  if (failed) return html`<main class="sign-in"><${Problem} error=${failed} retry=${() => window.location.reload()} /></main>`;
  if (!signedIn.value || !session.value?.signed_in) return html`<${SignIn} />`;
  return html`<${Fragment} key=${language.value}><${Shell}><${Screen} /></${Shell}></${Fragment}>`;
}

async function start() {
  const root = document.getElementById("app");
  listenToKeys();
  let failed = null;
  await Promise.all([speak(), begin().catch((error) => (failed = error))]);
  render(html`<${App} failed=${failed} />`, root);
  root.setAttribute("data-ready", "");
}

start();
