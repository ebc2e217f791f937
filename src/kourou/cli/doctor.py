"""`kourou doctor`: checks for common problems, and says what to change.

Each check is a function that yields findings: good, doubtful or bad, with a remedy. It changes nothing.
"""

import ipaddress
import os
import re
import shutil
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.findings import Finding, State
from kourou.cli.output import printable, show, show_json
from kourou.cli.profiles import is_from_profile, name_servers_or_profile, open_client
from kourou.cli.running import JsonOutput, LogLevel, NameServers, run

if TYPE_CHECKING:
    from kourou.client import Client

PATIENCE = 3.0
SKEW_SECONDS_MAX = 5
FLUSH_LATE_MS_MAX = 5_000
FREE_BYTES_MIN = 1024**3
USED_RATIO_MAX = 0.85
OPEN_FILES_MIN = 4096

_AGE = re.compile(r"(\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds")


def doctor(
    name_servers: NameServers = None,
    store: Annotated[Path | None, typer.Option(metavar="DIR", help="A broker's store on this machine.")] = None,
    as_json: JsonOutput = False,
    log_level: LogLevel = "error",
) -> None:
    """Check addresses, ports, advertised IPs, disk, clock and versions, and say what to change."""
    findings: list[Finding] = []

    async def examine() -> None:
        addresses = name_servers_or_profile(name_servers) or "127.0.0.1:9876"
        async for finding in _examine(name_servers, addresses, store):
            findings.append(finding)
            _show(finding, as_json=as_json)

    run(examine, log_level)
    if any(finding.state is State.BAD for finding in findings):
        raise typer.Exit(1)


def _show(finding: Finding, *, as_json: bool) -> None:
    if as_json:
        show_json(asdict(finding))
        return
    sign = {State.GOOD: "✓", State.DOUBTFUL: "!", State.BAD: "✗"}[finding.state]
    show(printable(f"{sign} {finding.check}: {finding.text}"))
    if finding.remedy:
        show(printable(f"    → {finding.remedy}"))


async def _examine(given: str | None, name_servers: str, store: Path | None) -> AsyncIterator[Finding]:
    yield _installation()
    yield _open_files()
    if store is not None:
        for finding in _disk(store):
            yield finding
    reachable = False
    for address in filter(None, (word.strip() for word in name_servers.split(";"))):
        finding = await _reach("name server", address, "start it (kourou namesrv), or give another one with -n")
        reachable |= finding.state is State.GOOD
        yield finding
    if reachable:
        async for finding in _brokers(given or (None if is_from_profile(given) else name_servers), name_servers):
            yield finding


def _installation() -> Finding:
    from kourou import _backend
    from kourou._version import __version__

    name = _backend.name()
    text = f"kourou {__version__}, {name}, Python {sys.version.split()[0]}"
    if name == "compiled":
        return Finding("installation", State.GOOD, text)
    remedy = "install a C compiler (apt-get install gcc python3-dev), then install Kourou again"
    return Finding("installation", State.DOUBTFUL, f"{text}: a broker takes about five times the CPU time", remedy)


def _open_files() -> Finding:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= OPEN_FILES_MIN:
        return Finding("open files", State.GOOD, f"up to {'any number' if hard == resource.RLIM_INFINITY else hard}")
    remedy = "raise the limit (ulimit -n 65536, or LimitNOFILE= of the service)"
    return Finding("open files", State.DOUBTFUL, f"up to {hard}: enough for few connections", remedy)


def _disk(store: Path) -> list[Finding]:
    if not store.is_dir():
        return [Finding("store", State.BAD, f"{store} is not a directory", "give the broker's storePathRootDir")]
    findings = []
    usage = shutil.disk_usage(store)
    text = f"{store}: {usage.free / 1024**3:.1f} GiB free of {usage.total / 1024**3:.1f}"
    used = 1 - usage.free / usage.total
    if usage.free < FREE_BYTES_MIN or used > USED_RATIO_MAX:
        remedy = "free some space: at 85 % brokers delete messages that have not expired, at 90 % they refuse new ones"
        findings.append(Finding("disk", State.BAD if used > 0.9 else State.DOUBTFUL, text, remedy))
    else:
        findings.append(Finding("disk", State.GOOD, text))
    if not os.access(store, os.W_OK):
        findings.append(
            Finding("store", State.BAD, f"{store} is not writable", "make it writable for the broker's user (chown)")
        )
    if (store / "abort").exists():
        findings.append(
            Finding(
                "store",
                State.GOOD,
                f"{store} is in use, or its broker did not stop cleanly: the next start will check it",
            )
        )
    return findings


async def _reach(what: str, address: str, remedy: str) -> Finding:
    import asyncio

    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()):
        return Finding(what, State.BAD, f"{address} is not an address", "host:port is expected")
    started = time.perf_counter()
    try:
        async with asyncio.timeout(PATIENCE):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except TimeoutError:
        return Finding(
            what,
            State.BAD,
            f"{address} does not answer within {PATIENCE:g} s",
            f"check for a firewall; if there is none: {remedy}",
        )
    except OSError as error:
        return Finding(what, State.BAD, f"{address}: {error.strerror or error}", remedy)
    writer.close()
    return Finding(what, State.GOOD, f"{address} is reachable, {(time.perf_counter() - started) * 1000:.1f} ms")


async def _brokers(given: str | None, name_servers: str) -> AsyncIterator[Finding]:
    """`given` is None if a profile gives the cluster and the credentials."""
    from kourou.cli.doctor_groups import group_findings
    from kourou.protocol.errors import KourouError

    async with open_client(given) as mq:
        try:
            info = await mq.admin.brokers.cluster()
        except KourouError as error:
            yield Finding("cluster", State.BAD, str(error), "check that the server at this address is a name server")
            return
        async for finding in _open_name_servers(mq):
            yield finding
        if not info.broker_addr_table:
            remedy = "start a broker with this address as namesrvAddr (kourou broker -n …)"
            yield Finding("brokers", State.BAD, "no broker is registered with the name server", remedy)
        for name, data in sorted(info.broker_addr_table.items()):
            for number, address in sorted(data.broker_addrs.items()):
                async for finding in _broker(mq, f"broker {name} ({number})", address, name_servers):
                    yield finding
            async for finding in group_findings(mq, name, data.broker_addrs):
                yield finding


async def _open_name_servers(mq: "Client") -> AsyncIterator[Finding]:
    """Name servers that every machine in the network may use. Apache's do not report where they listen."""
    from kourou.protocol.errors import KourouError

    try:
        configs = await mq.admin.brokers.name_server_config()
    except KourouError:  # another check reports a missing server; this user may have no right to ask
        return
    for address, config in configs.items():
        host = config.get("bindAddress", "127.0.0.1")
        is_guarded = "true" in (config.get("authenticationEnabled"), config.get("aclEnable"))
        if not is_guarded and not _is_loopback(f"{host}:0"):
            yield Finding(
                "name server",
                State.DOUBTFUL,
                f"open to the network without authentication: {address} listens on {host}",
                "set authenticationEnabled, authorizationEnabled and initAuthenticationUser; docs/security.md has the "
                "details",
            )


async def _broker(mq: "Client", what: str, address: str, name_servers: str) -> AsyncIterator[Finding]:
    from kourou.protocol.errors import KourouError

    finding = await _reach(
        what, address, "clients use this address: set brokerIP1 to one that they can reach, and restart the broker"
    )
    yield finding
    if _is_loopback(address) and not all(_is_loopback(one) for one in name_servers.split(";") if one.strip()):
        remedy = "set brokerIP1 to the broker's address in your network, and restart the broker"
        yield Finding(what, State.BAD, f"it is registered as {address}, which only its own machine can reach", remedy)
    if finding.state is not State.GOOD:
        return
    try:
        runtime = await mq.admin.brokers.runtime(address)
    except KourouError as error:
        yield Finding(what, State.BAD, str(error), "check that a RocketMQ broker is listening there")
        return
    yield Finding(what, State.GOOD, f"version {runtime.get('brokerVersionDesc', 'unknown')}")
    for problem in _health(what, runtime):
        yield problem
    skew = _skew(runtime)
    if skew is not None and abs(skew) > SKEW_SECONDS_MAX:
        remedy = "synchronise the clocks of all machines (NTP): delays, expiry and message ids depend on them"
        yield Finding(what, State.DOUBTFUL, f"its clock differs from this one by {skew:.0f} s", remedy)


def _health(what: str, runtime: dict[str, str]) -> list[Finding]:
    """Findings from the status that a Kourou broker reports."""
    findings = []
    late = _count(runtime, "kourouFlushLateMillis")
    if late > FLUSH_LATE_MS_MAX:
        remedy = "see its log for the cause; check the disk (full, failing, too slow) and the limit of open files"
        text = f"the flush to the disk is {late / 1000:.0f} s late: a power failure would lose messages"
        findings.append(Finding(what, State.BAD, text, remedy))
    if runtime.get("kourouOpenPorts"):
        remedy = "its log, at the start, has the remedy for each port; docs/security.md has the details"
        text = f"open to the network without authentication: {runtime['kourouOpenPorts']}"
        findings.append(Finding(what, State.DOUBTFUL, text, remedy))
    errors = _count(runtime, "kourouInternalErrors")
    if errors:
        remedy = "see its log for the tracebacks, and please report them"
        findings.append(Finding(what, State.DOUBTFUL, f"{errors} internal errors since it started", remedy))
    return findings


def _count(runtime: dict[str, str], name: str) -> int:
    text = runtime.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _is_loopback(address: str) -> bool:
    host = address.strip().rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _skew(runtime: dict[str, str]) -> float | None:
    """How far a broker's clock is ahead, from the start time and the uptime that it reports."""
    match = _AGE.search(runtime.get("runtime", ""))
    started = runtime.get("bootTimestamp", "")
    if match is None or not started.isdigit():
        return None
    days, hours, minutes, seconds = map(int, match.groups())
    age = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return int(started) / 1000 + age - time.time()
