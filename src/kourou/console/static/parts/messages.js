// The table of messages, in the browser of a topic, the live view and the dead letters.

import { Badge } from "./basic.js";
import { Snippet } from "./body.js";
import { RowLink, Table } from "./table.js";
import { href } from "../lib/router.js";
import { html } from "../lib/ui.js";
import { bytes, t, time } from "../lib/words.js";

export const messageKey = (row) => `${row.broker} ${row.queue} ${row.offset}`;

/** Where a message is stored. The broker is not known of one that was found by its id. */
export const placeOf = ({ broker, queue, offset }) => `${broker ? `${broker}:` : ""}${queue}@${offset}`;

export const messageLink = (row) => href(["messages", row.id || row.offset_id], { topic: row.topic, at: row.id ? row.offset_id : undefined });

export function MessageTable({ messages, label, empty, more = [], chosen, onChoose }) {
  const columns = [
    { key: "stored", title: t("message.stored"), cell: (row) => html`<${RowLink} href=${messageLink(row)}><span class="number">${time(row.stored_ms)}</span></${RowLink}>` },
    { key: "place", title: t("message.place"), cell: (row) => html`<code class="soft">${placeOf(row)}</code>` },
    { key: "keys", title: t("message.keys"), cell: (row) => (row.keys.length ? row.keys.map((key, index) => html`<code key=${index} class="chip">${key}</code>`) : html`<span class="soft">–</span>`) },
    { key: "tag", title: t("message.tag"), cell: (row) => (row.tag ? html`<${Badge}>${row.tag}</${Badge}>` : html`<span class="soft">–</span>`) },
    { key: "size", title: t("message.size"), align: "right", cell: (row) => html`<span class="number">${bytes(row.body?.size ?? row.size)}</span>` },
    ...more,
    { key: "body", title: t("body"), grow: true, cell: (row) => html`<${Snippet} body=${row.body} />` },
  ];
  return html`<${Table} label=${label} columns=${columns} rows=${messages} rowKey=${messageKey} empty=${empty} chosen=${chosen} onChoose=${onChoose} param="-" />`;
}
