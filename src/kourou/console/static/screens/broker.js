// One broker: its figures, replication, settings.

import { Badge, Field, Figure, Head, Loading, Pairs, Problem, Search, Tabs } from "../parts/basic.js";
import { Chart } from "../parts/chart.js";
import { ChangeDialog } from "../parts/dialog.js";
import { Table } from "../parts/table.js";
import { at } from "../lib/api.js";
import { useFacts } from "../lib/live.js";
import { amend, changed, href, place } from "../lib/router.js";
import { hindrance } from "../lib/session.js";
import { html, useState } from "../lib/ui.js";
import { bytes, number, short, span, t } from "../lib/words.js";

const TABS = ["state", "config", "replication", "runtime"];

export function Broker() {
  const { path, query } = place.value;
  const address = path[1];
  const first = useFacts(at`brokers/${address}`, `broker:${address}`);
  const { data } = first;
  const tab = TABS.includes(query.tab) ? query.tab : "state";
  const tabs = TABS.map((name) => ({ name, title: t(`broker.tab.${name}`), href: href(path, { tab: name === "state" ? undefined : name }) }));
  const broker = data?.broker;
  const facts = broker && [
    broker.ok ? html`<${Badge} tone="good">${t("broker.up")}</${Badge}>` : html`<${Badge} tone="bad" title=${broker.reason}>${t("broker.down")}</${Badge}>`,
    t(`broker.role.${broker.role}`),
    html`<code>${broker.address}</code>`,
    broker.cluster,
    `${broker.kourou ? "Kourou " : ""}${broker.version}`,
  ];
  return html`
    <${Head} title=${broker?.name ?? address} kind=${html`<a href="/brokers">${t("nav.brokers")}</a>`} facts=${facts || []} />
    <${Problem} error=${first.error} retry=${first.reload} />
    <${Tabs} tabs=${tabs} at=${tab} label=${t("broker.tabs")} />
    ${!data && first.loading && html`<${Loading} />`}
    ${data && tab === "state" && html`<${State} data=${data} />`} ${data && tab === "config" && html`<${Config} data=${data} address=${address} done=${first.reload} />`}
    ${data && tab === "replication" && html`<${Replication} data=${data} />`} ${data && tab === "runtime" && html`<${Runtime} runtime=${data.runtime} />`}
  `;
}

const rate = (value) => (value === null || value === undefined ? "–" : html`${short(value)}<small>/s</small>`);

const State = ({ data: { broker, history } }) => html`
  <section class="figures" aria-label=${t("broker.tab.state")}>
    <${Figure} label=${t("overview.in")} value=${rate(broker.in)} />
    <${Figure} label=${t("overview.out")} value=${rate(broker.out)} />
    <${Figure} label=${t("broker.put_p99")} value=${broker.put_p99_ms === null ? "–" : html`${broker.put_p99_ms}<small>ms</small>`} />
    <${Figure} label=${t("broker.flush_behind")} value=${bytes(broker.flush_behind)} />
    <${Figure} label=${t("broker.dispatch_behind")} value=${bytes(broker.dispatch_behind)} />
    <${Figure} label=${t("broker.keeps")} value=${span(broker.keeps_ms)} />
    <${Figure} label=${t("overview.disk")} value=${broker.disk_ratio === null ? "–" : `${Math.round(broker.disk_ratio * 100)} %`} />
  </section>
  <div class="columns">
    <section class="panel"><${Chart} history=${history} names=${[["in", t("overview.in")], ["out", t("overview.out")]]} title=${t("overview.rates")} /></section>
    <section class="panel"><${Chart} history=${history} names=${[["disk", t("overview.disk")]]} title=${t("overview.disk")} unit="ratio" /></section>
  </div>
`;

function Config({ data, address, done }) {
  const { q = "", do: open, key } = place.value.query;
  const text = q.toLowerCase();
  const rows = data.config.filter((row) => row.key.toLowerCase().includes(text) || String(row.value).toLowerCase().includes(text));
  const denied = hindrance("administer");
  const columns = [
    { key: "key", title: t("config.key"), sort: (row) => row.key, cell: (row) => html`<code>${row.key}</code>` },
    { key: "value", title: t("config.value"), grow: true, cell: (row) => html`<code class="value">${row.value}</code>` },
    {
      key: "change",
      title: "",
      cell: (row) =>
        denied || row.value === "***"
          ? html`<span class="button small bare" aria-disabled="true" title=${denied || t("config.secret")}>${t("edit")}</span>`
          : html`<a class="button small bare" href=${changed({ do: "config", key: row.key })} aria-label=${t("config.change", { key: row.key })}>${t("edit")}</a>`,
    },
  ];
  const row = data.config.find((one) => one.key === key);
  return html`
    <div class="tools"><${Search} value=${q} onInput=${(value) => amend({ q: value })} placeholder=${t("config.search")} /></div>
    <section class="panel"><${Table} label=${t("broker.tab.config")} columns=${columns} rows=${rows} order="key" rowKey=${(one) => one.key} empty=${t("config.none")} /></section>
    ${open === "config" && row && html`<${ChangeSetting} row=${row} address=${address} done=${done} />`}
  `;
}

function ChangeSetting({ row, address, done }) {
  const [value, setValue] = useState(String(row.value));
  const shown = (preview) => html`<ul>${preview.changes.map((one) => html`<li key=${one.key}><code>${one.key}</code>: <code>${one.from}</code> → <code>${one.to}</code></li>`)}</ul>`;
  return html`<${ChangeDialog}
    title=${t("config.change", { key: row.key })}
    action=${t("save")}
    danger
    request=${value !== String(row.value) ? { method: "PATCH", path: at`brokers/${address}/config`, body: { settings: { [row.key]: value } } } : null}
    shown=${shown}
    done=${done}
    close=${() => amend({ do: undefined, key: undefined })}
  >
    <${Field} label=${row.key} wide><input type="text" name="value" value=${value} onInput=${(event) => setValue(event.target.value)} autofocus autocomplete="off" spellcheck=${false} /></${Field}>
  </${ChangeDialog}>`;
}

function Replication({ data: { replication, epochs, raft } }) {
  const slaves = [
    { key: "address", title: t("broker.address"), grow: true, cell: (row) => html`<code>${row.address}</code>` },
    { key: "ack", title: t("replication.ack"), align: "right", cell: (row) => html`<span class="number">${number(row.ack)}</span>` },
    { key: "behind", title: t("replication.behind"), align: "right", cell: (row) => html`<span class="number">${bytes(row.behind)}</span>` },
    { key: "rate", title: t("replication.rate"), align: "right", cell: (row) => html`<span class="number">${bytes(row.rate)}/s</span>` },
    { key: "sync", title: t("replication.in_sync"), cell: (row) => (row.in_sync ? html`<${Badge} tone="good">${t("yes")}</${Badge}>` : html`<${Badge} tone="warn">${t("no")}</${Badge}>`) },
  ];
  const terms = [
    { key: "epoch", title: t("replication.epoch"), cell: (row) => html`<span class="number">${row.epoch}</span>` },
    { key: "start", title: t("replication.from"), align: "right", cell: (row) => html`<span class="number">${number(row.start)}</span>` },
    { key: "end", title: t("replication.to"), align: "right", cell: (row) => html`<span class="number">${Number(row.end) < 0 ? "–" : number(row.end)}</span>` },
  ];
  return html`
    <section class="panel"><h2>${t("broker.tab.replication")}</h2>
      ${!replication && html`<div class="empty">${t("replication.none")}</div>`}
      ${replication &&
      html`<div class="content"><${Pairs} pairs=${[
          [t("broker.role"), replication.master ? t("broker.role.master") : t("broker.role.slave")],
          [t("replication.end"), number(replication.end)],
          ...(replication.master ? [[t("replication.in_sync"), number(replication.in_sync)]] : []),
          ...(replication.follows ? [[t("replication.follows"), html`<code>${replication.follows.address}</code>`], [t("replication.behind"), bytes(Number(replication.follows.end) - Number(replication.end))]] : []),
        ]} /></div>
        ${replication.master && html`<${Table} label=${t("replication.slaves")} columns=${slaves} rows=${replication.slaves} param="-" rowKey=${(row) => row.address} empty=${t("replication.no_slaves")} />`}`}
    </section>
    ${epochs?.length > 0 && html`<section class="panel"><h2>${t("replication.epochs")}</h2><${Table} label=${t("replication.epochs")} columns=${terms} rows=${epochs} param="-" rowKey=${(row) => row.epoch} /></section>`}
    <section class="panel"><h2>Raft</h2><div class="content">
      ${raft?.on ? html`<${Pairs} pairs=${Object.entries(raft.facts).map(([name, value]) => [name, String(value)])} />` : html`<p class="soft">${t("raft.off")}</p>`}
    </div></section>
  `;
}

function Runtime({ runtime }) {
  const columns = [
    { key: "key", title: t("config.key"), sort: (row) => row[0], cell: ([name]) => html`<code>${name}</code>` },
    { key: "value", title: t("config.value"), grow: true, cell: ([, value]) => html`<code class="value">${value}</code>` },
  ];
  return html`<section class="panel"><${Table} label=${t("broker.tab.runtime")} columns=${columns} rows=${Object.entries(runtime)} order="key" rowKey=${([name]) => name} /></section>`;
}
