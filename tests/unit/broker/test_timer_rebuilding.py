"""What still waits, as the log says it."""

from kourou.broker.timers.rebuilding import Waiting
from kourou.protocol import properties as _properties


def stored(key: str, **more: str) -> bytes:
    values = {"UNIQ_KEY": key, "TIMER_OUT_MS": "5000", "REAL_TOPIC": "orders", "REAL_QID": "0", **more}
    return _properties.encode(values).encode()


def test_a_message_that_was_delivered_does_not_wait() -> None:
    waiting = Waiting()
    waiting.entered(10, stored("a"))
    waiting.entered(20, stored("b"))
    waiting.delivered(10, stored("a"))
    assert waiting.done() == [10]


def test_a_recall_counts_for_copies_that_roll_after_it() -> None:
    waiting = Waiting()
    waiting.entered(10, stored("a"))
    waiting.entered(20, stored("a", TIMER_DEL_UNIQKEY="a"))
    waiting.entered(30, stored("a", TIMER_ROLL_TIMES="1"))
    waiting.entered(40, stored("a", TIMER_DEL_UNIQKEY="a", TIMER_ROLL_TIMES="1"))
    waiting.entered(50, stored("a", TIMER_ROLL_TIMES="2"))
    assert sorted(waiting.done()) == [10, 20, 30, 50]


def test_a_recall_by_topic_is_about_that_topic() -> None:
    waiting = Waiting()
    waiting.entered(10, stored("a"))
    waiting.entered(20, stored("a", REAL_TOPIC="bills"))
    waiting.entered(30, stored("a", TIMER_DEL_UNIQKEY="orders+a"))
    assert waiting.done() == [10]


def test_a_recall_without_a_topic_is_about_its_own() -> None:
    waiting = Waiting()
    waiting.entered(10, stored("a"))
    waiting.entered(20, stored("a", REAL_TOPIC="bills"))
    waiting.entered(30, stored("a", REAL_TOPIC="bills", TIMER_DEL_UNIQKEY="a"))
    waiting.entered(40, stored("a", REAL_TOPIC="bills", TIMER_DEL_UNIQKEY="orders+a"))
    assert waiting.done() == [20]


def test_a_key_with_a_plus_is_a_key() -> None:
    waiting = Waiting()
    waiting.entered(10, stored("b"))
    waiting.entered(20, stored("a+b"))
    waiting.entered(30, stored("a+b", TIMER_DEL_UNIQKEY="a+b"))
    assert waiting.done() == [20]
