"""What is written down twice stays the same: options and settings, the client with and without asyncio."""

import inspect
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, get_type_hints

import pytest

import kourou
import kourou.client
import kourou.sync
from kourou import sync_admin
from kourou.client import ConsumerOptions, ConsumerSettings, admin

TWINS = [
    (kourou.client.Client, kourou.sync.Client),
    (kourou.client.Delivery, kourou.sync.Delivery),
    (kourou.client.TypedDelivery, kourou.sync.TypedDelivery),
    (kourou.client.Consumer, kourou.sync.Consumer),
    (kourou.client.TypedConsumer, kourou.sync.TypedConsumer),
    (kourou.client.LitePullConsumer, kourou.sync.LitePullConsumer),
    (kourou.client.PullConsumer, kourou.sync.PullConsumer),
    (kourou.client.Transaction, kourou.sync.Transaction),
    (kourou.client.Topic, kourou.sync.Topic),
]
ASYNC_ALONE = {
    # What the parts of a client use among themselves.
    *("session", "transactions", "requests", "tracer", "producer", "listen_with", "source", "started"),
    *("acked", "failed", "take", "locked", "begin_pulling", "starting_offset", "heartbeat", "topics", "route_changed"),
    *("rebalance_soon", "offer_alone", "enter_loop", "leave_loop", "check_open", "is_ending", "has_retry_topic"),
    *("kind", "group", "offer", "offer_next", "delivery", "how", "auto_commit", "leave_open"),
}


def public(kind: type) -> Iterator[str]:
    return (name for name in dir(kind) if not name.startswith("_") and name not in ASYNC_ALONE)


@pytest.mark.parametrize(("with_asyncio", "without"), TWINS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_the_same_methods_with_the_same_parameters(with_asyncio: Any, without: Any) -> None:
    for name in public(with_asyncio):
        assert hasattr(without, name), name
        one, other = inspect.getattr_static(with_asyncio, name), inspect.getattr_static(without, name)
        if inspect.isfunction(one):
            ours, theirs = (list(inspect.signature(method).parameters.values()) for method in (one, other))
            assert [(p.name, p.kind, p.default) for p in ours] == [(p.name, p.kind, p.default) for p in theirs], name


def test_connect_takes_the_same() -> None:
    assert inspect.signature(kourou.client.connect).parameters == inspect.signature(kourou.sync.connect).parameters


@pytest.mark.parametrize("part", ["Topics", "Groups", "Messages", "Brokers"])
def test_administration_has_the_same_methods(part: str) -> None:
    theirs, ours = getattr(admin, part), getattr(sync_admin, part)
    names = {name for name in vars(theirs) if not name.startswith("_")}
    assert names == {name for name in vars(ours) if not name.startswith("_")}
    for name in names:
        assert inspect.getattr_static(ours, name).__doc__ == getattr(theirs, name).__doc__


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
