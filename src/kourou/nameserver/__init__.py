"""The name server as a machine of events and effects. Pure: no clock, file or socket here.

settings.py      the settings, under Apache's names
registration.py  decoding of broker registrations
routes.py        brokers, topics and clusters, and their routes
documents.py     state that must survive a restart: a change is visible once it is durable
machine.py       dispatch by request code; step(events, now_ms) -> effects
"""
