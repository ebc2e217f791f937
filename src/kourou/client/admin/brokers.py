"""Brokers and name servers: which there are, their state and settings, housekeeping, users and access rules."""

from collections.abc import Mapping

from kourou.client.admin.requests import AdminRequests
from kourou.protocol import conf_text, fastjson
from kourou.protocol.bodies import (
    AclInfo,
    BrokerStatsData,
    ClusterInfo,
    EpochEntryCache,
    HARuntimeInfo,
    KVTable,
    ProducerConnection,
    ProducerTableInfo,
    UserInfo,
)
from kourou.protocol.codes import RequestCode
from kourou.protocol.errors import BodyError, QueryNotFoundError
from kourou.protocol.headers import (
    AddWritePerm,
    AddWritePermAnswer,
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteKVConfig,
    DeleteUser,
    GetKVConfig,
    GetKVConfigAnswer,
    GetKVListByNamespace,
    GetProducerConnectionList,
    ListAcls,
    ListUsers,
    PutKVConfig,
    UpdateAcl,
    UpdateUser,
    ViewBrokerStatsData,
    WipeWritePerm,
    WipeWritePermAnswer,
)


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
        return _properties((await self._ask.broker(broker, RequestCode.GET_BROKER_CONFIG)).body)

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

    async def epochs(self, broker: str) -> EpochEntryCache:
        """Which master wrote which part of a broker's log."""
        return await self._ask.body(EpochEntryCache, broker, RequestCode.GET_BROKER_EPOCH_CACHE)

    async def producers(self, group: str, broker: str) -> ProducerConnection:
        """The producers of a group that are connected to one broker. Raises RefusedError if there are none."""
        header = GetProducerConnectionList(producer_group=self._ask.session.wrap(group))
        return await self._ask.body(ProducerConnection, broker, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)

    async def all_producers(self, broker: str) -> ProducerTableInfo:
        """All producers that are connected to one broker."""
        return await self._ask.body(ProducerTableInfo, broker, RequestCode.GET_ALL_PRODUCER_INFO)

    # ── Housekeeping ──────────────────────────────────────────────────────────────────────────────────────────────

    async def clean_expired_queues(self, *, broker: str | None = None, cluster: str | None = None) -> None:
        """Delete consume queues whose messages are gone."""
        await self._each(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, broker, cluster)

    async def clean_unused_topics(self, *, broker: str | None = None, cluster: str | None = None) -> None:
        """Delete the consume queues of topics that do not exist any more."""
        await self._each(RequestCode.CLEAN_UNUSED_TOPIC, broker, cluster)

    async def delete_expired_log(self, *, broker: str | None = None, cluster: str | None = None) -> None:
        """Delete old files of the commit log now."""
        await self._each(RequestCode.DELETE_EXPIRED_COMMITLOG, broker, cluster)

    async def _each(self, code: RequestCode, broker: str | None, cluster: str | None) -> None:
        for address in await self._ask.masters(cluster, broker):
            await self._ask.broker(address, code)

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
        tables = (_properties(answer.body) for answer in answers)
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

    # ── Users and rules ───────────────────────────────────────────────────────────────────────────────────────────

    async def users(self, broker: str, name: str | None = None) -> list[UserInfo]:
        """A broker's users, or those whose names contain this text."""
        answer = await self._ask.broker(broker, RequestCode.AUTH_LIST_USER, ListUsers(filter=name))
        return fastjson.decode(answer.body, list[UserInfo]) if answer.body else []

    async def create_user(
        self,
        username: str,
        password: str,
        *,
        is_super: bool = False,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> None:
        """Create a user, on one broker or on all of a cluster."""
        kind = "Super" if is_super else "Normal"
        body = UserInfo(username=username, password=password, user_type=kind).encode()
        for address in await self._ask.masters(cluster, broker):
            await self._ask.broker(address, RequestCode.AUTH_CREATE_USER, CreateUser(username=username), body)

    async def update_user(self, user: UserInfo, *, broker: str | None = None, cluster: str | None = None) -> None:
        """Change a user, on one broker or on all of a cluster."""
        header = UpdateUser(username=user.username or "")
        for address in await self._ask.masters(cluster, broker):
            await self._ask.broker(address, RequestCode.AUTH_UPDATE_USER, header, user.encode())

    async def delete_user(self, username: str, *, broker: str | None = None, cluster: str | None = None) -> None:
        """Delete a user, on one broker or on all of a cluster."""
        for address in await self._ask.masters(cluster, broker):
            await self._ask.broker(address, RequestCode.AUTH_DELETE_USER, DeleteUser(username=username))

    async def rules(self, broker: str, *, subject: str | None = None, resource: str | None = None) -> list[AclInfo]:
        """A broker's access rules."""
        header = ListAcls(subject_filter=subject, resource_filter=resource)
        answer = await self._ask.broker(broker, RequestCode.AUTH_LIST_ACL, header)
        return fastjson.decode(answer.body, list[AclInfo]) if answer.body else []

    async def create_rule(self, rule: AclInfo, *, broker: str | None = None, cluster: str | None = None) -> None:
        """Add an access rule, on one broker or on all of a cluster."""
        for address in await self._ask.masters(cluster, broker):
            header = CreateAcl(subject=rule.subject or "")
            await self._ask.broker(address, RequestCode.AUTH_CREATE_ACL, header, rule.encode())

    async def update_rule(self, rule: AclInfo, *, broker: str | None = None, cluster: str | None = None) -> None:
        """Change an access rule, on one broker or on all of a cluster."""
        for address in await self._ask.masters(cluster, broker):
            header = UpdateAcl(subject=rule.subject or "")
            await self._ask.broker(address, RequestCode.AUTH_UPDATE_ACL, header, rule.encode())

    async def delete_rule(
        self, subject: str, resource: str | None = None, *, broker: str | None = None, cluster: str | None = None
    ) -> None:
        """Delete access rules of a subject, on one broker or on all of a cluster."""
        for address in await self._ask.masters(cluster, broker):
            header = DeleteAcl(subject=subject, resource=resource)
            await self._ask.broker(address, RequestCode.AUTH_DELETE_ACL, header)


def _properties(body: bytes) -> dict[str, str]:
    """Parses the `key=value` lines that servers write; everything after the first `=` is the value, without escapes."""
    try:
        lines = body.decode().splitlines()
    except UnicodeDecodeError:
        raise BodyError("the server's settings are not valid UTF-8") from None
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {key.strip(): value for key, _, value in pairs}


__all__ = ["Brokers"]
