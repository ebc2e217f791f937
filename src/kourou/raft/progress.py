"""How much of the log a follower has, as far as the leader knows.

    probing       the leader looks for the end of the part that both logs have in common, one message at a time
    otherwise     the leader sends without waiting for answers, up to `in_flight_bytes`

If a message was lost, the next one does not fit the follower's log; the leader then probes again.
"""


class Progress:
    """One follower."""

    __slots__ = (
        "durable",
        "floor",
        "heard_ms",
        "is_waiting",
        "matched",
        "members_age",
        "next",
        "probing",
        "sent_ms",
        "stamp",
    )

    def __init__(self, end: int, now_ms: int) -> None:
        self.next = end  # the next byte to send
        self.matched = 0  # up to here its log equals the leader's
        self.durable = 0  # and is on its disk
        self.probing = True
        self.is_waiting = False  # for the answer to a probe
        self.floor = 0  # refusals of requests before this stamp are obsolete
        self.stamp = 0  # the newest request that it has answered
        self.heard_ms = now_ms
        self.sent_ms = now_ms  # when it was last sent bytes of the log
        self.members_age = (-1, -1)  # of the members that it has on disk

    def has(self, matched: int, durable: int, stamp: int) -> None:
        """The follower has the log up to `matched`, and up to `durable` on disk."""
        self.matched = max(self.matched, matched)
        self.durable = max(self.durable, durable)
        if self.probing and stamp >= self.floor:
            self.probing = self.is_waiting = False
            self.next = matched
            self.floor = stamp
        self.next = max(self.next, self.matched)

    def probe(self, offset: int, stamp: int) -> None:
        """The follower lacks bytes before `next`: try this offset. Only answers to requests after `stamp` count."""
        self.probing, self.is_waiting = True, False
        self.next = offset
        self.matched = min(self.matched, offset)
        self.floor = stamp + 1

    def room(self, limit: int) -> bool:
        """May more bytes be sent now?"""
        if self.probing:
            return not self.is_waiting
        return self.next - self.matched < limit
