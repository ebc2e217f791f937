"""Transactions: messages that consumers receive only if their producer commits them.

    producer ── half message ──▶ RMQ_SYS_TRANS_HALF_TOPIC, which consumers do not read
    producer ── commit ────────▶ the message in its real topic, and an op record
             ── roll back ─────▶ an op record
             ── nothing ───────▶ the broker asks a producer of the same group, every 30 s, up to 15 times
                                 └▶ TRANS_CHECK_MAX_TIME_TOPIC

ledger.py        the fate of each half message, in one byte
op_records.py    records of the half messages that have ended
half_records.py  half messages, their copies, commits
half_queue.py    combines these three with the log
opening.py       restores the state from the store at a start
verdicts.py      decides how a check treats a half message
checking.py      rounds of checks
ending.py        END_TRANSACTION
counts.py        numbers of transactions
service.py       combines all parts, for the machine
"""
