"""Brokers and name servers: listing them, their state and settings, housekeeping, users and access rules."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from kourou.client.admin.requests import AdminRequests, properties
from kourou.protocol import conf_text, fastjson
from kourou.protocol.bodies import (
    AclInfo,
    BrokerStatsData,
    ClusterInfo,
    ColdDataFlowCtrInfo,
    EpochEntryCache,
    HARuntimeInfo,
    KVTable,
    ProducerConnection,
    ProducerTableInfo,
    TimerMetricsSerializeWrapper,
    UserInfo,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.errors import KourouError, QueryNotFoundError, refused
from kourou.protocol.headers import (
    AddWritePerm,
    AddWritePermAnswer,
    CheckRocksdbCqWriteProgress,
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteKVConfig,
    DeleteUser,
    DemoteBroker,
    ExportRocksDBConfigToJson,
    GetAcl,
    GetKVConfig,
    GetKVConfigAnswer,
    GetKVListByNamespace,
    GetProducerConnectionList,
    GetUser,
    Header,
    ListAcls,
    ListUsers,
    PromoteBroker,
    PutKVConfig,
    ResetMasterFlushOffset,
    SetCommitLogReadMode,
    SwitchTimerEngine,
    UpdateAcl,
    UpdateUser,
    ViewBrokerStatsData,
    WipeWritePerm,
    WipeWritePermAnswer,
)

OTHERS_TIMEOUT = 1.0
"""How long a promotion waits for the epochs and ends of the logs of the group's other brokers."""


class Brokers:
    """`mq.admin.brokers`. Brokers are named by their address, `host:port`."""

    def __init__(self, requests: AdminRequests) -> None:
        self._ask = requests

    async def cluster(self) -> ClusterInfo:
        """All brokers and clusters that the name server knows."""
        return await self._ask.cluster()

    async def runtime(self, broker: str) -> dict[str, str]:
        """The state of a broker: version, rates, sizes, offsets."""
        return (await self._ask.body(KVTable, broker, RequestCode.GET_BROKER_RUNTIME_INFO)).table

    async def config(self, broker: str) -> dict[str, str]:
        """A broker's settings."""
        return properties((await self._ask.broker(broker, RequestCode.GET_BROKER_CONFIG)).body)

    async def set_config(
        self, settings: Mapping[str, str], *, broker: str | None = None, cluster: str | None = None
    ) -> None:
        """Change settings of one broker, or of all masters of a cluster."""
        body = conf_text.dumps(dict(settings)).encode()
        for address in await self._ask.masters(cluster, broker):
            await self._ask.broker(address, RequestCode.UPDATE_BROKER_CONFIG, body=body)

    async def stats(self, broker: str, name: str, key: str) -> BrokerStatsData:
        """One of a broker's counters: TOPIC_PUT_NUMS of a topic, GROUP_GET_NUMS of `topic@group`, and so on."""
        header = ViewBrokerStatsData(stats_name=name, stats_key=key)
        return await self._ask.body(BrokerStatsData, broker, RequestCode.VIEW_BROKER_STATS_DATA, header)

    async def replication(self, broker: str) -> HARuntimeInfo:
        """A master's slaves and their progress, or a slave's own state."""
        return await self._ask.body(HARuntimeInfo, broker, RequestCode.GET_BROKER_HA_STATUS)

    async def timers(self, broker: str) -> TimerMetricsSerializeWrapper:
        """How many timed messages of each topic wait at a broker."""
        return await self._ask.body(TimerMetricsSerializeWrapper, broker, RequestCode.GET_TIMER_METRICS)

    async def epochs(self, broker: str) -> EpochEntryCache:
        """Which master wrote which part of a broker's log."""
        return await self._ask.body(EpochEntryCache, broker, RequestCode.GET_BROKER_EPOCH_CACHE)

    async def promote(self, broker: str, *, force: bool = False) -> str:
        """Make a slave the master of its group. Returns the broker's remark. Raises RefusedError.

        It is refused when messages may be lost, unless `force`: by the slave itself, and when another broker of the
        group has more of the log.
        """
        if not force:
            await self._check_others(broker)
        answer = await self._ask.broker(broker, RequestCode.PROMOTE_BROKER, PromoteBroker(force=force or None))
        return answer.remark or ""

    async def demote(self, broker: str, *, broker_id: int | None = None, force: bool = False) -> str:
        """Make a master a slave, once another slave has all of its messages. Raises RefusedError."""
        header = DemoteBroker(broker_id=broker_id, force=force or None)
        return (await self._ask.broker(broker, RequestCode.DEMOTE_BROKER, header)).remark or ""

    async def _check_others(self, broker: str) -> None:
        """Raises RefusedError if another broker of the group, of those that answer, has more of the log."""
        try:
            table = (await self.cluster()).broker_addr_table.values()
        except KourouError:
            return  # without a name server, the slave alone decides
        others = {
            address
            for group in table
            if broker in group.broker_addrs.values()
            for address in group.broker_addrs.values()
            if address != broker
        }
        own, *found = await asyncio.gather(*(self._log_end(address) for address in (broker, *others)))
        for address, end in zip(others, found, strict=True):
            if own is not None and end is not None and end > own:
                raise refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"not promoted: {address} has the log up to {end[1]} in epoch {end[0]}, and {broker} up to "
                    f"{own[1]} in epoch {own[0]}. Promote that one, or --force",
                )

    async def _log_end(self, address: str) -> tuple[int, int] | None:
        """The epoch and the end of a broker's log; None: it does not answer, or has no epochs."""
        try:
            async with asyncio.timeout(OTHERS_TIMEOUT):
                found = await self.epochs(address)
        except (KourouError, TimeoutError):
            return None
        return (found.epoch_list[-1].epoch if found.epoch_list else 0), found.max_offset

    async def producers(self, group: str, broker: str) -> ProducerConnection:
        """The producers of a group that are connected to one broker. Raises RefusedError if there are none."""
        header = GetProducerConnectionList(producer_group=self._ask.session.wrap(group))
        return await self._ask.body(ProducerConnection, broker, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)

    async def all_producers(self, broker: str) -> ProducerTableInfo:
        """All producers that are connected to one broker."""
        return await self._ask.body(ProducerTableInfo, broker, RequestCode.GET_ALL_PRODUCER_INFO)

    # ── Housekeeping ──────────────────────────────────────────────────────────────────────────────────────────────

    async def clean_expired_queues(self, *, broker: str | None = None, cluster: str | None = None) -> None:
        """Delete consume queues whose messages have expired."""
        await self._each(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, broker, cluster)

    async def clean_unused_topics(self, *, broker: str | None = None, cluster: str | None = None) -> None:
        """Delete the consume queues of topics that no longer exist."""
        await self._each(RequestCode.CLEAN_UNUSED_TOPIC, broker, cluster)

    async def delete_expired_log(self, *, broker: str | None = None, cluster: str | None = None) -> None:
        """Delete old files of the commit log now."""
        await self._each(RequestCode.DELETE_EXPIRED_COMMITLOG, broker, cluster)

    async def _each(
        self,
        code: RequestCode,
        broker: str | None,
        cluster: str | None,
        header: Header | None = None,
        body: bytes = b"",
    ) -> None:
        for address in await self._ask.masters(cluster, broker):
            await self._ask.broker(address, code, header, body)

    async def wipe_write_perm(self, broker_name: str) -> dict[str, int]:
        """Stop clients from sending to a broker. Returns how many topics each name server changed."""
        header = WipeWritePerm(broker_name=broker_name)
        answers = await self._ask.name_servers(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        counts = (WipeWritePermAnswer.decode(answer.ext).wipe_topic_count for answer in answers)
        return dict(zip(self._ask.session.name_servers.addresses, counts, strict=True))

    async def add_write_perm(self, broker_name: str) -> dict[str, int]:
        """Allow clients to send to a broker again."""
        header = AddWritePerm(broker_name=broker_name)
        answers = await self._ask.name_servers(RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        counts = (AddWritePermAnswer.decode(answer.ext).add_topic_count for answer in answers)
        return dict(zip(self._ask.session.name_servers.addresses, counts, strict=True))

    # ── Name servers ──────────────────────────────────────────────────────────────────────────────────────────────

    async def name_server_config(self) -> dict[str, dict[str, str]]:
        """The settings of each name server, by address."""
        answers = await self._ask.name_servers(RequestCode.GET_NAMESRV_CONFIG)
        tables = (properties(answer.body) for answer in answers)
        return dict(zip(self._ask.session.name_servers.addresses, tables, strict=True))

    async def set_name_server_config(self, settings: Mapping[str, str]) -> None:
        """Change settings of all name servers."""
        body = conf_text.dumps(dict(settings)).encode()
        await self._ask.name_servers(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)

    async def put_value(self, namespace: str, key: str, value: str) -> None:
        """Set a value in the KV settings of all name servers."""
        header = PutKVConfig(namespace=namespace, key=key, value=value)
        await self._ask.name_servers(RequestCode.PUT_KV_CONFIG, header)

    async def value(self, namespace: str, key: str) -> str | None:
        """A value of the name servers' KV settings; None if it does not exist."""
        try:
            answer = await self._ask.name_server(RequestCode.GET_KV_CONFIG, GetKVConfig(namespace=namespace, key=key))
        except QueryNotFoundError:
            return None
        return GetKVConfigAnswer.decode(answer.ext).value

    async def values(self, namespace: str) -> dict[str, str]:
        """All values of a namespace."""
        header = GetKVListByNamespace(namespace=namespace)
        try:
            return KVTable.decode((await self._ask.name_server(RequestCode.GET_KVLIST_BY_NAMESPACE, header)).body).table
        except QueryNotFoundError:
            return {}

    async def delete_value(self, namespace: str, key: str) -> None:
        """Delete a value of the name servers' KV settings."""
        await self._ask.name_servers(RequestCode.DELETE_KV_CONFIG, DeleteKVConfig(namespace=namespace, key=key))

    # ── Parts of Apache's store ───────────────────────────────────────────────────────────────────────────────────

    async def cold_data(self, broker: str) -> ColdDataFlowCtrInfo:
        """Limits on reading old data, and how much of them is used."""
        return await self._ask.body(ColdDataFlowCtrInfo, broker, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)

    async def limit_cold_data(
        self, group: str, bytes_per_second: int, *, broker: str | None = None, cluster: str | None = None
    ) -> None:
        """Limit how much old data a group may read per second."""
        body = conf_text.dumps({self._ask.session.wrap(group): str(bytes_per_second)}).encode()
        await self._each(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, broker, cluster, body=body)

    async def unlimit_cold_data(self, group: str, *, broker: str | None = None, cluster: str | None = None) -> None:
        """Remove such a limit."""
        body = self._ask.session.wrap(group).encode()
        await self._each(RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, broker, cluster, body=body)

    async def set_read_ahead(self, mode: int, *, broker: str | None = None, cluster: str | None = None) -> None:
        """How the kernel reads the commit log ahead: 0 as usual, 1 not at all."""
        header = SetCommitLogReadMode(mode=str(mode))
        await self._each(RequestCode.SET_COMMITLOG_READ_MODE, broker, cluster, header)

    async def switch_timers(self, engine: str, *, broker: str | None = None, cluster: str | None = None) -> None:
        """Where timers are stored: F for files, R for RocksDB."""
        await self._each(RequestCode.SWITCH_TIMER_ENGINE, broker, cluster, SwitchTimerEngine(engine_type=engine))

    async def export_tables(self, broker: str, kinds: Iterable[str]) -> None:
        """Let a broker write tables that it has in RocksDB to JSON files.

        The tables are topics, subscriptionGroups and consumerOffsets; all, if none is given.
        """
        header = ExportRocksDBConfigToJson(config_type=";".join(kinds))
        await self._ask.broker(broker, RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON, header)

    async def compare_queues(self, broker: str, topic: str, since_ms: int) -> dict[str, Any]:
        """Let a broker compare its consume queues in files with those in RocksDB. Returns the state of that."""
        wrapped = self._ask.session.wrap(topic) if topic else ""
        header = CheckRocksdbCqWriteProgress(topic=wrapped, check_store_time=since_ms)
        answer = await self._ask.broker(broker, RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, header)
        return fastjson.decode(answer.body, dict[str, Any])

    async def export_pop_records(self, broker: str) -> None:
        """Let a broker move its records of pops from RocksDB to its retry topics."""
        await self._ask.broker(broker, RequestCode.POP_ROLLBACK)

    async def set_master_flush_offset(self, broker: str, offset: int) -> None:
        """Tell a slave how far its master's log is on disk."""
        header = ResetMasterFlushOffset(master_flush_offset=offset)
        await self._ask.broker(broker, RequestCode.RESET_MASTER_FLUSH_OFFSET, header)

    # ── Users and rules ───────────────────────────────────────────────────────────────────────────────────────────

    async def users(self, broker: str, name: str | None = None) -> list[UserInfo]:
        """A broker's users, or those whose names contain this text."""
        answer = await self._ask.broker(broker, RequestCode.AUTH_LIST_USER, ListUsers(filter=name))
        return fastjson.decode(answer.body, list[UserInfo]) if answer.body else []

    async def user(self, broker: str, username: str) -> UserInfo | None:
        """One user; None if there is no such user."""
        answer = await self._ask.broker(broker, RequestCode.AUTH_GET_USER, GetUser(username=username))
        return UserInfo.decode(answer.body) if answer.body else None

    async def create_user(
        self,
        username: str,
        password: str,
        *,
        is_super: bool = False,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> None:
        """Create a user, on one broker or on all of a cluster, slaves included."""
        kind = "Super" if is_super else "Normal"
        body = UserInfo(username=username, password=password, user_type=kind).encode()
        for address in await self._ask.members(cluster, broker):
            await self._ask.broker(address, RequestCode.AUTH_CREATE_USER, CreateUser(username=username), body)

    async def update_user(self, user: UserInfo, *, broker: str | None = None, cluster: str | None = None) -> None:
        """Change a user, on one broker or on all of a cluster, slaves included."""
        header = UpdateUser(username=user.username or "")
        for address in await self._ask.members(cluster, broker):
            await self._ask.broker(address, RequestCode.AUTH_UPDATE_USER, header, user.encode())

    async def delete_user(self, username: str, *, broker: str | None = None, cluster: str | None = None) -> None:
        """Delete a user, on one broker or on all of a cluster, slaves included."""
        for address in await self._ask.members(cluster, broker):
            await self._ask.broker(address, RequestCode.AUTH_DELETE_USER, DeleteUser(username=username))

    async def rules(self, broker: str, *, subject: str | None = None, resource: str | None = None) -> list[AclInfo]:
        """A broker's access rules."""
        header = ListAcls(subject_filter=subject, resource_filter=resource)
        answer = await self._ask.broker(broker, RequestCode.AUTH_LIST_ACL, header)
        return fastjson.decode(answer.body, list[AclInfo]) if answer.body else []

    async def rule(self, broker: str, subject: str) -> AclInfo | None:
        """The rules of one subject, such as `User:alice`; None if there are none."""
        answer = await self._ask.broker(broker, RequestCode.AUTH_GET_ACL, GetAcl(subject=subject))
        return AclInfo.decode(answer.body) if answer.body else None

    async def create_rule(self, rule: AclInfo, *, broker: str | None = None, cluster: str | None = None) -> None:
        """Add an access rule, on one broker or on all of a cluster, slaves included."""
        for address in await self._ask.members(cluster, broker):
            header = CreateAcl(subject=rule.subject or "")
            await self._ask.broker(address, RequestCode.AUTH_CREATE_ACL, header, rule.encode())

    async def update_rule(self, rule: AclInfo, *, broker: str | None = None, cluster: str | None = None) -> None:
        """Change an access rule, on one broker or on all of a cluster, slaves included."""
        for address in await self._ask.members(cluster, broker):
            header = UpdateAcl(subject=rule.subject or "")
            await self._ask.broker(address, RequestCode.AUTH_UPDATE_ACL, header, rule.encode())

    async def delete_rule(
        self, subject: str, resource: str | None = None, *, broker: str | None = None, cluster: str | None = None
    ) -> None:
        """Delete access rules of a subject, on one broker or on all of a cluster, slaves included."""
        for address in await self._ask.members(cluster, broker):
            header = DeleteAcl(subject=subject, resource=resource)
            await self._ask.broker(address, RequestCode.AUTH_DELETE_ACL, header)


__all__ = ["Brokers"]
