"""Static topics: queues that are numbered across brokers, and keep their numbers when they move."""

from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.admin.commands import Output, Rows, TopicName, command
from kourou.cli.running import CommandError

if TYPE_CHECKING:
    from kourou.client import Client
    from kourou.client.admin.static_plans import Plan

Brokers = Annotated[str | None, typer.Option("--brokers", "-b", help="Broker names, separated by commas.")]
Clusters = Annotated[str | None, typer.Option("--clusters", "-c", help="Clusters, separated by commas.")]
MapFile = Annotated[str | None, typer.Option("--mapFile", "-mf", help="Not supported: a mapping in a file.")]
Force = Annotated[str | None, typer.Option("--forceReplace", "-fr", help="Not supported: with -mf only.")]


async def _names(
    mq: "Client", brokers: str | None, clusters: str | None, file: str | None, force: str | None
) -> set[str]:
    if file is not None or force is not None:
        raise CommandError("mappings in files are not supported: use mqadmin for -mf and -fr")
    if (brokers is None) == (clusters is None):
        raise typer.BadParameter("give either brokers (-b) or clusters (-c)")
    if brokers is not None:
        return {word.strip() for word in brokers.split(",") if word.strip()}
    table = (await mq.admin.brokers.cluster()).cluster_addr_table
    found: set[str] = set()
    for word in filter(None, (part.strip() for part in (clusters or "").split(","))):
        if word not in table:
            raise CommandError(f"cluster {word!r} does not exist; there are: {', '.join(sorted(table))}")
        found |= set(table[word])
    return found


@command("updateStaticTopic")
async def update_static_topic(
    mq: "Client",
    topic: TopicName,
    queues: Annotated[int, typer.Option("--totalQueueNum", "-qn", min=1, help="Queues on all brokers together.")],
    brokers: Brokers = None,
    clusters: Clusters = None,
    file: MapFile = None,
    force: Force = None,
) -> Output:
    """Create a static topic, or add queues to it."""
    names = await _names(mq, brokers, clusters, file, force)
    return _queues(await mq.admin.topics.create_static(topic, queues, names))


@command("remappingStaticTopic")
async def move_static_topic(
    mq: "Client",
    topic: TopicName,
    brokers: Brokers = None,
    clusters: Clusters = None,
    file: MapFile = None,
    force: Force = None,
) -> Output:
    """Spread the queues of a static topic over other brokers."""
    names = await _names(mq, brokers, clusters, file, force)
    return _queues(await mq.admin.topics.move_static(topic, names))


def _queues(plan: "Plan") -> Output:
    from kourou.client.admin.static_plans import leaders_of

    rows: list[list[object]] = []
    for number, name in sorted(leaders_of(plan).items()):
        detail = plan[name].mapping_detail
        assert detail is not None
        piece = detail.hosted_queues[number][-1]
        rows.append([number, name, piece.queue_id, piece.logic_offset])
    return Rows(["#QID", "#Broker Name", "#Queue There", "#First Offset"], rows)
