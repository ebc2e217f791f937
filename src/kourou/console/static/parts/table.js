// Tables: columns are declared, the order is in the address, rows are reached with j and k.

import { Icon } from "./basic.js";
import { changed, place } from "../lib/router.js";
import { html } from "../lib/ui.js";
import { number, t } from "../lib/words.js";

function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  const [left, right] = [Number(a), Number(b)];
  if (a !== "" && b !== "" && !Number.isNaN(left) && !Number.isNaN(right)) return left - right;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

/** The rows in the order of the address, or in the given one. `-name` is descending. */
function sorted(rows, columns, order) {
  const name = order.replace(/^-/, "");
  const column = columns.find((one) => one.key === name && one.sort);
  if (!column) return rows;
  const sign = order.startsWith("-") ? -1 : 1;
  return [...rows].sort((a, b) => sign * compare(column.sort(a), column.sort(b)));
}

/**
 * Columns: {key, title, cell(row), sort(row)?, align?: "right", grow?}. `rowKey(row)` keeps a row's elements, and with
 * them the focus, while its figures change. `param` is the name of the order in the address.
 */
export function Table({ columns, rows, rowKey, label, param = "sort", order = "", empty, chosen, onChoose, tone }) {
  const present = columns.filter(Boolean);
  const now = place.value.query[param] ?? order;
  const lines = sorted(rows, present, now);
  const all = chosen && lines.length > 0 && lines.every((row) => chosen.has(rowKey(row)));
  const choose = (key, on) => {
    const next = new Set(chosen);
    if (on) next.add(key);
    else next.delete(key);
    onChoose(next);
  };
  return html`<div class="table-frame" tabindex="-1">
    <table>
      <caption class="hidden">${label}</caption>
      <thead>
        <tr>
          ${chosen &&
          html`<th class="choose">
            <input
              type="checkbox"
              aria-label=${t("choose.all")}
              checked=${all}
              onChange=${(event) => onChoose(new Set(event.target.checked ? lines.map(rowKey) : []))}
            />
          </th>`}
          ${present.map((column) => html`<${HeadCell} key=${column.key} column=${column} now=${now} param=${param} />`)}
        </tr>
      </thead>
      <tbody>
        ${lines.map((row) => {
          const key = rowKey(row);
          return html`<tr key=${key} class=${tone?.(row) ?? ""}>
            ${chosen &&
            html`<td class="choose">
              <input
                type="checkbox"
                aria-label=${t("choose.row", { name: key })}
                checked=${chosen.has(key)}
                onChange=${(event) => choose(key, event.target.checked)}
              />
            </td>`}
            ${present.map(
              (column) =>
                html`<td key=${column.key} class=${`${column.align ?? ""} ${column.grow ? "grow" : ""}`}>${column.cell(row)}</td>`,
            )}
          </tr>`;
        })}
      </tbody>
    </table>
    ${!lines.length && html`<div class="empty">${empty ?? t("nothing")}</div>`}
  </div>`;
}

function HeadCell({ column, now, param }) {
  const name = now.replace(/^-/, "");
  const descending = now.startsWith("-");
  const active = column.sort && name === column.key;
  const state = active ? (descending ? "descending" : "ascending") : undefined;
  const first = column.align === "right" ? `-${column.key}` : column.key; // figures begin with the largest
  const next = active ? (descending ? column.key : `-${column.key}`) : first;
  return html`<th scope="col" class=${column.align ?? ""} aria-sort=${state}>
    ${column.sort
      ? html`<a href=${changed({ [param]: next })}>${column.title}<span class="arrow" aria-hidden="true">${active ? (descending ? "↓" : "↑") : ""}</span></a>`
      : column.title}
  </th>`;
}

/** Which page of a long list is on screen, in the address as `page`. */
export function Pager({ total, size }) {
  const pages = Math.ceil(total / size);
  const at = pageOf(total, size);
  if (pages <= 1) return html`<div class="pager soft">${t("rows", { n: total })}</div>`;
  return html`<nav class="pager" aria-label=${t("pages")}>
    ${at > 0
      ? html`<a class="button" href=${changed({ page: at > 1 ? at : undefined })} rel="prev">${t("page.before")}</a>`
      : html`<span class="button" aria-disabled="true">${t("page.before")}</span>`}
    <span class="soft">${t("page.of", { from: number(at * size + 1), to: number(Math.min(total, (at + 1) * size)), total: number(total) })}</span>
    ${at < pages - 1
      ? html`<a class="button" href=${changed({ page: at + 2 })} rel="next">${t("page.next")}</a>`
      : html`<span class="button" aria-disabled="true">${t("page.next")}</span>`}
  </nav>`;
}

export function pageOf(total, size) {
  const asked = Number(place.value.query.page ?? 1) - 1;
  const last = Math.max(0, Math.ceil(total / size) - 1);
  return Number.isInteger(asked) && asked > 0 ? Math.min(asked, last) : 0;
}

/** The name of a row, which j and k reach. */
export const RowLink = ({ href, children, icon }) =>
  html`<a class="row-link" data-row href=${href}>${icon && html`<${Icon} name=${icon} />`}${children}</a>`;
