"""The broker: a machine that takes events and returns effects, and appends only to the store that is passed to it.

events.py     events and effects: the interface of the machine
machine.py    owns the parts; read(reads, now_ms), step(events, now_ms)
serving.py    serves a request: its header, the function of its code, long work in slices, tables that must be durable
access.py     what a request touches, and whether its peer has the rights
deadlines.py  when each part is due: the one source of deadlines
placement.py  in which topic and queue a message is stored first
transactions/ half messages, their ends, and questions to producers
send pull long_polls retry delays queue_locks queries replies      what clients ask for
topics groups clients offsets stats settings persistence           what the broker knows
admin/                                                             what operators ask for
"""
