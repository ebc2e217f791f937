"""Who serves which topic: the name server as a machine of events and effects. Pure: no clock, file or socket here.

settings.py      what can be configured, under Apache's names
registration.py  what a broker says of itself, as far as it matters here
routes.py        brokers, topics and clusters, and the routes made of them
documents.py     what must survive a restart: applied only once it is safe
machine.py       request code -> what happens; step(events, now_ms) -> effects
"""
