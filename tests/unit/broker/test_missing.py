"""Features that are not here: whatever the properties say, the refusal says that they are missing."""

from datetime import timedelta

import pytest

from kourou.broker.missing import TIMERS, refusal, without_effect
from kourou.broker.properties import Configuration, ProcessSettings, configure, to_properties
from kourou.broker.settings import BrokerSettings
from kourou.client import RefusedError, connect
from kourou.embedded import Embedded
from kourou.store.settings import StoreSettings

TURNED_ON = {TIMERS: "true"}


@pytest.mark.parametrize("given", [{}, TURNED_ON], ids=["by default", "turned on"])
async def test_a_refusal_says_that_the_feature_is_missing(given: dict[str, str]) -> None:
    async with Embedded(properties=given) as broker, connect(broker.namesrv) as mq:
        await mq.send("t", b"x")
        with pytest.raises(RefusedError) as caught:
            await mq.send("t", b"x", delay=timedelta(seconds=1))
        assert refusal(TIMERS) in str(caught.value)
        assert "not in this broker yet" in str(caught.value)
        assert "false" not in str(caught.value) and "true" not in str(caught.value)
        assert not caught.value.retriable


def test_a_start_with_such_a_property_is_warned_of() -> None:
    assert without_effect({}) == []
    assert without_effect({TIMERS: "false"}) == []
    (told,) = without_effect({TIMERS: " True "})
    assert told.startswith("timerWheelEnable=True has no effect: timers"), told


def test_the_properties_are_taken_and_shown_all_the_same() -> None:
    made = configure(Configuration(BrokerSettings(), StoreSettings(), ProcessSettings(), {}), TURNED_ON)
    assert {key: to_properties(made)[key] for key in TURNED_ON} == TURNED_ON
