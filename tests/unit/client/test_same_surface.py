"""What is written down twice stays the same: options and settings, the client with and without asyncio."""

import inspect
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, get_type_hints

import pytest

import kourou
import kourou.client
import kourou.sync
import kourou.sync.admin
from kourou.client import ConsumerOptions, ConsumerSettings, admin

TWINS = [
    (kourou.client.Client, kourou.sync.Client),
    (kourou.client.Delivery, kourou.sync.Delivery),
    (kourou.client.TypedDelivery, kourou.sync.TypedDelivery),
    (kourou.client.Consumer, kourou.sync.Consumer),
    (kourou.client.TypedConsumer, kourou.sync.TypedConsumer),
    (kourou.client.LitePullConsumer, kourou.sync.LitePullConsumer),
    (kourou.client.PullConsumer, kourou.sync.PullConsumer),
    (kourou.client.Producer, kourou.sync.Producer),
    (kourou.client.Transaction, kourou.sync.Transaction),
    (kourou.client.Topic, kourou.sync.Topic),
    *((getattr(admin, part), getattr(kourou.sync.admin, part)) for part in ("Topics", "Groups", "Messages", "Brokers")),
]
ASYNC_ALONE = {
    # What the parts of a client use among themselves.
    *("session", "transactions", "requests", "tracer", "listen_with", "source", "started"),
    *("acked", "failed", "take", "begin_pulling", "starting_offset", "heartbeat", "topics", "route_changed"),
    *(
        "rebalance_soon",
        "offer_alone",
        "enter_loop",
        "leave_loop",
        "abandon",
        "check_open",
        "is_ending",
        "has_retry_topic",
    ),
    *(
        "kind",
        "group",
        "offer",
        "ordered",
        "settle",
        "put_down",
        "wrapped",
        "released",
        "delivery",
        "how",
        "auto_commit",
        "draft",
        "send_draft",
        "has_left",
    ),
}


OWN_WORDS = {("Delivery", "process"), ("TypedDelivery", "process"), ("Client", "listen"), ("Client", "admin")}
"""Their docstrings say something else: `with` in place of `async with`, threads in place of tasks."""


def public(kind: type) -> Iterator[str]:
    return (name for name in dir(kind) if not name.startswith("_") and name not in ASYNC_ALONE)


twins = pytest.mark.parametrize(
    ("with_asyncio", "without"), TWINS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}"
)


@twins
def test_the_same_methods_with_the_same_parameters(with_asyncio: Any, without: Any) -> None:
    for name in public(with_asyncio):
        assert hasattr(without, name), name
        if inspect.isfunction(getattr(with_asyncio, name)):
            one, other = (
                inspect.signature(getattr(kind, name)).parameters.values() for kind in (with_asyncio, without)
            )
            assert [(p.name, p.kind, p.default) for p in one] == [(p.name, p.kind, p.default) for p in other], name


@twins
def test_the_same_words(with_asyncio: Any, without: Any) -> None:
    """Every method has a docstring, and so has every property whose name does not say all."""
    for name in public(with_asyncio):
        one, other = getattr(with_asyncio, name), getattr(without, name)
        if (without.__name__, name) in OWN_WORDS:
            assert one.__doc__ and other.__doc__ and one.__doc__ != other.__doc__
        elif inspect.isfunction(one) or (isinstance(one, property) and one.__doc__):
            assert inspect.getdoc(other), name
            assert inspect.getdoc(one) == inspect.getdoc(other), name


@twins
def test_the_twin_has_nothing_else(with_asyncio: Any, without: Any) -> None:
    others = {name for name in public(without) if not hasattr(with_asyncio, name)}
    assert others <= {"run", "start", "inner", "name", "serializer"}


def test_connect_takes_the_same() -> None:
    assert inspect.signature(kourou.client.connect).parameters == inspect.signature(kourou.sync.connect).parameters
    assert kourou.client.connect.__doc__ == kourou.sync.connect.__doc__


def test_a_method_is_shown_as_what_it_gives() -> None:
    assert inspect.signature(kourou.sync.Client.consume).return_annotation is kourou.sync.Consumer
    assert not inspect.iscoroutinefunction(kourou.sync.Client.send)


def test_options_are_settings() -> None:
    options, settings = get_type_hints(ConsumerOptions), get_type_hints(ConsumerSettings)
    assert options == settings
    assert list(options) == [one.name for one in fields(ConsumerSettings)]


def test_what_the_package_offers() -> None:
    for name in kourou.__all__:
        assert getattr(kourou, name) is not None
    assert kourou.RetryLater is kourou.client.RetryLater
    assert kourou.DeadLetter is kourou.client.DeadLetter
    assert sorted(kourou.client.__all__) == sorted(set(kourou.client.__all__))
    for name in kourou.client.__all__:
        assert hasattr(kourou.client, name)
