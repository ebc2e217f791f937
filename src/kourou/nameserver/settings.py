"""The settings, under the names of Apache's namesrv.conf.

Apache's settings of threads, queues and socket buffers have no effect here. They are accepted, displayed and kept, so
that an existing file works unchanged and `mqadmin getNamesrvConfig` prints the same as with Apache.

A request can change only the harmless keys in a list: no path, no address, and nothing that could reach a shell.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from kourou.protocol.errors import KourouError


class SettingError(KourouError):
    """A setting that is unknown, or has a value of the wrong type."""


class GuardedSettingError(SettingError):
    """A setting that requests can't change."""


SECRET = re.compile(r"(?i)password|secret|credential|token|accesskey|authenticationuser$")
"""Properties of a file whose values are never displayed."""

HIDDEN = "******"

ALWAYS_GUARDED = ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")
"""Settings that Apache never lets a request change, whatever `configBlackList` says."""


def _setting(default: Any, *, hot: bool = False, used: bool = True, ours: bool = False) -> Any:
    """`hot`: a request may change it at run time. `used`: it has an effect here. `ours`: Apache does not have it."""
    return field(default=default, metadata={"hot": hot, "used": used, "ours": ours})


@dataclass(frozen=True)
class Settings:
    """One name server's settings; names are snake_case here and camelCase in files and requests."""

    # The listening address and the files. Loopback unless a host is given.
    bind_address: str = _setting("127.0.0.1")
    listen_port: int = _setting(9876)
    kv_config_path: str = _setting("")
    config_store_path: str = _setting("")
    rocketmq_home: str = _setting("", used=False)
    server_channel_max_idle_time_seconds: int = _setting(120)
    proxy_protocol_trusted: str = _setting("", ours=True)  # the hosts whose PROXY headers are trusted

    # Access control. Apache's brokers have most of these settings, its name servers none.
    authentication_enabled: bool = _setting(False, ours=True)
    authorization_enabled: bool = _setting(False, ours=True)
    authentication_whitelist: str = _setting("", ours=True)
    authorization_whitelist: str = _setting("", ours=True)
    init_authentication_user: str = _setting("", ours=True)
    inner_client_authentication_credentials: str = _setting("", ours=True)
    migrate_auth_from_v1_enabled: bool = _setting(False, ours=True)
    acl_enable: bool = _setting(False, ours=True)
    plain_acl_file: str = _setting("", ours=True)
    users_key_file: str = _setting("", ours=True)

    # Limits for one client, and for all clients together.
    max_connections: int = _setting(65_536, ours=True)
    max_connections_per_address: int = _setting(16_384, ours=True)
    max_requests_in_flight: int = _setting(65_536, ours=True)  # of one connection

    # Behaviour.
    product_env_name: str = _setting("center", hot=True, used=False)
    order_message_enable: bool = _setting(False, hot=True)
    return_order_topic_config_to_broker: bool = _setting(True, hot=True)
    scan_not_active_broker_interval: int = _setting(5000, hot=True)
    support_acting_master: bool = _setting(False, hot=True)
    enable_all_topic_list: bool = _setting(True, hot=True)
    enable_topic_list: bool = _setting(True, hot=True)
    notify_min_broker_id_changed: bool = _setting(False)  # it makes the server connect to brokers
    need_wait_for_service: bool = _setting(False, hot=True)
    wait_seconds_for_service: int = _setting(45, hot=True)
    delete_topic_with_broker_registration: bool = _setting(False, hot=True)
    config_black_list: str = _setting("configBlackList;configStorePath;kvConfigPath")

    # Without effect here.
    cluster_test: bool = _setting(False, used=False)
    enable_controller_in_namesrv: bool = _setting(False)  # except for this one: it starts a controller in this process
    client_request_thread_pool_nums: int = _setting(8, hot=True, used=False)
    default_thread_pool_nums: int = _setting(16, hot=True, used=False)
    client_request_thread_pool_queue_capacity: int = _setting(50000, hot=True, used=False)
    default_thread_pool_queue_capacity: int = _setting(10000, hot=True, used=False)
    un_register_broker_queue_capacity: int = _setting(3000, hot=True, used=False)
    server_worker_threads: int = _setting(8, hot=True, used=False)
    server_callback_executor_threads: int = _setting(0, hot=True, used=False)
    server_selector_threads: int = _setting(3, hot=True, used=False)
    server_oneway_semaphore_value: int = _setting(256, hot=True, used=False)
    server_async_semaphore_value: int = _setting(64, hot=True, used=False)
    server_socket_snd_buf_size: int = _setting(0, hot=True, used=False)
    server_socket_rcv_buf_size: int = _setting(0, hot=True, used=False)
    server_socket_backlog: int = _setting(1024, hot=True, used=False)
    server_netty_worker_group_enable: bool = _setting(True, hot=True, used=False)
    server_pooled_byte_buf_allocator_enable: bool = _setting(True, hot=True, used=False)
    use_epoll_native_selector: bool = _setting(False, hot=True, used=False)
    write_buffer_high_water_mark: int = _setting(0, hot=True, used=False)
    write_buffer_low_water_mark: int = _setting(0, hot=True, used=False)
    enable_shutdown_gracefully: bool = _setting(False, hot=True, used=False)
    shutdown_wait_time_seconds: int = _setting(30, hot=True, used=False)

    def to_properties(self) -> dict[str, str]:
        """All settings as Apache prints them; an empty home is omitted, like Apache's null."""
        shown = {key: _text(getattr(self, name)) for key, name in _NAME_OF_KEY.items()}
        if not self.rocketmq_home:
            del shown["rocketmqHome"]
        unchanged = {key for key in _OURS if getattr(self, _NAME_OF_KEY[key]) == getattr(Settings, _NAME_OF_KEY[key])}
        return {key: value for key, value in shown.items() if key not in unchanged}

    def with_properties(self, properties: Mapping[str, str]) -> "Settings":
        """These settings, changed by those of a file or the command line. Raises SettingError for an invalid value.

        Unknown keys are ignored: `unknown_keys` names them.
        """
        known = {key: value for key, value in properties.items() if key in _NAME_OF_KEY}
        return replace(self, **{_NAME_OF_KEY[key]: _parsed(key, value) for key, value in known.items()})

    def with_request(self, properties: Mapping[str, str]) -> "Settings":
        """These settings, changed by a request, all or none. Raises SettingError."""
        for key in properties:
            name = _NAME_OF_KEY.get(key)
            if name is None:
                raise SettingError(f"{key} is not a setting of a name server; getNamesrvConfig lists them")
            if key in ALWAYS_GUARDED or key in self.config_black_list.split(";"):
                raise GuardedSettingError("Can not update config in black list.")
            if name not in _HOT_NAMES:
                raise GuardedSettingError(f"{key} can't be changed at run time: edit the file and restart")
        return self.with_properties(properties)


def hot_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that requests may change: no path, port or address is among them."""
    return {key: value for key, value in properties.items() if _NAME_OF_KEY.get(key) in _HOT_NAMES}


def is_setting(key: str) -> bool:
    return key in _NAME_OF_KEY


def other_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties that are not settings of a name server. A rewritten file keeps them: TLS settings are among them."""
    return {key: value for key, value in properties.items() if key not in _NAME_OF_KEY}


def unknown_keys(properties: Mapping[str, str]) -> list[str]:
    """Keys that are not settings, for a warning. TLS keys are read elsewhere."""
    return [key for key in properties if key not in _NAME_OF_KEY and not key.startswith("tls.")]


def unused_keys(properties: Mapping[str, str]) -> list[str]:
    """Known keys without effect here, for a warning if their values are not the defaults."""
    defaults = Settings().to_properties()
    return [
        key
        for key, value in properties.items()
        if _NAME_OF_KEY.get(key) in _UNUSED_NAMES and value.strip() != defaults.get(key)
    ]


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parsed(key: str, text: str) -> Any:
    kind = _TYPE_OF_NAME[_NAME_OF_KEY[key]]
    text = text.strip()
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise SettingError(f"{key}={text}: true or false is expected")
        return text.lower() == "true"
    if kind is int:
        try:
            number = int(text)
        except ValueError:
            raise SettingError(f"{key}={text}: a whole number is expected") from None
        highest = 65535 if key == "listenPort" else 2**31 - 1
        if not 0 <= number <= highest:
            raise SettingError(f"{key}={text}: a number from 0 to {highest} is expected")
        return number
    return text


_NAME_OF_KEY: dict[str, str] = {_camel(setting.name): setting.name for setting in fields(Settings)}
_TYPE_OF_NAME: dict[str, object] = {setting.name: setting.type for setting in fields(Settings)}
_OURS = frozenset(_camel(setting.name) for setting in fields(Settings) if setting.metadata["ours"])
"""Displayed only if they are set; without them the list is the same as Apache's."""

_HOT_NAMES = frozenset(setting.name for setting in fields(Settings) if setting.metadata["hot"])
_UNUSED_NAMES = frozenset(setting.name for setting in fields(Settings) if not setting.metadata["used"])
