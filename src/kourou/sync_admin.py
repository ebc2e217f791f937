"""Administration without asyncio: the methods of `kourou.client.admin`, each of which waits for its result.

Every method is written down once, in `kourou.client.admin`; here it gets another kind of call. Type checkers see its
parameters and its result. A test compares the names with those of `kourou.client.admin`.
"""

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from kourou.client.admin import (
    Admin as AsyncAdmin,
    Brokers as AsyncBrokers,
    Groups as AsyncGroups,
    Messages as AsyncMessages,
    Topics as AsyncTopics,
)

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")


class Run(Protocol):
    """Runs a coroutine on the client's event loop and waits for what it returns."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T: ...


class _Part:
    """One of the four parts of an admin."""

    def __init__(self, inner: Any, run: Run) -> None:
        self._inner = inner
        self._run = run


class _waits(Generic[P, T]):  # noqa: N801 - reads as a verb where it is used
    """A method that waits for the coroutine method of the same name."""

    def __init__(self, method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> None:
        self._method: Callable[..., Coroutine[Any, Any, T]] = method
        self.__doc__ = method.__doc__

    def __get__(self, part: _Part, owner: type[_Part]) -> Callable[P, T]:
        def call(*arguments: P.args, **options: P.kwargs) -> T:
            return part._run(self._method(part._inner, *arguments, **options))

        call.__doc__ = self.__doc__
        return call


class _lists(Generic[P, T]):  # noqa: N801
    """A method that gives as a list what the asynchronous iterator of the same name gives."""

    def __init__(self, method: Callable[Concatenate[S, P], AsyncIterator[T]]) -> None:
        self._method: Callable[..., AsyncIterator[T]] = method
        self.__doc__ = method.__doc__

    def __get__(self, part: _Part, owner: type[_Part]) -> Callable[P, list[T]]:
        def call(*arguments: P.args, **options: P.kwargs) -> list[T]:
            async def work() -> list[T]:
                return [item async for item in self._method(part._inner, *arguments, **options)]

            return part._run(work())

        call.__doc__ = self.__doc__
        return call


class Topics(_Part):
    """`mq.admin.topics`"""

    list = _waits(AsyncTopics.list)
    route = _waits(AsyncTopics.route)
    clusters = _waits(AsyncTopics.clusters)
    stats = _waits(AsyncTopics.stats)
    config = _waits(AsyncTopics.config)
    all_configs = _waits(AsyncTopics.all_configs)
    create = _waits(AsyncTopics.create)
    set_perm = _waits(AsyncTopics.set_perm)
    delete = _waits(AsyncTopics.delete)
    groups = _waits(AsyncTopics.groups)
    set_order = _waits(AsyncTopics.set_order)
    order = _waits(AsyncTopics.order)
    remove_order = _waits(AsyncTopics.remove_order)
    system = _waits(AsyncTopics.system)


class Groups(_Part):
    """`mq.admin.groups`"""

    list = _waits(AsyncGroups.list)
    configs = _waits(AsyncGroups.configs)
    config = _waits(AsyncGroups.config)
    create = _waits(AsyncGroups.create)
    delete = _waits(AsyncGroups.delete)
    forbid = _waits(AsyncGroups.forbid)
    progress = _waits(AsyncGroups.progress)
    broker_progress = _waits(AsyncGroups.broker_progress)
    topics = _waits(AsyncGroups.topics)
    time_spans = _waits(AsyncGroups.time_spans)
    connections = _waits(AsyncGroups.connections)
    running_info = _waits(AsyncGroups.running_info)
    status = _waits(AsyncGroups.status)
    consume_directly = _waits(AsyncGroups.consume_directly)
    reset_to_time = _waits(AsyncGroups.reset_to_time)
    set_offset = _waits(AsyncGroups.set_offset)
    skip_accumulated = _waits(AsyncGroups.skip_accumulated)
    clone_offsets = _waits(AsyncGroups.clone_offsets)


class Messages(_Part):
    """`mq.admin.messages`"""

    by_id = _waits(AsyncMessages.by_id)
    by_offset_id = _waits(AsyncMessages.by_offset_id)
    by_unique_key = _waits(AsyncMessages.by_unique_key)
    by_key = _waits(AsyncMessages.by_key)
    by_offset = _waits(AsyncMessages.by_offset)
    scan = _lists(AsyncMessages.scan)
    by_time = _lists(AsyncMessages.by_time)
    queue_entries = _waits(AsyncMessages.queue_entries)
    resume_check = _waits(AsyncMessages.resume_check)


class Brokers(_Part):
    """`mq.admin.brokers`"""

    cluster = _waits(AsyncBrokers.cluster)
    runtime = _waits(AsyncBrokers.runtime)
    config = _waits(AsyncBrokers.config)
    set_config = _waits(AsyncBrokers.set_config)
    stats = _waits(AsyncBrokers.stats)
    replication = _waits(AsyncBrokers.replication)
    epochs = _waits(AsyncBrokers.epochs)
    producers = _waits(AsyncBrokers.producers)
    all_producers = _waits(AsyncBrokers.all_producers)
    clean_expired_queues = _waits(AsyncBrokers.clean_expired_queues)
    clean_unused_topics = _waits(AsyncBrokers.clean_unused_topics)
    delete_expired_log = _waits(AsyncBrokers.delete_expired_log)
    wipe_write_perm = _waits(AsyncBrokers.wipe_write_perm)
    add_write_perm = _waits(AsyncBrokers.add_write_perm)
    name_server_config = _waits(AsyncBrokers.name_server_config)
    set_name_server_config = _waits(AsyncBrokers.set_name_server_config)
    put_value = _waits(AsyncBrokers.put_value)
    value = _waits(AsyncBrokers.value)
    values = _waits(AsyncBrokers.values)
    delete_value = _waits(AsyncBrokers.delete_value)
    users = _waits(AsyncBrokers.users)
    create_user = _waits(AsyncBrokers.create_user)
    update_user = _waits(AsyncBrokers.update_user)
    delete_user = _waits(AsyncBrokers.delete_user)
    rules = _waits(AsyncBrokers.rules)
    create_rule = _waits(AsyncBrokers.create_rule)
    update_rule = _waits(AsyncBrokers.update_rule)
    delete_rule = _waits(AsyncBrokers.delete_rule)


class Admin:
    """`mq.admin`"""

    def __init__(self, inner: AsyncAdmin, run: Run) -> None:
        self.topics = Topics(inner.topics, run)
        self.groups = Groups(inner.groups, run)
        self.messages = Messages(inner.messages, run)
        self.brokers = Brokers(inner.brokers, run)


__all__ = ["Admin", "Brokers", "Groups", "Messages", "Topics"]
