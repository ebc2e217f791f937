"""Transactions: messages that consumers get if their producer commits them, and never if it rolls them back.

    producer ── half message ──▶ RMQ_SYS_TRANS_HALF_TOPIC, where no consumer looks
    producer ── commit ────────▶ the message in its real topic, and an op record
             ── roll back ─────▶ an op record
             ── nothing ───────▶ the broker asks a producer of the same group, every 30 s, up to 15 times
                                 └▶ TRANS_CHECK_MAX_TIME_TOPIC

ledger.py        what became of each half message: one byte each
op_records.py    the records that say which have ended
half_records.py  half messages, their copies, commits
half_queue.py    all three together, with the log
opening.py       what a start learns from the store
verdicts.py      what a check does with a half message
checking.py      rounds of checks
ending.py        END_TRANSACTION
counts.py        how many there are
service.py       everything, as the machine knows it
"""
