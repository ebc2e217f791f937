"""The web console: pages, and a JSON API over the Python client. A process of its own, never a part of a broker.

    browser ─ JSON, SSE ─▶ app ─▶ routes ─▶ views (pure) ◀─ facts ─ Python client ─▶ name servers, brokers
                            │
                            guard, sessions

    limits errors guard sessions users         bounds; refusals; which requests are accepted
    accounts                                   users who sign in with their RocketMQ keys
    facts rings                                answers of brokers, shared by all viewers; one hour of figures
    filters scanning letters retries halves    the filter language; messages in pages; dead letters; half messages
    jobs streams watching audit                work in the background; live events; the log of changes
    otlp exporting                             metrics of brokers for a collector of OpenTelemetry
    views                                      facts -> structs that are sent as JSON
    routes                                     a module per part of the API
    app connections serving                    the ASGI application; its connections; the process

Only `facts` and the objects that it returns send requests to brokers. Each request counts against the budget in
`limits`.
"""
