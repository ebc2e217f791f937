"""Features that are not here: whatever the properties say, a start says that they are missing."""

from kourou.broker.missing import without_effect
from kourou.broker.properties import Configuration, ProcessSettings, configure, to_properties
from kourou.broker.settings import BrokerSettings
from kourou.store.settings import StoreSettings

LIGHT = "enableLmq"
TURNED_ON = {LIGHT: "true"}


def test_a_start_with_such_a_property_is_warned_of() -> None:
    assert without_effect({}) == []
    assert without_effect({LIGHT: "false"}) == []
    (told,) = without_effect({LIGHT: " True "})
    assert told.startswith("enableLmq=True has no effect: light message queues"), told


def test_the_properties_are_taken_and_shown_all_the_same() -> None:
    made = configure(Configuration(BrokerSettings(), StoreSettings(), ProcessSettings(), {}), TURNED_ON)
    assert {key: to_properties(made)[key] for key in TURNED_ON} == TURNED_ON
