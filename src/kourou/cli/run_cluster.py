"""`kourou run --brokers N [--slaves M] [--sync]` and `kourou run --raft N`: a whole cluster on this machine.

Each member is a process.
"""

import asyncio
import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kourou.broker.properties import (
    Configuration,
    ProcessSettings,
    PropertyError,
    configure,
    is_property,
    to_properties,
    unknown_keys,
)
from kourou.broker.settings import BrokerSettings
from kourou.cli.console_child import ConsoleChild
from kourou.cli.output import show
from kourou.cli.serve import with_plain_acl_file
from kourou.client import connect
from kourou.nameserver.settings import is_setting
from kourou.net.tls import TlsMode
from kourou.protocol.bodies import ClusterInfo
from kourou.protocol.codes import MASTER_ID
from kourou.server import exposure
from kourou.server.access_files import SHARED, may_share_access
from kourou.server.cluster import (
    Member,
    free_ports,
    keep_ports,
    kept_ports,
    members,
    raft_members,
    raft_peers,
    shared_properties,
)
from kourou.server.conf import ConfError, outgoing_tls_settings, parse_assignments, read_conf, tls_settings
from kourou.server.files import make_folder
from kourou.server.members import MemberProcess, MemberProcesses
from kourou.server.process import run_until_stopped, write_ready_file
from kourou.store.settings import SMALL

log = logging.getLogger(__name__)

NAMESRV_PORT = 9876

ELECTION_SECONDS = 30.0
"""How long a Raft group may take until it has a leader."""

SIZES = (
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "maxHashSlotNum",
    "maxIndexNum",
    "mappedFileSizeTimerLog",
)
"""Sizes of files: small ones, as those of `kourou run` with one broker, unless others are given."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The options of the command."""

    brokers: int
    slaves: int
    sync: bool
    raft: int  # members of one Raft group; 0: none
    host: str | None
    namesrv_port: int | None  # None: 9876 if it is free, any free one otherwise
    store: Path
    config: Path | None
    assignments: list[str]
    ready_file: Path | None
    log_level: str
    console: bool = False


async def run_cluster(options: ClusterOptions) -> None:
    """Runs until SIGTERM or SIGINT, then stops all members. Raises ConfError."""
    cluster = _Cluster(options)
    await run_until_stopped(cluster.start, cluster.stop, cluster.ended)


class _Cluster:
    """A name server and the brokers."""

    def __init__(self, options: ClusterOptions) -> None:
        self._options = options
        self._root = options.store.resolve()
        self._host = options.host or "127.0.0.1"
        self._plan = (
            raft_members(options.raft) if options.raft else members(options.brokers, options.slaves, sync=options.sync)
        )
        assigned = parse_assignments(options.assignments)
        self._of_name_server = {k: v for k, v in assigned.items() if is_setting(k) and not is_property(k)}
        of_brokers = {k: v for k, v in assigned.items() if k not in self._of_name_server}
        given = {**(read_conf(options.config) if options.config else {}), **of_brokers}
        shared = shared_properties(given, sync=options.sync)
        self._configuration = with_plain_acl_file(_checked(given, options.config), options.config)
        self._is_guarded = self._configuration.broker.authenticates or self._configuration.process.plain_acl
        self._shares_access = may_share_access(self._configuration)
        in_tls = self._configuration.process.name_servers_in_tls or tls_settings(given).mode is TlsMode.ENFORCING
        self._tls = outgoing_tls_settings(given, wanted=in_tls)  # of the console, and of this process
        for key in unknown_keys(given):
            log.warning("property %s is unknown and ignored", key)
        added = {key: text for key, text in shared.items() if key not in given}
        self._of_brokers = of_brokers
        self._shared = {**_sizes(given), **added, **of_brokers}  # in addition to the file, which members read as well
        if in_tls and "tls.enable" not in given:
            self._shared["useTLS"] = "true"  # the name server has the TLS settings of the brokers
        if options.raft:
            wanted = kept_ports(self._root, self._host, options.raft)
            peers = raft_peers(self._host, free_ports(self._host, options.raft, wanted))
            keep_ports(self._root, peers)
            group = self._plan[0].name
            self._shared |= {"enableDLegerCommitLog": "true", "dLegerGroup": group, "dLegerPeers": peers}
        self._processes = MemberProcesses()
        self._console = ConsoleChild()
        self._name_server = MemberProcess("namesrv", self._namesrv_words(), self._root)
        self._brokers: list[tuple[Member, MemberProcess]] = []

    def _namesrv_words(self) -> list[str]:
        folder = self._root / "namesrv"
        kept = folder / "namesrv.properties"
        make_folder(folder)
        kept.touch(0o600)
        shared = {key: text for key, text in self._of_brokers.items() if key.startswith("tls.")}
        brokers = ["--tls-of", str(self._options.config)] if self._options.config else []
        if self._shares_access:
            shared |= {key: text for key, text in self._of_brokers.items() if key in SHARED}
            shared["plainAclFile"] = self._configuration.process.plain_acl_file
            brokers += ["--access-of", str(self._options.config)] if self._options.config else []
        properties = {**shared, **self._of_name_server, "kvConfigPath": str(folder / "kvConfig.json")}
        port = _namesrv_port(self._host) if self._options.namesrv_port is None else self._options.namesrv_port
        return ["namesrv", "-c", str(kept), "--port", str(port), *brokers, *self._words(properties)]

    def _broker_words(self, member: Member) -> list[str]:
        properties = {
            **self._shared,
            **member.properties(),
            "storePathRootDir": str(self._root / member.label),
        }
        config = ["-c", str(self._options.config)] if self._options.config else []
        return ["broker", *config, "-n", self.namesrv, "--port", "0", *self._words(properties)]

    def _words(self, properties: Mapping[str, str]) -> list[str]:
        assigned = [word for key, text in properties.items() for word in ("--set", f"{key}={text}")]
        return ["--host", self._host, "--log-level", self._options.log_level, *assigned]

    @property
    def namesrv(self) -> str:
        return str(self._name_server.ready["namesrv"])

    async def start(self) -> None:
        """Raises ConfError: a member did not start."""
        await self._processes.start([self._name_server])
        self._brokers = [(m, MemberProcess(m.label, self._broker_words(m), self._root)) for m in self._plan]
        await self._processes.start(process for member, process in self._brokers if member.broker_id == 0)
        await self._processes.start(process for member, process in self._brokers if member.broker_id)
        if self._options.raft:
            await self._is_led()
        if self._options.console:
            self._console.listen()
        first = self._brokers[0][1].ready
        write_ready_file(
            self._options.ready_file,
            namesrv=self.namesrv,
            broker=first["broker"],
            ha=first["ha"],
            console=self._console.url,
            store=str(self._root),
            members=[self._name_server_entry(), *(_entry(member, process) for member, process in self._brokers)],
        )
        all_members = (self._name_server, *(process for _, process in self._brokers))
        exposure.warn(exposure.OpenPort(**one) for member in all_members for one in member.ready.get("open_ports", ()))
        for member, process in self._brokers:
            show(f"{member.label}: {process.ready['broker']} {member.role}, pid {process.pid}, log {process.log_file}")
        show(f"kourou is ready: name server {self.namesrv}, {len(self._brokers)} brokers in {self._root}")
        if self._shares_access and self._configuration.broker.authenticates:
            log.warning(
                "the name server has users of its own, at first only those of initAuthenticationUser and "
                "innerClientAuthenticationCredentials. Create other users there as well: kourou admin createUser -b %s",
                self.namesrv,
            )
        await self._console.start(self.namesrv, accounts=self._is_guarded, tls=self._tls)

    async def _is_led(self) -> None:
        """Wait until the Raft group has a leader that the name server knows. Raises ConfError."""
        name = self._plan[0].name
        try:
            inner = self._configuration.broker.inner_user
            key, secret = ("", "") if inner is None else (inner.name, inner.password)
            observer = connect(self.namesrv, tls=self._tls or False, access_key=key or None, secret_key=secret or None)
            async with asyncio.timeout(ELECTION_SECONDS), observer as mq:
                while not _has_master(await mq.admin.brokers.cluster(), name):  # noqa: ASYNC110 - nothing tells of it
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise ConfError(f"the group has elected no leader within {ELECTION_SECONDS:g} s: see the logs") from None

    def _name_server_entry(self) -> dict[str, Any]:
        process = self._name_server
        return {
            "name": process.label,
            "role": "NAMESRV",
            "pid": process.pid,
            "namesrv": self.namesrv,
            "store": str(self._root / "namesrv"),
            "log": str(process.log_file),
        }

    async def ended(self) -> None:
        """Returns when no member is left. Raises ConfError then."""
        await self._processes.all_ended()
        raise ConfError("all members of the cluster have ended: their logs are in " + str(self._root / "members"))

    async def stop(self) -> None:
        """Masters first, so that slaves get everything; the name server last."""
        await self._console.stop()
        await self._processes.stop(process for member, process in self._brokers if member.broker_id == 0)
        await self._processes.stop(process for member, process in self._brokers if member.broker_id)
        await self._processes.stop_the_rest()


def _has_master(cluster: ClusterInfo, name: str) -> bool:
    found = cluster.broker_addr_table.get(name)
    return found is not None and MASTER_ID in found.broker_addrs


def _entry(member: Member, process: MemberProcess) -> dict[str, Any]:
    return {
        "name": member.label,
        "role": member.role,
        "brokerName": member.name,
        "brokerId": member.broker_id,
        "pid": process.pid,
        "broker": process.ready["broker"],
        "ha": process.ready["ha"],
        "store": process.ready["store"],
        "log": str(process.log_file),
    }


def _checked(given: Mapping[str, str], source: Path | None) -> Configuration:
    """What all brokers have in common. Raises ConfError now, in place of each member later."""
    try:
        return configure(_DEFAULTS, given)
    except PropertyError as error:
        raise ConfError(f"{source}: {error}" if source else str(error)) from None


_DEFAULTS = Configuration(BrokerSettings(), SMALL, ProcessSettings(), {})


def _sizes(given: Mapping[str, str]) -> dict[str, str]:
    small = to_properties(_DEFAULTS)
    return {key: small[key] for key in SIZES if key not in given}


def _namesrv_port(host: str) -> int:
    """The usual port if it is free, 0 otherwise."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, NAMESRV_PORT))
        except OSError as error:
            log.warning("port %d is not free (%s): the name server gets another one", NAMESRV_PORT, error.strerror)
            return 0
    return NAMESRV_PORT
