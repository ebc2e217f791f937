// Who is signed in, what they may do, and what the brokers can do.

import { call, get, post, signedIn } from "./api.js";
import { signal } from "../vendor/signals.js";
import { t } from "./words.js";

export const session = signal(null);

const ROLES = ["see", "bodies", "operate", "administer"];

/** Asks who is signed in. A token in the fragment of the address signs in first, and is removed from it. */
export async function begin() {
  const token = new URLSearchParams(window.location.hash.slice(1)).get("token");
  if (token) {
    window.history.replaceState(null, "", window.location.pathname + window.location.search);
    try {
      await enter({ token });
      return;
    } catch {
      // used before, perhaps by this browser: the session tells
    }
  }
  take(await get("session"));
}

function take(answer) {
  session.value = answer;
  signedIn.value = answer.signed_in;
}

export const enter = async (credentials) => take(await post("session", credentials));

export async function leave() {
  await call("DELETE", "session");
  take(await get("session"));
}

/** Why this reader may not do something that needs a role; empty if they may. */
export function hindrance(role) {
  const now = session.value;
  if (!now?.signed_in) return t("error.not_signed_in");
  if (now.read_only && role !== "see" && role !== "bodies") return t("hindrance.read_only");
  if (ROLES.indexOf(now.role) < ROLES.indexOf(role)) return t("hindrance.role", { role: t(`role.${role}`) });
  return "";
}

/** Why the brokers can't do something; empty if they can, or if it is not known yet. */
export function lacking(feature) {
  const found = session.value?.features?.[feature];
  return found && found.on === false ? found.reason : "";
}
