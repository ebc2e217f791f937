"""Settings of consumer groups."""

from kourou.protocol.bodies.base import Body, always
from kourou.protocol.bodies.topics import DataVersion
from kourou.protocol.java import Int32, Int64


class ExponentialRetryPolicy(Body):
    """Each delay is `multiplier` times the previous one."""

    initial: Int64 = always(5_000)
    max: Int64 = always(7_200_000)
    multiplier: Int64 = always(2)


_SECOND, _MINUTE, _HOUR = 1_000, 60_000, 3_600_000
_DELAY_LEVELS_MS = (
    *(seconds * _SECOND for seconds in (1, 5, 10, 30)),
    *(minutes * _MINUTE for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    *(hours * _HOUR for hours in (1, 2)),
)


class CustomizedRetryPolicy(Body):
    """The delays in ms. By default those of the delay levels, starting with the first."""

    next: tuple[Int64, ...] = always(_DELAY_LEVELS_MS)


class GroupRetryPolicy(Body):
    """How long a message waits before each retry."""

    type: str = always("CUSTOMIZED")
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SimpleSubscriptionData(Body):
    """A subscription that is part of the group's settings."""

    topic: str | None = None
    expression_type: str | None = None
    expression: str | None = None
    version: Int64 = always(0)


class SubscriptionGroupConfig(Body):
    """The settings of a consumer group."""

    group_name: str | None = None
    consume_enable: bool = always(True)
    consume_from_min_enable: bool = always(True)
    consume_broadcast_enable: bool = always(True)
    consume_message_orderly: bool = always(False)
    retry_queue_nums: Int32 = always(1)
    retry_max_times: Int32 = always(16)
    group_retry_policy: GroupRetryPolicy = always(GroupRetryPolicy)
    broker_id: Int64 = always(0)
    which_broker_when_consume_slowly: Int64 = always(1)
    notify_consumer_ids_changed_enable: bool = always(True)
    group_sys_flag: Int32 = always(0)
    consume_timeout_minute: Int32 = always(15)
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    attributes: dict[str, str] = always(dict)


class SubscriptionGroupList(Body):
    """Groups to create in one request."""

    group_config_list: list[SubscriptionGroupConfig] = always(list)


class SubscriptionGroupWrapper(Body):
    """A broker's groups, and which topics each may not read."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = always(dict)
    forbidden_table: dict[str, dict[str, Int32]] = always(dict)
    data_version: DataVersion = always(DataVersion)


class GroupForbidden(Body):
    """Whether a group may read a topic."""

    topic: str | None = None
    group: str | None = None
    readable: bool | None = None
