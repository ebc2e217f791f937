"""Steps of the client suite that end when their effect shows: Apache's broker answers before it does."""

from tests.waiting import answered, becomes

from kourou.client import Client, NoRouteError
from kourou.protocol.bodies import TopicRouteData


async def route_of(mq: Client, topic: str) -> TopicRouteData | None:
    """The route of a topic at the name server; None if it has none."""
    try:
        return await mq.admin.topics.route(topic)
    except NoRouteError:
        return None


async def make_topic(mq: Client, topic: str, queues: int = 8) -> None:
    """Make a topic, and wait until the name server knows it: before that, clients send to the queues of the default
    topic, and consumers find none.
    """
    await mq.admin.topics.create(topic, queues=queues)

    async def is_known() -> bool:
        route = await route_of(mq, topic)
        return route is not None and all(queue.write_queue_nums == queues for queue in route.queue_datas)

    await answered(is_known)


async def until_stored(mq: Client, topic: str, count: int) -> None:
    """Until consumers can see so many messages of a topic: a send is answered before."""

    async def stored() -> int:
        if await route_of(mq, topic) is None:
            return 0
        return sum(offset.max_offset for offset in (await mq.admin.topics.stats(topic)).values())

    await becomes(stored, count)


async def until_caught_up(mq: Client, group: str, topic: str) -> None:
    """Until the broker knows that a group has consumed all: offsets are stored without an answer."""

    async def is_caught_up() -> bool:
        progress = await mq.admin.groups.progress(group, topic)
        return bool(progress.queues) and not progress.lag

    await answered(is_caught_up)
