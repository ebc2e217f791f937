// Signing in: with the link of the start, or a name and a password.

import { Button, Field, Mark, Problem } from "../parts/basic.js";
import { enter, session } from "../lib/session.js";
import { useAction } from "../lib/use.js";
import { html, useState } from "../lib/ui.js";
import { language, speak, t } from "../lib/words.js";

const FORMS = {
  token: [["token", "password"]],
  password: [["user", "text"], ["password", "password"]],
  key: [["user", "text"], ["password", "password"]],
};

export function SignIn() {
  const way = session.value?.login ?? "token";
  const [values, setValues] = useState({});
  const { run, busy, error } = useAction(enter);
  const fields = FORMS[way] ?? FORMS.token;
  const submit = (event) => {
    event.preventDefault();
    run(Object.fromEntries(fields.map(([name]) => [name, name === "password" ? values[name] : (values[name] ?? "").trim()])));
  };
  return html`<main class="sign-in">
    <form onSubmit=${submit}>
      <${Mark} size=${40} class="brand-mark" />
      <h1>${t("sign_in.title")}</h1>
      <p class="soft">${t(`sign_in.${way}`)}</p>
      ${fields.map(
        ([name, type], index) => html`<${Field} key=${name} label=${t(`sign_in.${way === "key" ? way : "field"}.${name}`)}>
          <input type=${type} name=${name} required autofocus=${index === 0} autocomplete=${type === "password" ? "current-password" : "username"} value=${values[name] ?? ""} onInput=${(event) => setValues({ ...values, [name]: event.target.value })} />
        </${Field}>`,
      )}
      <${Problem} error=${error} />
      <${Button} type="submit" tone="primary" disabled=${busy}>${t("sign_in.submit")}</${Button}>
      <button class="button bare" type="button" lang=${language.value === "en" ? "zh-CN" : "en"} onClick=${() => speak(language.value === "en" ? "zh" : "en", { keep: true })}>${language.value === "en" ? "中文" : "English"}</button>
    </form>
  </main>`;
}
