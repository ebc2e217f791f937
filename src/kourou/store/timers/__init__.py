"""The files of timers: messages that wait for an exact time.

    timerwheel            slots, one per second: the position of the newest unit of each second in the timer log
    timerlog/0000…        units of 52 bytes: the log offset of a message, when it is due, the previous unit
    config/timercheck     the state up to which these files are complete

    wheel:  … │ 10:00:00 │ 10:00:01 │ …        log:  unit ◀── unit ◀──── unit
                   └──────────────────────────────────────────────────────┘

The messages are in the topic rmq_sys_wheel_timer. The files have Apache's form (docs/formats/timers.md), with two
additions in bytes that Apache's broker ignores: a unit has the exact millisecond, and the checkpoint has an extension
with the offset at which a search of the commit log for copies begins after a crash.

    layout.py      the bytes of units, slots and the checkpoint
    wheel.py       slots; changes are kept in memory until the units that they refer to are durable
    unit_log.py    units
    files.py       all files, and the job that makes them durable

Java: TimerWheel, TimerLog, TimerCheckpoint.
"""
