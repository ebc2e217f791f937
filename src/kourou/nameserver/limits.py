"""How much a name server takes in. More than this is a mistake or an attack; docs/limits.md lists what happens then.

The figures keep every turn of the event loop short: an answer with all brokers takes some 10 ms to encode, and a table
of as many topics some 10 ms to grow.
"""

BROKERS_MAX = 2_000
"""Broker processes, and broker groups."""

NAMES_OF_BROKER_MAX = 8
"""Groups that one broker process may be listed in, when it changes its name again and again."""

FILTER_SERVERS_MAX = 64
"""Filter servers of one broker process."""

TOPICS_MAX = 300_000
"""Topics of all brokers together. The names of more would not fit into one answer."""

PLACES_MAX = 2_000_000
"""Topics, each counted once for every broker group that has it: some 200 bytes each."""

MAPPED_QUEUES_MAX = 300_000
MAPPED_QUEUES_OF_TOPIC_MAX = 8_192
"""Queues in the mappings of all static topics, and of one."""

NAME_LENGTH_MAX = 255
"""Characters of a name or an address. Apache allows 127 for a topic, and 255 for a group."""

SAID_SIZE_MAX = 64 * 1024 * 1024
"""Bytes of registrations that are kept to compare the next ones with. Beyond it, registrations are read in full."""
