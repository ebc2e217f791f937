"""The brokers of a cluster on one machine: names, roles, folders and properties.

`kourou.embedded(brokers=...)` starts them in one process, `kourou run --brokers N` in processes of their own.
"""

import socket
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kourou.broker.property_values import members_of
from kourou.server.conf import ConfError

BROKERS_MAX = len(string.ascii_lowercase)
SLAVES_MAX = 9
RAFT_MAX = 9
PEERS_FILE = "raft-peers"
"""In the directory of a cluster: dLegerPeers of its Raft group."""

RAFT = "RAFT"
"""The role of a member of a Raft group, which the group changes."""

OWN_PROPERTIES = (
    "brokerName",
    "brokerId",
    "brokerRole",
    "listenPort",
    "haListenPort",
    "haMasterAddress",
    "storePathRootDir",
    "storePathCommitLog",
    "metricsPromExporterPort",
    "dLegerSelfId",
    "dLegerPeers",
)
"""Properties that differ between brokers, so that the cluster sets them itself."""


@dataclass(frozen=True, slots=True)
class Member:
    """A broker of a cluster."""

    name: str  # broker-a; the slaves of a master have its name
    broker_id: int  # 0 is a master
    role: str

    @property
    def label(self) -> str:
        """A unique name, such as `broker-a` or `broker-a-slave-1`, which is also the name of its folder."""
        if self.role == RAFT:
            return f"{self.name}-n{self.broker_id - 1}"
        return self.name if self.broker_id == 0 else f"{self.name}-slave-{self.broker_id}"

    def properties(self) -> dict[str, str]:
        """The properties of broker.conf that distinguish it from the other members; ports are free ones."""
        if self.role == RAFT:
            return {
                "brokerName": self.name,
                "dLegerSelfId": f"n{self.broker_id - 1}",
                "metricsPromExporterPort": "0",
            }
        return {
            "brokerName": self.name,
            "brokerId": str(self.broker_id),
            "brokerRole": self.role,
            "haMasterAddress": "",
            "metricsPromExporterPort": "0",
        }


def raft_members(count: int) -> list[Member]:
    """The members of a Raft group. Raises ConfError."""
    if not 1 <= count <= RAFT_MAX or count == 2:
        raise ConfError(
            f"a Raft group can't have {count} members: use 1, or 3 to {RAFT_MAX}. A group of two would stop as soon as "
            "one of them stops, because both are needed for a majority"
        )
    return [Member("broker-a", number, RAFT) for number in range(1, count + 1)]


def raft_peers(host: str, ports: Sequence[int]) -> str:
    """dLegerPeers of members on one machine."""
    return ";".join(f"n{number}-{host}:{port}" for number, port in enumerate(ports))


def kept_ports(root: Path | None, host: str, count: int) -> list[int]:
    """The ports of such a group at its last start in this directory, or 0 if they are not known: free ones.

    Once the members of a group were changed, they remember their addresses.
    """
    unknown = [0] * count
    if root is None:
        return unknown
    try:
        addresses = members_of((root / PEERS_FILE).read_text().strip())
    except (OSError, ValueError):
        return unknown
    ports = [address.removeprefix(f"{host}:") for address in addresses.values()]
    return [int(port) for port in ports] if len(ports) == count and all(map(str.isdigit, ports)) else unknown


def keep_ports(root: Path, peers: str) -> None:
    """Use these addresses again at the next start in this directory. Raises OSError."""
    root.mkdir(parents=True, exist_ok=True)
    (root / PEERS_FILE).write_text(f"{peers}\n")


def bind(host: str, port: int) -> socket.socket:
    """A socket at this port, or at a free one if it is in use. Raises OSError."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError:
        bound.close()
        if not port:
            raise
        return bind(host, 0)
    return bound


def free_ports(host: str, count: int, wanted: Sequence[int] = ()) -> list[int]:
    """Ports that are free at the moment, the wanted ones if they are. Raises OSError."""
    sockets: list[socket.socket] = []
    try:
        sockets.extend(bind(host, port) for port in wanted or [0] * count)
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


def members(brokers: int, slaves: int, *, sync: bool) -> list[Member]:
    """The masters first, then the slaves. Raises ConfError."""
    if not 1 <= brokers <= BROKERS_MAX:
        raise ConfError(f"{brokers} brokers: a number from 1 to {BROKERS_MAX} is expected")
    if not 0 <= slaves <= SLAVES_MAX:
        raise ConfError(f"{slaves} slaves: a number from 0 to {SLAVES_MAX} is expected")
    if sync and not slaves:
        raise ConfError("synchronous replication needs at least one slave for each master: add slaves, or omit sync")
    names = [f"broker-{letter}" for letter in string.ascii_lowercase[:brokers]]
    role = "SYNC_MASTER" if sync else "ASYNC_MASTER"
    masters = [Member(name, 0, role) for name in names]
    return masters + [Member(name, number, "SLAVE") for name in names for number in range(1, slaves + 1)]


def shared_properties(given: Mapping[str, str], *, sync: bool) -> dict[str, str]:
    """The properties of all members. Raises ConfError for a property that differs between brokers."""
    own = [key for key in OWN_PROPERTIES if key in given]
    if own:
        raise ConfError(f"{', '.join(own)}: the cluster sets this for each of its brokers; remove it")
    return {**({"inSyncReplicas": "2"} if sync else {}), **given}
