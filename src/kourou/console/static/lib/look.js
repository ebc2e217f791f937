// Light or dark: what the system says, unless the reader has chosen.

import { signal } from "../vendor/signals.js";

export const LOOKS = ["auto", "light", "dark"];
export const look = signal("auto");

export function wear(name) {
  look.value = LOOKS.includes(name) ? name : "auto";
  if (look.value === "auto") {
    window.localStorage.removeItem("kourou.look");
    document.documentElement.removeAttribute("data-look");
  } else {
    window.localStorage.setItem("kourou.look", look.value);
    document.documentElement.setAttribute("data-look", look.value);
  }
}

export const isDark = () =>
  look.value === "dark" || (look.value === "auto" && window.matchMedia("(prefers-color-scheme: dark)").matches);

wear(window.localStorage.getItem("kourou.look") ?? "auto");
