"""The limits of a name server. More is an error or an attack; docs/limits.md describes the effect of each.

They keep every turn of the event loop short: encoding an answer with all brokers takes about 10 ms, and so does growing
a table with that many topics.
"""

BROKERS_MAX = 2_000
"""Broker processes, and broker groups."""

NAMES_OF_BROKER_MAX = 8
"""Groups that one broker process may be listed in after renaming itself."""

FILTER_SERVERS_MAX = 64
"""Filter servers of one broker process."""

TOPICS_MAX = 300_000
"""Topics of all brokers. The names of more would not fit into one answer."""

PLACES_MAX = 2_000_000
"""Topics, counted once for every broker group that has them: about 200 bytes each."""

MAPPED_QUEUES_MAX = 300_000
MAPPED_QUEUES_OF_TOPIC_MAX = 8_192
"""Queues in the mappings of all static topics, and of one."""

NAME_LENGTH_MAX = 255
"""Characters of a name or an address. Apache allows 127 for a topic and 255 for a group."""

SAID_SIZE_MAX = 64 * 1024 * 1024
"""Bytes of stored registrations, to compare the next ones with. Above it, registrations are decoded in full."""
