"""The properties of a controller, with the names of Apache's controller.conf."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

from kourou.raft.members import MEMBERS_MAX

PORT: Final = 9877
"""The port of a controller without peers."""


class ControllerSettingError(ValueError):
    """A property has a wrong value."""


@dataclass(frozen=True)
class ControllerSettings:
    """The comments give the names of the properties."""

    group: str = "DefaultControllerGroup"  # controllerDLegerGroup
    peers: str = ""  # controllerDLegerPeers: `n0-host:port;n1-host:port`; empty: this controller alone
    self_id: str = "n0"  # controllerDLegerSelfId
    store: str = ""  # controllerStorePath
    unclean: bool = False  # enableElectUncleanMaster
    notify: bool = True  # notifyBrokerRoleChanged
    election_ms: int = 1_000  # controllerElectionTimeout, ours
    heartbeat_ms: int = 200  # controllerRaftHeartbeatInterval, ours

    def members(self) -> dict[str, str]:
        """The addresses of the controllers by their ids. Raises ControllerSettingError."""
        if not self.peers.strip(" ;"):
            return {self.self_id: f"127.0.0.1:{PORT}"}
        found: dict[str, str] = {}
        for word in filter(None, (part.strip() for part in self.peers.split(";"))):
            name, _, address = word.partition("-")
            host, _, port = address.rpartition(":")
            if not name or len(name) > 64 or not host or not port.isdecimal() or not 0 <= int(port) < 65_535:
                raise ControllerSettingError(
                    f"controllerDLegerPeers={self.peers}: controllers such as n0-10.0.0.5:9877;n1-10.0.0.6:9877 "
                    "are expected"
                )
            if name in found or address in found.values():
                raise ControllerSettingError(f"controllerDLegerPeers={self.peers}: {word} occurs twice")
            found[name] = address
        if self.self_id not in found:
            raise ControllerSettingError(
                f"controllerDLegerSelfId={self.self_id} is expected to be in controllerDLegerPeers={self.peers}"
            )
        if len(found) > MEMBERS_MAX:
            raise ControllerSettingError(f"controllerDLegerPeers={self.peers}: at most {MEMBERS_MAX} are expected")
        return found

    def to_properties(self) -> dict[str, str]:
        """All properties, as Apache prints them."""
        return {key: _text(getattr(self, name)) for key, name in _NAMES.items()}

    def with_properties(self, given: Mapping[str, str]) -> "ControllerSettings":
        """These settings, changed by those of a file. Other keys are ignored. Raises ControllerSettingError."""
        changed = {_NAMES[key]: _parsed(key, text.strip()) for key, text in given.items() if key in _NAMES}
        settings = replace(self, **changed)  # type: ignore[arg-type]
        if given.get("controllerType", "DLedger") != "DLedger" and not settings.peers:
            raise ControllerSettingError(
                f"controllerType={given['controllerType']} has no effect: set controllerDLegerPeers and "
                "controllerDLegerSelfId, which name the controllers, instead of jRaft's properties"
            )
        settings.members()
        return settings

    def changed_by(self, given: Mapping[str, str]) -> "ControllerSettings":
        """These settings, changed by a request. Raises ControllerSettingError."""
        fixed = [key for key in given if key not in CHANGEABLE]
        if fixed:
            raise ControllerSettingError(
                f"{', '.join(fixed)[:200]}: requests change {' and '.join(CHANGEABLE)} only. Change other settings in "
                "the controller's file, and restart it"
            )
        return self.with_properties(given)


def is_controller_property(key: str) -> bool:
    return key in _NAMES or key in ACCESS or key in PEERS or key == "controllerType"


ACCESS: Final = frozenset(
    (
        "authenticationEnabled",
        "authorizationEnabled",
        "initAuthenticationUser",
        "innerClientAuthenticationCredentials",
    )
)
"""Properties of access control. They have secrets, and are not among those that are displayed."""


PEERS: Final = frozenset(("haTlsMode", "haAllowedNames", "haSecretFile"))
"""Properties, ours, with which controllers authenticate each other, as brokers do."""

CHANGEABLE: Final = ("enableElectUncleanMaster", "notifyBrokerRoleChanged")
"""Settings that requests may change while a controller runs, until it stops."""

_NAMES: Final = {
    "controllerDLegerGroup": "group",
    "controllerDLegerPeers": "peers",
    "controllerDLegerSelfId": "self_id",
    "controllerStorePath": "store",
    "enableElectUncleanMaster": "unclean",
    "notifyBrokerRoleChanged": "notify",
    "controllerElectionTimeout": "election_ms",
    "controllerRaftHeartbeatInterval": "heartbeat_ms",
}
_KINDS = {field.name: field.type for field in fields(ControllerSettings)}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parsed(key: str, text: str) -> object:
    kind = _KINDS[_NAMES[key]]
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ControllerSettingError(f"{key}={text}: true or false is expected")
        return text.lower() == "true"
    if kind is int:
        if not text.isascii() or not text.isdigit() or not 50 <= int(text) <= 600_000:
            raise ControllerSettingError(f"{key}={text}: milliseconds from 50 to 600000 are expected")
        return int(text)
    return text
