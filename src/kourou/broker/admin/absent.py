"""Requests about parts of Apache's broker that this one does not have: RocksDB, cold data, light topics, controllers.

The answers are those of an Apache broker that does not use these parts, so mqadmin prints the same.

Java: AdminBrokerProcessor, LiteManagerProcessor.
"""

from kourou.broker.events import Asked, Refused, Request
from kourou.broker.offsets import Offsets
from kourou.broker.request_bodies import too_much
from kourou.broker.settings import BrokerSettings
from kourou.broker.topics import Topics
from kourou.protocol import bodies, conf_text, headers
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.names import shown
from kourou.store.store import Store

COLD_GROUPS_MAX = 1_000
"""Groups with a limit on cold data. The limits are shown, and have no effect."""

COLD_READ_THRESHOLD = 3 * 1024 * 1024
GLOBAL_COLD_READ_THRESHOLD = 100 * 1024 * 1024
LIGHT_QUEUES = 20_000
EXPORTED = frozenset(("topics", "subscriptionGroups", "consumerOffsets"))

_NORMAL, _RANDOM = 0, 1


class AbsentRequests:
    """Serves requests about features that Kourou does not have."""

    def __init__(self, settings: BrokerSettings, topics: Topics, offsets: Offsets, store: Store) -> None:
        self._settings = settings
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._cold: dict[str, int] = {}  # bytes a second, by group

    # ── Cold data ─────────────────────────────────────────────────────────────────────────────────────────────────

    def show_cold(self, asked: Asked) -> Command:
        """GET_COLD_DATA_FLOW_CTR_INFO."""
        body = bodies.ColdDataFlowCtrInfo(
            config_table=dict(self._cold),
            cg_cold_read_threshold=COLD_READ_THRESHOLD,
            global_cold_read_threshold=GLOBAL_COLD_READ_THRESHOLD,
        )
        return asked.command.answer(body=body.encode())

    def limit_cold(self, asked: Asked) -> Command:
        """UPDATE_COLD_DATA_FLOW_CTR_CONFIG. Values that are not numbers are ignored."""
        for group, text in self._properties(asked.command.body).items():
            if not text.strip().isdecimal() or len(text) > 19:
                continue
            if group not in self._cold and len(self._cold) >= COLD_GROUPS_MAX:
                raise too_much("there are too many groups with a limit", COLD_GROUPS_MAX, "COLD_GROUPS_MAX")
            self._cold[group] = int(text)
        return asked.command.answer()

    def unlimit_cold(self, asked: Asked) -> Command:
        """REMOVE_COLD_DATA_FLOW_CTR_CONFIG."""
        self._cold.pop(asked.command.body.decode("utf-8", "replace"), None)
        return asked.command.answer()

    def _properties(self, body: bytes) -> dict[str, str]:
        if len(body) > self._settings.config_size_max:
            raise too_much(f"the body has {len(body)} bytes", self._settings.config_size_max, "maxConfigBodySize")
        return conf_text.loads(body.decode("utf-8", "replace"))

    def read_ahead(self, asked: Request[headers.SetCommitLogReadMode]) -> Command:
        """SET_COMMITLOG_READ_MODE: accepted, but without effect, because the kernel chooses the read-ahead."""
        text = asked.header.mode or ""
        if not text.isdecimal():
            raise Refused(ResponseCode.SYSTEM_ERROR, "set commitlog readahead mode failed")
        if int(text) not in (_NORMAL, _RANDOM):
            raise Refused(ResponseCode.INVALID_PARAMETER, "set commitlog readahead mode param value error")
        return asked.command.answer(remark=f"set commitlog readahead mode success, mode: {int(text)}")

    # ── RocksDB, timers, controllers ──────────────────────────────────────────────────────────────────────────────

    def switch_timers(self, asked: Request[headers.SwitchTimerEngine]) -> Command:
        """SWITCH_TIMER_ENGINE: there are no timers in RocksDB."""
        engine = asked.header.engine_type
        if engine == "R":
            raise Refused(
                ResponseCode.INVALID_PARAMETER, "timerRocksDBEnable must be configured true when broker start"
            )
        if engine != "F":
            raise Refused(ResponseCode.INVALID_PARAMETER, "param error")
        return asked.command.answer(remark="switch timer engine success")

    def check_rocksdb(self, asked: Asked) -> Command:
        """CHECK_ROCKSDB_CQ_WRITE_PROGRESS: Apache's broker answers that the check runs, and logs its result."""
        return asked.command.answer(body=b'{"checkStatus":2}')

    def export_rocksdb(self, asked: Request[headers.ExportRocksDBConfigToJson]) -> Command:
        """EXPORT_ROCKSDB_CONFIG_TO_JSON: the tables are JSON files already."""
        for kind in asked.header.config_type.split(";"):
            if kind and kind not in EXPORTED:
                raise Refused(ResponseCode.SYSTEM_ERROR, f"Unknown config type: {shown(kind)}")
        return asked.command.answer(remark="export done.")

    def accept(self, asked: Asked) -> Command:
        """POP_ROLLBACK, RESET_MASTER_FLUSH_OFFSET: without effect on a master without pops."""
        return asked.command.answer()

    # ── Light topics ──────────────────────────────────────────────────────────────────────────────────────────────

    def light(self, asked: Asked) -> Command:
        """GET_BROKER_LITE_INFO."""
        body = bodies.GetBrokerLiteInfoResponseBody(
            store_type="default",
            max_lmq_num=LIGHT_QUEUES,
            cq_table_size=len({topic for topic, _ in self._store.queues.names()}),
            offset_table_size=len(self._offsets.table),
            topic_meta={},
            group_meta={},
        )
        return asked.command.answer(body=body.encode())

    def light_topic(self, asked: Asked) -> Command:
        """GET_PARENT_TOPIC_INFO, GET_LITE_TOPIC_INFO, GET_LITE_CLIENT_INFO: no topic has light ones."""
        ext = asked.command.ext or {}
        topic = ext.get("topic") or ext.get("parentTopic") or ""
        if self._topics.get(topic) is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"Topic [{shown(topic)}] not exist.")
        raise Refused(ResponseCode.INVALID_PARAMETER, f"Topic [{shown(topic)}] type not match.")

    def light_group(self, asked: Asked) -> Command:
        """GET_LITE_GROUP_INFO, TRIGGER_LITE_DISPATCH: no group reads light topics."""
        group = (asked.command.ext or {}).get("group", "")
        raise Refused(ResponseCode.INVALID_PARAMETER, f"Group [{shown(group)}] is not a LITE group.")
