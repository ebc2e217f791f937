"""The broker: a machine that takes events and returns effects, and appends only to the store it is handed.

events.py     the nouns that cross the border, in both directions
machine.py    owns the parts; request code -> function; step(events, now_ms)
send pull long_polls retry delays queue_locks queries replies      what clients ask for
topics groups clients offsets stats settings persistence              what the broker knows
admin/                                                             what operators ask for
"""
