// All brokers.

import { Head, Loading, Problem } from "../parts/basic.js";
import { BrokerTable } from "../parts/brokers.js";
import { session } from "../lib/session.js";
import { useAnswer } from "../lib/use.js";
import { html } from "../lib/ui.js";
import { t } from "../lib/words.js";

export function Brokers() {
  const { data, error, loading, reload } = useAnswer("brokers", {}, { every: session.value.refresh_ms * 2 });
  return html`
    <${Head} title=${t("nav.brokers")} facts=${session.value.name_servers.map((address) => html`<code>${address}</code>`)} />
    <${Problem} error=${error} retry=${reload} />
    ${data ? html`<section class="panel"><${BrokerTable} brokers=${data.brokers} /></section>` : loading && html`<${Loading} />`}
  `;
}
