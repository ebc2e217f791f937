"""Features that are not here: whatever the properties say, the refusal says that they are missing."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from kourou.broker.missing import SQL_FILTERS, TIMERS, refusal, without_effect
from kourou.broker.properties import Configuration, ProcessSettings, configure, to_properties
from kourou.broker.settings import BrokerSettings
from kourou.client import Client, RefusedError, connect
from kourou.embedded import Embedded
from kourou.store.settings import StoreSettings

TURNED_ON = {TIMERS: "true", SQL_FILTERS: "true"}


async def timers(mq: Client) -> None:
    await mq.send("t", b"x", delay=timedelta(seconds=1))


async def sql_filters(mq: Client) -> None:
    await mq.consume("t", group="g", sql="a > 1").start()


async def sql_pulls(mq: Client) -> None:
    puller = mq.pull(group="g")
    queue, *_ = await puller.queues("t")
    await puller.pull(queue, 0, sql="a > 1")


@pytest.mark.parametrize("given", [{}, TURNED_ON], ids=["by default", "turned on"])
@pytest.mark.parametrize(
    ("use", "key"),
    [(timers, TIMERS), (sql_filters, SQL_FILTERS), (sql_pulls, SQL_FILTERS)],
)
async def test_a_refusal_says_that_the_feature_is_missing(
    use: Callable[[Client], Awaitable[None]], key: str, given: dict[str, str]
) -> None:
    async with Embedded(properties=given) as broker, connect(broker.namesrv) as mq:
        await mq.send("t", b"x")
        with pytest.raises(RefusedError) as caught:
            await use(mq)
        assert refusal(key) in str(caught.value)
        assert "not in this broker yet" in str(caught.value)
        assert "false" not in str(caught.value) and "true" not in str(caught.value)
        assert not caught.value.retriable


def test_a_start_with_such_a_property_is_warned_of() -> None:
    assert without_effect({}) == []
    assert without_effect({TIMERS: "false", SQL_FILTERS: "FALSE"}) == []
    told = without_effect({**TURNED_ON, SQL_FILTERS: " True "})
    assert len(told) == 2
    assert "enablePropertyFilter=True has no effect: SQL filters are not in this broker yet" in told


def test_the_properties_are_taken_and_shown_all_the_same() -> None:
    made = configure(Configuration(BrokerSettings(), StoreSettings(), ProcessSettings(), {}), TURNED_ON)
    assert {key: to_properties(made)[key] for key in TURNED_ON} == TURNED_ON
