// Dialogs. A change shows what it would do and the command that does the same before it is made.

import { Button, CommandLine, Field, IconButton, Problem } from "./basic.js";
import { say } from "./toasts.js";
import { call } from "../lib/api.js";
import { amend } from "../lib/router.js";
import { useAction, useLater } from "../lib/use.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib/ui.js";
import { t } from "../lib/words.js";

/** A dialog of the browser: it keeps the focus inside, Escape closes it, and the focus returns afterwards. */
export function Dialog({ title, close, children, wide, label }) {
  const element = useRef(null);
  // Not after the next frame: the key after Ctrl-K belongs to the dialog.
  useLayoutEffect(() => {
    const before = document.activeElement;
    const dialog = element.current;
    dialog.showModal();
    dialog.querySelector("[autofocus], .dialog-body :is(input, select, textarea)")?.focus();
    return () => {
      if (dialog.open) dialog.close();
      if (before?.isConnected) before.focus?.();
    };
  }, []);
  const cancel = (event) => {
    event.preventDefault();
    close();
  };
  return html`<dialog ref=${element} class=${wide ? "wide" : ""} aria-label=${label ?? title} onCancel=${cancel} onMouseDown=${(event) => event.target === element.current && close()}>
    <div class="dialog-box">
      ${title && html`<header><h2>${title}</h2><${IconButton} icon="close" label=${t("close")} onClick=${close} /></header>`}
      ${children}
    </div>
  </dialog>`;
}

export const closeDialog = () => amend({ do: undefined });

/**
 * A form whose request is asked with `preview` after each change of the form.
 *
 * `request` is {method, path, body}, or null while the form is not complete. `shown(preview)` draws what would happen;
 * `done(answer)` is called after the change. If the preview names a text to confirm with, it must be typed.
 */
export function ChangeDialog({ title, request, children, shown, done, action, danger, said, wide, keep = false, close = closeDialog }) {
  const [typed, setTyped] = useState("");
  const text = useLater(request ? JSON.stringify(request) : "", 200);
  const [preview, setPreview] = useState({ text: "", answer: null, error: null });
  useEffect(() => {
    if (!text) return undefined;
    const stop = new AbortController();
    const { method, path, body } = JSON.parse(text);
    call(method, path, { body: { ...body, preview: true }, signal: stop.signal }).then(
      (answer) => setPreview({ text, answer, error: null }),
      (error) => error.name !== "AbortError" && setPreview({ text, answer: null, error }),
    );
    return () => stop.abort();
  }, [text]);
  const { run, busy, error } = useAction(({ method, path, body }, confirm) => call(method, path, { body: { ...body, confirm } }));
  const current = request !== null && preview.text === JSON.stringify(request);
  const answer = request && preview.answer;
  const confirm = answer?.confirm ?? null;
  const ready = current && answer && !busy && (confirm === null || typed === confirm);
  const submit = async (event) => {
    event.preventDefault();
    if (!ready) return;
    const result = await run(request, confirm === null ? undefined : typed);
    if (!result) return;
    if (said !== null) say(said ?? t("done"));
    setTyped("");
    if (!keep) close();
    done?.(result);
  };
  return html`<${Dialog} title=${title} close=${close} wide=${wide}>
    <form onSubmit=${submit} aria-busy=${busy}>
      <div class="dialog-body">
        ${children}
        ${request && preview.error && html`<${Problem} error=${preview.error} />`}
        ${answer && shown && html`<section class="preview" aria-label=${t("preview")} aria-live="polite">${shown(answer.preview)}</section>`}
        ${answer && html`<${CommandLine} line=${answer.cli} />`}
        ${confirm !== null &&
        html`<${Field} label=${t("confirm.type", { name: confirm })}>
          <input type="text" name="confirm" value=${typed} autocomplete="off" spellcheck=${false} onInput=${(event) => setTyped(event.target.value)} />
        </${Field}>`}
        <${Problem} error=${error} />
      </div>
      <footer>
        <${Button} onClick=${close}>${t("cancel")}</${Button}>
        <${Button} type="submit" tone=${danger ? "danger" : "primary"} disabled=${!ready}>${busy ? t("working") : action}</${Button}>
      </footer>
    </form>
  </${Dialog}>`;
}
