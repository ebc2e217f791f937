"""Administration without asyncio: the methods of `kourou.client.admin`, each of which waits for its result.

Every method is written once, in `kourou.client.admin`. Its asynchronous iterators are lists here.
"""

from kourou.client.admin import (
    Admin as AsyncAdmin,
    Brokers as AsyncBrokers,
    Controllers as AsyncControllers,
    Groups as AsyncGroups,
    LightTopics as AsyncLightTopics,
    Messages as AsyncMessages,
    Raft as AsyncRaft,
    Topics as AsyncTopics,
)
from kourou.sync.loop import Loop
from kourou.sync.methods import Part, lists, waits


class Topics(Part[AsyncTopics]):
    """`mq.admin.topics`"""

    list = waits(AsyncTopics.list)
    route = waits(AsyncTopics.route)
    clusters = waits(AsyncTopics.clusters)
    stats = waits(AsyncTopics.stats)
    config = waits(AsyncTopics.config)
    all_configs = waits(AsyncTopics.all_configs)
    create = waits(AsyncTopics.create)
    create_all = waits(AsyncTopics.create_all)
    create_static = waits(AsyncTopics.create_static)
    move_static = waits(AsyncTopics.move_static)
    set_perm = waits(AsyncTopics.set_perm)
    delete = waits(AsyncTopics.delete)
    groups = waits(AsyncTopics.groups)
    set_order = waits(AsyncTopics.set_order)
    order = waits(AsyncTopics.order)
    remove_order = waits(AsyncTopics.remove_order)
    system = waits(AsyncTopics.system)


class Groups(Part[AsyncGroups]):
    """`mq.admin.groups`"""

    list = waits(AsyncGroups.list)
    configs = waits(AsyncGroups.configs)
    config = waits(AsyncGroups.config)
    create = waits(AsyncGroups.create)
    create_all = waits(AsyncGroups.create_all)
    set_mode = waits(AsyncGroups.set_mode)
    delete = waits(AsyncGroups.delete)
    forbid = waits(AsyncGroups.forbid)
    progress = waits(AsyncGroups.progress)
    broker_progress = waits(AsyncGroups.broker_progress)
    topics = waits(AsyncGroups.topics)
    time_spans = waits(AsyncGroups.time_spans)
    connections = waits(AsyncGroups.connections)
    running_info = waits(AsyncGroups.running_info)
    status = waits(AsyncGroups.status)
    consume_directly = waits(AsyncGroups.consume_directly)
    reset_queue = waits(AsyncGroups.reset_queue)
    reset_to_time = waits(AsyncGroups.reset_to_time)
    set_offset = waits(AsyncGroups.set_offset)
    skip_accumulated = waits(AsyncGroups.skip_accumulated)
    clone_offsets = waits(AsyncGroups.clone_offsets)


class Messages(Part[AsyncMessages]):
    """`mq.admin.messages`"""

    by_id = waits(AsyncMessages.by_id)
    by_offset_id = waits(AsyncMessages.by_offset_id)
    by_unique_key = waits(AsyncMessages.by_unique_key)
    by_key = waits(AsyncMessages.by_key)
    by_tag = waits(AsyncMessages.by_tag)
    by_offset = waits(AsyncMessages.by_offset)
    scan = lists(AsyncMessages.scan)
    by_time = lists(AsyncMessages.by_time)
    queue_entries = waits(AsyncMessages.queue_entries)
    resume_check = waits(AsyncMessages.resume_check)


class Brokers(Part[AsyncBrokers]):
    """`mq.admin.brokers`"""

    cluster = waits(AsyncBrokers.cluster)
    runtime = waits(AsyncBrokers.runtime)
    config = waits(AsyncBrokers.config)
    set_config = waits(AsyncBrokers.set_config)
    stats = waits(AsyncBrokers.stats)
    replication = waits(AsyncBrokers.replication)
    timers = waits(AsyncBrokers.timers)
    epochs = waits(AsyncBrokers.epochs)
    promote = waits(AsyncBrokers.promote)
    demote = waits(AsyncBrokers.demote)
    producers = waits(AsyncBrokers.producers)
    all_producers = waits(AsyncBrokers.all_producers)
    clean_expired_queues = waits(AsyncBrokers.clean_expired_queues)
    clean_unused_topics = waits(AsyncBrokers.clean_unused_topics)
    delete_expired_log = waits(AsyncBrokers.delete_expired_log)
    wipe_write_perm = waits(AsyncBrokers.wipe_write_perm)
    add_write_perm = waits(AsyncBrokers.add_write_perm)
    name_server_config = waits(AsyncBrokers.name_server_config)
    set_name_server_config = waits(AsyncBrokers.set_name_server_config)
    put_value = waits(AsyncBrokers.put_value)
    value = waits(AsyncBrokers.value)
    values = waits(AsyncBrokers.values)
    delete_value = waits(AsyncBrokers.delete_value)
    cold_data = waits(AsyncBrokers.cold_data)
    limit_cold_data = waits(AsyncBrokers.limit_cold_data)
    unlimit_cold_data = waits(AsyncBrokers.unlimit_cold_data)
    set_read_ahead = waits(AsyncBrokers.set_read_ahead)
    switch_timers = waits(AsyncBrokers.switch_timers)
    export_tables = waits(AsyncBrokers.export_tables)
    compare_queues = waits(AsyncBrokers.compare_queues)
    export_pop_records = waits(AsyncBrokers.export_pop_records)
    set_master_flush_offset = waits(AsyncBrokers.set_master_flush_offset)
    users = waits(AsyncBrokers.users)
    user = waits(AsyncBrokers.user)
    rule = waits(AsyncBrokers.rule)
    create_user = waits(AsyncBrokers.create_user)
    update_user = waits(AsyncBrokers.update_user)
    delete_user = waits(AsyncBrokers.delete_user)
    rules = waits(AsyncBrokers.rules)
    create_rule = waits(AsyncBrokers.create_rule)
    update_rule = waits(AsyncBrokers.update_rule)
    delete_rule = waits(AsyncBrokers.delete_rule)


class Controllers(Part[AsyncControllers]):
    """`mq.admin.controllers`"""

    metadata = waits(AsyncControllers.metadata)
    replicas = waits(AsyncControllers.replicas)
    config = waits(AsyncControllers.config)
    set_config = waits(AsyncControllers.set_config)
    elect_master = waits(AsyncControllers.elect_master)
    forget_replicas = waits(AsyncControllers.forget_replicas)
    add_broker = waits(AsyncControllers.add_broker)
    remove_broker = waits(AsyncControllers.remove_broker)


class LightTopics(Part[AsyncLightTopics]):
    """`mq.admin.light`"""

    counts = waits(AsyncLightTopics.counts)
    parent = waits(AsyncLightTopics.parent)
    topic = waits(AsyncLightTopics.topic)
    client = waits(AsyncLightTopics.client)
    group = waits(AsyncLightTopics.group)
    dispatch = waits(AsyncLightTopics.dispatch)


class Raft(Part[AsyncRaft]):
    """`mq.admin.raft`"""

    status = waits(AsyncRaft.status)
    leader = waits(AsyncRaft.leader)
    transfer = waits(AsyncRaft.transfer)
    add = waits(AsyncRaft.add)
    remove = waits(AsyncRaft.remove)
    demote = waits(AsyncRaft.demote)


class Admin:
    """`mq.admin`"""

    def __init__(self, inner: AsyncAdmin, loop: Loop) -> None:
        self.topics = Topics(inner.topics, loop)
        self.groups = Groups(inner.groups, loop)
        self.messages = Messages(inner.messages, loop)
        self.brokers = Brokers(inner.brokers, loop)
        self.controllers = Controllers(inner.controllers, loop)
        self.light = LightTopics(inner.light, loop)
        self.raft = Raft(inner.raft, loop)


__all__ = ["Admin", "Brokers", "Controllers", "Groups", "LightTopics", "Messages", "Raft", "Topics"]
