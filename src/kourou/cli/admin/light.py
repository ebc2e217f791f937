"""Light topics: many small queues inside a topic of the type LITE."""

from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.admin.commands import (
    BrokerAddress,
    Cluster,
    Done,
    Facts,
    Many,
    Output,
    Rows,
    brokers_of,
    command,
    moment,
)

if TYPE_CHECKING:
    from kourou.client import Client
    from kourou.protocol.bodies import LiteLagInfo

Parent = Annotated[str, typer.Option("--parentTopic", "-p", help="Topic that has the light topics.")]
GroupOption = Annotated[str, typer.Option("--group", "-g", help="Consumer group.")]


async def _masters(mq: "Client", topic: str) -> dict[str, str]:
    """The masters that serve a topic: address by name."""
    route = await mq.admin.topics.route(topic)
    return {data.broker_name or "": data.broker_addrs[0] for data in route.broker_datas if 0 in data.broker_addrs}


@command("getBrokerLiteInfo")
async def light_counts(
    mq: "Client",
    broker: BrokerAddress = None,
    cluster: Cluster = None,
    detail: Annotated[bool, typer.Option("--showDetail", "-d", help="Show topics and groups.")] = False,
) -> Output:
    """Show how many light topics brokers have."""
    outputs: list[Output] = []
    for address in await brokers_of(mq, broker, cluster):
        found = await mq.admin.light.counts(address)
        facts: dict[str, object] = {
            "Broker": address,
            "StoreType": found.store_type,
            "MaxLmqNum": found.max_lmq_num,
            "CurrentLmqNum": found.current_lmq_num,
            "LiteSubscriptionCount": found.lite_subscription_count,
            "OrderInfoCount": found.order_info_count,
            "CqTableSize": found.cq_table_size,
            "OffsetTableSize": found.offset_table_size,
            "EventMapSize": found.event_map_size,
        }
        if detail:
            facts |= {"TopicMeta": found.topic_meta, "GroupMeta": found.group_meta}
        outputs.append(Facts(facts))
    return Many(outputs)


@command("getParentTopicInfo")
async def light_parent(mq: "Client", parent: Parent) -> Output:
    """Show a topic that has light topics."""
    rows = []
    for name, address in (await _masters(mq, parent)).items():
        found = await mq.admin.light.parent(address, parent)
        rows.append([name, found.topic, found.ttl, found.lite_topic_count, found.lmq_num, found.groups])
    return Rows(["#Broker Name", "#Topic", "#TTL", "#Lite Topics", "#Lmq Num", "#Groups"], rows)


@command("getLiteTopicInfo")
async def light_topic(
    mq: "Client",
    parent: Parent,
    topic: Annotated[str, typer.Option("--liteTopic", "-l", help="Light topic.")],
    clients: Annotated[bool, typer.Option("--showClientId", "-s", help="Show the client ids.")] = False,
) -> Output:
    """Show a light topic and its subscribers."""
    rows = []
    for name, address in (await _masters(mq, parent)).items():
        found = await mq.admin.light.topic(address, parent, topic)
        ends = found.topic_offset
        subscribers = found.subscriber or []
        shown: object = [one.client_id for one in subscribers] if clients else len(subscribers)
        span = (None, None) if ends is None else (ends.min_offset, ends.max_offset)
        rows.append([name, found.sharding_to_broker, *span, shown])
    return Rows(["#Broker Name", "#Sharding", "#Min Offset", "#Max Offset", "#Subscribers"], rows)


@command("getLiteClientInfo")
async def light_client(
    mq: "Client",
    parent: Parent,
    group: GroupOption,
    client_id: Annotated[str, typer.Option("--clientId", "-c", help="Client id.")],
    detail: Annotated[bool, typer.Option("--showDetail", "-s", help="Show its light topics.")] = False,
) -> Output:
    """Show the light topics of a client."""
    rows = []
    for name, address in (await _masters(mq, parent)).items():
        found = await mq.admin.light.client(address, parent, group, client_id)
        topics: object = found.lite_topic_set if detail else found.lite_topic_count
        rows.append([name, topics, moment(found.last_access_time), moment(found.last_consume_time)])
    return Rows(["#Broker Name", "#Lite Topics", "#Last Access", "#Last Consume"], rows)


@command("getLiteGroupInfo")
async def light_group(
    mq: "Client",
    parent: Parent,
    group: GroupOption,
    topic: Annotated[str | None, typer.Option("--liteTopic", "-l", help="Only this light topic.")] = None,
    top: Annotated[int, typer.Option("--topK", "-k", min=1, help="Show this many, those with the largest lag.")] = 20,
) -> Output:
    """Show the lag of a group in light topics."""
    outputs: list[Output] = []
    for name, address in (await _masters(mq, parent)).items():
        found = await mq.admin.light.group(address, group, topic, top=top)
        summary = {"Broker": name, "Total Lag": found.total_lag_count}
        outputs.append(Rows(["#Lite Topic", "#Lag", "#Earliest"], _lags(found.lag_count_top_k), summary))
    return Many(outputs)


def _lags(found: "list[LiteLagInfo] | None") -> list[list[object]]:
    return [[one.lite_topic, one.lag_count, moment(one.earliest_unconsumed_timestamp)] for one in found or []]


@command("triggerLiteDispatch")
async def light_dispatch(
    mq: "Client",
    parent: Parent,
    group: GroupOption,
    client_id: Annotated[str | None, typer.Option("--clientId", "-c", help="Only this client.")] = None,
    broker: Annotated[str | None, typer.Option("--brokerName", "-b", help="Only this broker, by name.")] = None,
) -> Output:
    """Let brokers look for messages that the members of a group were not notified of."""
    for name, address in (await _masters(mq, parent)).items():
        if broker in (None, name):
            await mq.admin.light.dispatch(address, group, client_id)
    return Done(f"brokers look for messages in the light topics of group {group}")
