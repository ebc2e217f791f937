"""Request code to the function that serves it, for all administrative requests."""

from collections.abc import Callable
from typing import Any

from kourou.broker.access import Access
from kourou.broker.admin.absent import AbsentRequests
from kourou.broker.admin.clients import ClientRequests
from kourou.broker.admin.config import ConfigRequests
from kourou.broker.admin.entries import EntryRequests
from kourou.broker.admin.groups import GroupRequests
from kourou.broker.admin.offsets import OffsetRequests
from kourou.broker.admin.progress import ProgressRequests
from kourou.broker.admin.runtime import RuntimeRequests
from kourou.broker.admin.topics import TopicRequests
from kourou.broker.clients import Clients
from kourou.broker.consumer_filters import ConsumerFilters
from kourou.broker.delays import Delays
from kourou.broker.events import Outbox
from kourou.broker.groups import Groups
from kourou.broker.long_polls import LongPolls
from kourou.broker.message_writer import MessageWriter
from kourou.broker.offsets import Offsets
from kourou.broker.properties import Configuration
from kourou.broker.relays import Relays
from kourou.broker.replication import Replication
from kourou.broker.request_bodies import RequestBodies
from kourou.broker.static_topics import StaticTopics
from kourou.broker.stats import Stats
from kourou.broker.topics import Topics
from kourou.protocol.codes import RequestCode
from kourou.store.store import Store


def admin_requests(
    configuration: Configuration,
    store: Store,
    topics: Topics,
    static: StaticTopics,
    groups: Groups,
    clients: Clients,
    offsets: Offsets,
    filters: ConsumerFilters,
    delays: Delays,
    timer_figures: Callable[[int], dict[str, str]],
    stats: Stats,
    writer: MessageWriter,
    polls: LongPolls,
    outbox: Outbox,
    bodies: RequestBodies,
    replication: Replication,
    now_ms: int,
    faults: Callable[[], int],
    access: Access,
) -> dict[int, Callable[[Any], Any]]:
    """Pass each family the parts that it needs."""
    settings, reader = configuration.broker, store.reader
    of_topics = TopicRequests(settings, topics, static, offsets, stats, store, bodies)
    of_groups = GroupRequests(settings, groups, offsets, stats, bodies)
    of_offsets = OffsetRequests(
        settings, reader, topics, groups, clients, offsets, polls, outbox, lambda: delays.wrapper().encode()
    )
    progress = ProgressRequests(settings, reader, topics, groups, clients, offsets, stats)
    of_clients = ClientRequests(clients)
    entries = EntryRequests(store.queues, clients, filters)
    runtime = RuntimeRequests(
        settings, store, stats, writer, polls, delays.offsets, replication, timer_figures, now_ms, faults
    )
    config = ConfigRequests(configuration, topics, store, now_ms)
    absent = AbsentRequests(settings, topics, offsets, store)
    relays = Relays(settings, reader, topics, groups, clients, outbox, access)
    return {
        RequestCode.UPDATE_AND_CREATE_TOPIC: of_topics.update,
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: of_topics.update_static,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: of_topics.update_all,
        RequestCode.DELETE_TOPIC_IN_BROKER: of_topics.delete,
        RequestCode.GET_TOPIC_CONFIG: of_topics.show,
        RequestCode.GET_ALL_TOPIC_CONFIG: of_topics.show_all,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: of_topics.show_system,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: of_groups.update,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: of_groups.update_all,
        RequestCode.DELETE_SUBSCRIPTIONGROUP: of_groups.delete,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: of_groups.forbid,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: of_groups.show,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: of_groups.show_all,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: of_offsets.reset,
        RequestCode.CLONE_GROUP_OFFSET: of_offsets.clone,
        RequestCode.QUERY_CORRECTION_OFFSET: of_offsets.correction,
        RequestCode.GET_ALL_CONSUMER_OFFSET: of_offsets.show_all,
        RequestCode.GET_ALL_DELAY_OFFSET: of_offsets.show_delays,
        RequestCode.GET_TOPIC_STATS_INFO: progress.topic,
        RequestCode.GET_CONSUME_STATS: progress.group,
        RequestCode.GET_BROKER_CONSUME_STATS: progress.all_groups,
        RequestCode.QUERY_CONSUME_TIME_SPAN: progress.time_span,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: progress.groups_of_topic,
        RequestCode.QUERY_TOPICS_BY_CONSUMER: progress.topics_of_group,
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: progress.subscription,
        RequestCode.GET_CONSUMER_CONNECTION_LIST: of_clients.consumers,
        RequestCode.GET_PRODUCER_CONNECTION_LIST: of_clients.producers,
        RequestCode.GET_ALL_PRODUCER_INFO: of_clients.all_producers,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: relays.status,
        RequestCode.GET_CONSUMER_RUNNING_INFO: relays.running_info,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: relays.consume_directly,
        RequestCode.QUERY_CONSUME_QUEUE: entries.show,
        RequestCode.GET_BROKER_RUNTIME_INFO: runtime.show,
        RequestCode.VIEW_BROKER_STATS_DATA: runtime.show_counter,
        RequestCode.GET_BROKER_HA_STATUS: runtime.show_replication,
        RequestCode.EXCHANGE_BROKER_HA_INFO: runtime.show_master,
        RequestCode.GET_BROKER_CONFIG: config.show,
        RequestCode.UPDATE_BROKER_CONFIG: config.update,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: config.remove_expired_queues,
        RequestCode.CLEAN_UNUSED_TOPIC: config.remove_unused_topics,
        RequestCode.DELETE_EXPIRED_COMMITLOG: config.remove_expired_segments,
        RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: absent.show_cold,
        RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: absent.limit_cold,
        RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: absent.unlimit_cold,
        RequestCode.SET_COMMITLOG_READ_MODE: absent.read_ahead,
        RequestCode.RESET_MASTER_FLUSH_OFFSET: absent.accept,
        RequestCode.POP_ROLLBACK: absent.accept,
        RequestCode.SWITCH_TIMER_ENGINE: absent.switch_timers,
        RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: absent.check_rocksdb,
        RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: absent.export_rocksdb,
        RequestCode.GET_BROKER_LITE_INFO: absent.light,
        RequestCode.GET_PARENT_TOPIC_INFO: absent.light_topic,
        RequestCode.GET_LITE_TOPIC_INFO: absent.light_topic,
        RequestCode.GET_LITE_CLIENT_INFO: absent.light_topic,
        RequestCode.GET_LITE_GROUP_INFO: absent.light_group,
        RequestCode.TRIGGER_LITE_DISPATCH: absent.light_group,
    }
