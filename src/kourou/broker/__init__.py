"""The broker: a machine that takes events and returns effects, and appends only to the store it is handed.

events.py     the nouns that cross the border, in both directions
machine.py    owns the parts; read(reads, now_ms), step(events, now_ms)
serving.py    serves a request: the function of its code, long work in slices, tables that must be durable first
placement.py  in which topic and queue a message is stored first
transactions/ half messages, their ends, and questions to producers
send pull long_polls retry delays queue_locks queries replies      what clients ask for
topics groups clients offsets stats settings persistence           what the broker knows
admin/                                                             what operators ask for
"""
