"""The effects of an attack on another client of the broker: the latency of its small requests, and the memory after.

    python -m tests.hostile.bystander                     all attacks, three rounds of five seconds each
    python -m tests.hostile.bystander NAME … --rounds 1   some of them

Two attackers are processes of their own, which ask again and again. The bystander sends a message and pulls it. The p99
is that of both, the median of the rounds. Memory is what the broker holds ten seconds after the attack, less what it
held before or, if the attack has left tables behind, what a broker needs that starts with them.
"""

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kourou.protocol import bodies, headers
from kourou.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command

from .broker_target import BrokerTarget, pull_command, send_command
from .target import MIB, Peer

P99_MAX = 0.1
MEMORY_MAX = 50 * MIB
WIDE = 65_536
GROUPS = 16
WIDE_TOPICS = 8
LISTED = 5_000


class Ports(NamedTuple):
    """Where the victims are."""

    broker: int
    name_server: int


def _ask(peer: Peer, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Command:
    return peer.ask(Command(code, 1, version=513, ext=ext, body=body))


def _make_wide(peer: Peer) -> None:
    for n in range(WIDE_TOPICS):
        header = headers.CreateTopic(
            topic=f"wide-{n}",
            default_topic="TBW102",
            read_queue_nums=WIDE,
            write_queue_nums=WIDE,
            perm=6,
            topic_filter_type="SINGLE_TAG",
        )
        _ask(peer, RequestCode.UPDATE_AND_CREATE_TOPIC, header.encode())
    for n in range(GROUPS):
        group = SubscriptionGroupConfig(group_name=f"clone-{n}")
        _ask(peer, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group.encode())


def _reset(peer: Peer, topic: str, group: str) -> None:
    ext = {"topic": topic, "group": group, "timestamp": "0", "isForce": "true"}
    _ask(peer, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)


def offsets_of_wide_topics(peer: Peer, ports: Ports) -> None:
    """1: offsets in every queue of a wide topic, for many groups."""
    _make_wide(peer)
    _reset(peer, "wide-0", "clone-0")
    for n in range(1, GROUPS):
        ext = {"srcGroup": "clone-0", "destGroup": f"clone-{n}", "topic": "wide-0", "offline": "true"}
        _ask(peer, RequestCode.CLONE_GROUP_OFFSET, ext)


def lists_of_topics(peer: Peer, ports: Ports) -> None:
    """2: as many topics as are taken."""
    for part in range(26):
        topics = [TopicConfig(topic_name=f"listed-{part * LISTED + n}") for n in range(LISTED)]
        body = bodies.CreateTopicListRequestBody(topic_config_list=topics).encode()
        _ask(peer, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)


def lists_of_groups(peer: Peer, ports: Ports) -> None:
    """3: as many groups as are taken, in lists of all sizes."""
    for part in range(30):
        groups = [SubscriptionGroupConfig(group_name=f"listed-{part * 2_500 + n}") for n in range(2_500)]
        body = bodies.SubscriptionGroupList(group_config_list=groups).encode()
        _ask(peer, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body)


def statistics_of_wide_topics(peer: Peer, ports: Ports) -> None:
    """3: how far a group is in wide topics."""
    _make_wide(peer)
    names = ";".join(f"wide-{n}" for n in range(WIDE_TOPICS))
    for _ in range(3):
        _ask(peer, RequestCode.GET_CONSUME_STATS, {"consumerGroup": "clone-0", "topicList": names})
        _ask(peer, RequestCode.GET_TOPIC_STATS_INFO, {"topic": "wide-0"})
        _ask(peer, RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})


def whole_tables(peer: Peer, ports: Ports) -> None:
    """3: the largest answers."""
    offsets_of_wide_topics(peer, ports)
    for _ in range(3):
        _ask(peer, RequestCode.GET_ALL_CONSUMER_OFFSET)
        _ask(peer, RequestCode.GET_ALL_TOPIC_CONFIG)
        _ask(peer, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)


def slow_bodies(peer: Peer, ports: Ports) -> None:
    """3: bodies in fastjson's dialect, and such as have very many small values."""
    for body in (
        b'{"mqSet":{' + b"{}:0," * 400_000 + b"{}:0}}",
        b'{"mqSet":{' + b"{}:0," * 1_600 + b"{}:0}}",
        b'{"mqSet":[' + b"{}," * 300_000 + b"{}]}",
        b'{"mqSet":[' + b"{}," * 16_000 + b"{}]}",
    ):
        _ask(peer, RequestCode.LOCK_BATCH_MQ, body=body)
        _ask(peer, RequestCode.HEART_BEAT, body=body)


def names_without_end(peer: Peer, ports: Ports) -> None:
    """4: a new name with each request."""
    start = time.monotonic_ns()
    for n in range(300):
        name = f"{start}-{n}"
        peer.ask(send_command(f"%RETRY%{name}"))
        peer.ask(send_command(f"invented-{name}"))
        _ask(peer, RequestCode.CLONE_GROUP_OFFSET, {"srcGroup": "clone-0", "destGroup": name, "offline": "true"})


def hostile_settings(peer: Peer, ports: Ports) -> None:
    """5: settings that delete messages, or make answers large."""
    for text in (
        "fileReservedTime=0",
        "diskMaxUsedSpaceRatio=0",
        "diskSpaceCleanForciblyRatio=0",
        "maxTransferBytesOnMessageInMemory=2000000000",
        "maxTransferCountOnMessageInMemory=2000000000",
        "x" * 10 * MIB,
    ):
        answer = _ask(peer, RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())
        assert answer.code != ResponseCode.SUCCESS, text[:80]
    _ask(peer, RequestCode.DELETE_EXPIRED_COMMITLOG)
    for offset in range(20):
        peer.ask(pull_command("ordinary", offset))


def brokers_that_are_none(peer: Peer, ports: Ports) -> None:
    """6: registrations with addresses that must be neither printed nor connected to."""
    with Peer(ports.name_server) as name_server:
        for n in range(100):
            ext = {
                "clusterName": "C",
                "brokerName": f"odd-{n}\r\n",
                "brokerId": "0",
                "brokerAddr": f"10.0.0.1:1\r\n\x1b[2J{n}",
                "haServerAddr": "h:1",
            }
            _ask(name_server, RequestCode.REGISTER_BROKER, ext)
    for _ in range(20):
        _ask(peer, RequestCode.GET_BROKER_CONFIG)


def preambles(peer: Peer, ports: Ports) -> None:
    """7: PROXY preambles from untrusted addresses."""
    for n in range(100):
        with Peer(ports.broker) as other, suppress(ConnectionError, EOFError):
            other.send(b"PROXY TCP4 203.0.113.%d 192.0.2.1 1 2\r\n" % (n % 250))
            assert other.ended()


ATTACKS: dict[str, Callable[[Peer, Ports], None]] = {
    attack.__name__: attack
    for attack in (
        offsets_of_wide_topics,
        lists_of_topics,
        lists_of_groups,
        statistics_of_wide_topics,
        whole_tables,
        slow_bodies,
        names_without_end,
        hostile_settings,
        brokers_that_are_none,
        preambles,
    )
}


def _attack(name: str, ports: Ports) -> None:
    """In a process of its own, until it is ended."""
    while True:
        with Peer(ports.broker) as peer, suppress(EOFError, ConnectionError):
            ATTACKS[name](peer, ports)


# ── The bystander ───────────────────────────────────────────────────────────────────────────────────────────────────


def latencies(port: int, seconds: float) -> list[float]:
    """Of a send and a pull, one after the other, for so long."""
    found: list[float] = []
    until = time.monotonic() + seconds
    with Peer(port) as peer:
        while time.monotonic() < until:
            began = time.perf_counter()
            sent = peer.ask(send_command("ordinary", b"ordinary"))
            middle = time.perf_counter()
            assert sent.code == ResponseCode.SUCCESS, sent
            assert sent.ext is not None
            pulled = peer.ask(pull_command("ordinary", int(sent.ext["queueOffset"]), group="customers"))
            assert pulled.code == ResponseCode.SUCCESS, pulled
            found += (middle - began, time.perf_counter() - middle)
            time.sleep(0.002)
    return found


def _memory(target: BrokerTarget) -> int:
    """Bytes of memory that are no pages of files."""
    for line in Path(f"/proc/{target.process.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the broker is gone")


def p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


class Outcome(NamedTuple):
    """Of one attack."""

    p99: float
    kept: int  # bytes of memory that are held after it


def run(name: str, folder: Path, rounds: int, seconds: float) -> Outcome:
    """One attack on a broker of its own."""
    target = BrokerTarget(folder)
    try:
        target.check()  # its topics are there before others are
        latencies(target.port, 1.0)
        before = _memory(target)
        ports = Ports(target.port, target.name_server_port)
        context = multiprocessing.get_context("spawn")
        attackers = [context.Process(target=_attack, args=(name, ports), daemon=True) for _ in range(2)]
        for attacker in attackers:
            attacker.start()
        time.sleep(1.0)  # they are under way; what they make grows from round to round
        found = [p99(latencies(target.port, seconds)) for _ in range(rounds)]
        for attacker in attackers:
            attacker.kill()
            attacker.join()
        latencies(target.port, 10.0)  # tables are written, and work that nobody waits for ends
        target.check()
        after = _memory(target)
        if after - before > MEMORY_MAX:  # topics and offsets that were made are there to stay: what do they need?
            assert target.stop() == 0
            (folder / "ready.json").unlink()
            target = BrokerTarget(folder)
            with Peer(target.port) as peer:
                _ask(peer, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=b'{"topicConfigList":[{"topicName":"t"}]}')
                _ask(peer, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"g"}')
            latencies(target.port, 5.0)
            before = max(before, _memory(target))
        return Outcome(statistics.median(found), max(after - before, 0))
    finally:
        target.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.bystander")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which attacks: {', '.join(ATTACKS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    failed = False
    print("| attack | p99 of the other client, ms | memory kept, MiB |\n|---|---|---|")
    for name in options.names or ATTACKS:
        with tempfile.TemporaryDirectory() as folder:
            outcome = run(name, Path(folder), options.rounds, options.seconds)
        is_good = outcome.p99 < P99_MAX and outcome.kept < MEMORY_MAX
        failed |= not is_good
        mark = "" if is_good else " <--"
        print(f"| {name} | {outcome.p99 * 1000:.1f} | {outcome.kept / MIB:.0f} |{mark}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
