"""Requests about state that survives a restart: the KV configuration and the settings.

A change is answered when it is durable (`kourou.nameserver.documents`); until then it is not visible.

Java: KVConfigManager, Configuration.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

import msgspec

from kourou.nameserver.documents import Document
from kourou.nameserver.events import Asked, Effect, Kept, Save
from kourou.nameserver.requests import Handler, Refused, small_body
from kourou.nameserver.settings import HIDDEN, SECRET, GuardedSettingError, SettingError, Settings
from kourou.protocol import conf_text, headers
from kourou.protocol.bodies import KVTable
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError
from kourou.protocol.system_names import ORDER_NAMESPACE

log = logging.getLogger(__name__)


KV_SIZE_MAX = 4 * 1024 * 1024
"""The largest KV configuration in bytes: each change writes all of it, which takes about 8 ms."""

KvTable: TypeAlias = dict[str, dict[str, str]]


class Configuration:
    """The settings and the KV configuration of one name server."""

    def __init__(
        self,
        settings: Settings,
        kv_config: KvTable,
        other_properties: Mapping[str, str],
        emit: Callable[[Effect], None],
    ) -> None:
        """`other_properties` of the settings file are kept when it is rewritten."""
        self._settings: Document[Settings, Asked] = Document(settings)
        self._kv: Document[KvTable, Asked] = Document(kv_config)
        self._other_properties = dict(other_properties)
        self._emit = emit
        self._order_topics: tuple[dict[str, str] | None, bytes] = (None, b"")  # and their encoding

    @property
    def settings(self) -> Settings:
        return self._settings.value

    def bound(self, port: int) -> None:
        """Set the listening port: the setting 0 means any free port."""
        self._settings = Document(replace(self.settings, listen_port=port))

    def order_conf_of(self, topic: str) -> str | None:
        """The order configuration of a topic: the number of its queues on each broker."""
        if not self.settings.order_message_enable:
            return None
        return self._kv.value.get(ORDER_NAMESPACE, {}).get(topic)

    @property
    def order_topics(self) -> bytes:
        """The order configurations of all topics, which brokers receive when they register."""
        table = self._kv.value.get(ORDER_NAMESPACE)
        if table is None or not self.settings.return_order_topic_config_to_broker:
            return b""
        if table is not self._order_topics[0]:
            self._order_topics = table, KVTable(table=table).encode()
        return self._order_topics[1]

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._get_kv_list,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
        }

    # ── KV configuration ──────────────────────────────────────────────────────────────────────────────────────────

    def _put_kv(self, asked: Asked) -> None:
        header = headers.PutKVConfig.decode(asked.command.ext)
        table = self._kv.staged
        space = {**table.get(header.namespace, {}), header.key: header.value}
        self._stage_kv({**table, header.namespace: space}, asked)

    def _delete_kv(self, asked: Asked) -> Command | None:
        header = headers.DeleteKVConfig.decode(asked.command.ext)
        table = self._kv.staged
        space = dict(table.get(header.namespace, {}))
        if header.key in space:
            del space[header.key]
            table = {**table, header.namespace: space}
        elif self._kv.is_settled:
            return asked.command.answer()
        self._stage_kv(table, asked)
        return None

    def _stage_kv(self, table: KvTable, asked: Asked) -> None:
        text = kv_text(table)
        if len(text.encode()) > KV_SIZE_MAX:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"the KV configuration would exceed {KV_SIZE_MAX} bytes, the limit"
            )
        version = self._kv.stage(table, asked)
        if version is not None:
            self._emit(Save(Kept.KV_CONFIG, version, text))

    def _get_kv(self, asked: Asked) -> Command:
        header = headers.GetKVConfig.decode(asked.command.ext)
        value = self._kv.value.get(header.namespace, {}).get(header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            raise Refused(ResponseCode.QUERY_NOT_FOUND, remark)
        return asked.command.answer(ext=headers.GetKVConfigAnswer(value=value).encode())

    def _get_kv_list(self, asked: Asked) -> Command:
        namespace = headers.GetKVListByNamespace.decode(asked.command.ext).namespace
        space = self._kv.value.get(namespace)
        if space is None:
            raise Refused(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return asked.command.answer(body=KVTable(table=space).encode())

    # ── Settings ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _get_config(self, asked: Asked) -> Command:
        others = {key: value for key, value in self._other_properties.items() if not key.startswith("tls.")}
        shown = {
            key: HIDDEN if SECRET.search(key) else value
            for key, value in {**others, **self.settings.to_properties()}.items()
        }
        return asked.command.answer(body=conf_text.dumps(shown).encode())

    def _update_config(self, asked: Asked) -> Command | None:
        try:
            wanted = conf_text.loads(small_body(asked).decode())
        except UnicodeDecodeError:
            raise BodyError("the properties are not UTF-8 text") from None
        try:
            changed = self._settings.staged.with_request(wanted)
        except GuardedSettingError as error:
            raise Refused(ResponseCode.NO_PERMISSION, str(error)) from None
        except SettingError as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from None
        if changed == self._settings.staged and self._settings.is_settled:
            return asked.command.answer()
        version = self._settings.stage(changed, asked)
        if version is not None:
            self._save_settings(version)
        return None

    def _save_settings(self, version: int) -> None:
        properties = {**self._other_properties, **self._settings.staged.to_properties()}
        self._emit(Save(Kept.SETTINGS, version, conf_text.dumps_escaped(properties)))

    # ── Writing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def saved(self, document: Kept, version: int) -> list[Asked]:
        """A version is durable. Returns the requests to answer."""
        if document is Kept.KV_CONFIG:
            authors, following = self._kv.saved(version)
            if following is not None:
                self._emit(Save(Kept.KV_CONFIG, following, kv_text(self._kv.staged)))
        else:
            authors, following = self._settings.saved(version)
            if following is not None:
                self._save_settings(following)
            log.info("settings changed")
        return authors

    def not_saved(self, document: Kept, version: int) -> list[Asked]:
        """A version could not be written. Returns the requests to refuse."""
        return self._kv.failed(version) if document is Kept.KV_CONFIG else self._settings.failed(version)


class _KvFile(msgspec.Struct, rename="camel"):
    config_table: KvTable = {}


def kv_text(table: Mapping[str, Mapping[str, str]]) -> str:
    """kvConfig.json, as Apache writes it."""
    return msgspec.json.encode({"configTable": table}).decode()


def read_kv_text(text: str | bytes) -> KvTable:
    """Decode kvConfig.json. Raises BodyError."""
    try:
        return msgspec.json.decode(text, type=_KvFile).config_table
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BodyError(f"not a KV configuration: {error}") from None
