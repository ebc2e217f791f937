"""Administration without asyncio: the methods of `kourou.client.admin`, each of which waits for its result.

Every method is written once, in `kourou.client.admin`. What is an asynchronous iterator there is a list here.
"""

from kourou.client.admin import (
    Admin as AsyncAdmin,
    Brokers as AsyncBrokers,
    Groups as AsyncGroups,
    Messages as AsyncMessages,
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
    epochs = waits(AsyncBrokers.epochs)
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
    users = waits(AsyncBrokers.users)
    create_user = waits(AsyncBrokers.create_user)
    update_user = waits(AsyncBrokers.update_user)
    delete_user = waits(AsyncBrokers.delete_user)
    rules = waits(AsyncBrokers.rules)
    create_rule = waits(AsyncBrokers.create_rule)
    update_rule = waits(AsyncBrokers.update_rule)
    delete_rule = waits(AsyncBrokers.delete_rule)


class Admin:
    """`mq.admin`"""

    def __init__(self, inner: AsyncAdmin, loop: Loop) -> None:
        self.topics = Topics(inner.topics, loop)
        self.groups = Groups(inner.groups, loop)
        self.messages = Messages(inner.messages, loop)
        self.brokers = Brokers(inner.brokers, loop)


__all__ = ["Admin", "Brokers", "Groups", "Messages", "Topics"]
