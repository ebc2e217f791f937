"""All limits of the console."""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# ── HTTP ────────────────────────────────────────────────────────────────────────────────────────────────────────────

HEAD_SIZE_MAX: Final = 16 * KIB
JSON_SIZE_MAX: Final = 1 * MIB
PRODUCE_SIZE_MAX: Final = 6 * MIB
"""A body of 4 MiB in base64, and the rest of the request."""
BODY_SECONDS_MAX: Final = 15.0
"""How long a request may take to arrive."""
HEAD_SECONDS_MAX: Final = 10.0
"""How long the head of a request may take, from the opening of the connection on."""
CONNECTIONS_MAX: Final = 64
STREAMS_MAX: Final = 16
WATCHES_MAX: Final = 8
"""The most subjects that one stream watches."""
QUERY_TEXT_MAX: Final = 2 * KIB
"""Characters of one parameter in a URL."""

# ── Signing in ──────────────────────────────────────────────────────────────────────────────────────────────────────

SESSION_SECONDS: Final = 12 * 3600.0
SESSIONS_MAX: Final = 1000
ATTEMPTS_PER_MINUTE: Final = 5
"""The most failed attempts to sign in, for each user and for each address."""
ACCOUNTS_MAX: Final = 50
"""Accounts of RocketMQ's access control that are signed in; each has a client of its own."""
ACCOUNT_IDLE_SECONDS: Final = 600.0
"""How long the client of an account stays open while it is not used."""
ATTEMPT_NAMES_MAX: Final = 10_000
PASSWORD_SIZE_MAX: Final = 1024

# ── Brokers ─────────────────────────────────────────────────────────────────────────────────────────────────────────

UNDER_WAY_MAX: Final = 4
"""Requests to one broker at a time."""
REQUESTS_PER_SECOND: Final = 20.0
"""Requests to one broker per second, after a burst of as many."""
WAITING_MAX: Final = 2000
"""Requests that wait for their turn."""
CACHED_MAX: Final = 4000
"""The most answers that are cached for other viewers."""
RING_SECONDS: Final = 5.0
RING_POINTS: Final = 720
RING_FIGURES_MAX: Final = 2000
LOOKED_AT_SECONDS: Final = 600.0
"""How long the figures of a topic or group are collected after it was last displayed."""
BACKGROUND_PER_SECOND: Final = 4.0
"""How many groups per second are checked for problems while the overview is displayed."""

# ── Messages ────────────────────────────────────────────────────────────────────────────────────────────────────────

BODY_SIZE_MAX: Final = 8 * MIB
"""The largest body after decompression."""
LIST_BODY_SIZE: Final = 4 * KIB
DETAIL_BODY_SIZE: Final = 256 * KIB
PAGE_MESSAGES_MAX: Final = 200
PAGE_SCAN_MAX: Final = 20_000
PAGE_SECONDS_MAX: Final = 2.0
PAGE_BYTES_MAX: Final = 16 * MIB
"""The most bytes of bodies in one page of a search."""
SCAN_MAX: Final = 100_000
SCAN_SECONDS_MAX: Final = 10.0
"""A search stops after this time, and continues on request."""
EXPORT_MAX: Final = 1_000_000
EXPORT_SECONDS_MAX: Final = 600.0
"""An exported file ends after this time, with a line that says so."""
SCANS_MAX: Final = 4
"""Searches at a time."""
FILTER_TERMS_MAX: Final = 16
FIELD_BODY_SIZE_MAX: Final = 1 * MIB
"""The largest JSON body in which a filter looks for a field."""
TURN_SECONDS: Final = 0.01
"""How long a search runs before it is the turn of other work."""

# ── Live tail ───────────────────────────────────────────────────────────────────────────────────────────────────────

TAIL_MESSAGES_MAX: Final = 200
TAIL_SECONDS: Final = 0.25
WATCH_SECONDS: Final = 2.0
PING_SECONDS: Final = 10.0

# ── Rows, jobs, audit ───────────────────────────────────────────────────────────────────────────────────────────────

ROWS_MAX: Final = 500
TOPIC_FIGURES_MAX: Final = 50
GROUP_FIGURES_MAX: Final = 20
JOBS_MAX: Final = 100
JOBS_RUNNING_MAX: Final = 4
JOB_FAILURES_MAX: Final = 1000
JOB_RESULTS_MAX: Final = 1000
REDRIVE_RATE_MAX: Final = 1000
REMEMBERED_MAX: Final = 200_000
"""How many redriven dead letters the console remembers."""
AUDIT_MAX: Final = 2000
