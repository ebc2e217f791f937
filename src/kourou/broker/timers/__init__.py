"""Timers: messages that are delivered at an exact time.

    sent with TIMER_DELIVER_MS, TIMER_DELAY_MS or TIMER_DELAY_SEC
      ─▶ placing.py: rmq_sys_wheel_timer ─▶ service.py: a unit in the timer log, in the slot of its second
      ─▶ … the slot begins: due_slot.py has its units by millisecond … ─▶ a copy in the real topic

Only the current slot and the next one are in memory, with 8 bytes for each message; all others are in files
(`kourou.store.timers`). A message that is due beyond the range of the wheel is put into it again when its slot is
reached (it rolls).

Each message is delivered exactly once, even after crashes. The checkpoint of the files records which slots are done,
and each copy has the offset of its original, in the field in which commits have the offset of their half message
(`~offset`, which is negative and so never one of theirs). At the start, opening.py finds the copies in the log since
the checkpoint. If the files are lost or damaged, rebuilding.py finds the waiting messages in the whole log.

lane.py defines the usual messages, for which the steps of service.py and delivering.py are compiled.

recall.py serves RECALL_MESSAGE, which cancels a waiting message. counts.py has the figures.

Java: TimerMessageStore, HookUtils, RecallMessageProcessor, TimerMetrics.
"""
