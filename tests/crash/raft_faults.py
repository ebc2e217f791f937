"""A Raft group of three processes under load, with faults at random moments.

    python -m tests.crash.raft_faults --seed 7 --faults 20

Each member has a network namespace and a small file system of its own, where root allows that:

    kill     kill -9 of a member, which is started again
    stop     SIGSTOP for some time
    cut      its packets to one member, or to both, are dropped, in one direction or in both
    delay    its packets come up to 80 ms late
    full     its disk is filled to the last byte, and then cleared

The group has to accept messages while the fault lasts, since it leaves a majority, and afterwards. At the end every
acknowledged message is there, those of a sender are in order, and none is there more often than it was sent.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import kourou
from kourou.client.settings import ClientSettings, ProducerSettings
from kourou.protocol.errors import KourouError

from .full import fill

TOPIC: Final = "letters"
SENDERS: Final = 8
MEMBERS: Final = 3
SEGMENT: Final = 64 * 1024 * 1024
"""No life fills one: a broker whose disk is full removes old segments, and that would look like a loss."""

DISK_MIB: Final = 256
PAUSE_S: Final = 0.05
"""Between two messages of a sender."""

FAULTS: Final = ("kill", "stop", "cut", "delay", "full")
AGAIN_S: Final = 60.0
"""A group that accepts nothing for so long has failed; how long it really takes is counted."""

TARGET_S: Final = 3.0
"""How soon it should accept messages again after its leader was killed, on a machine that has time for it."""


def run(*words: object) -> None:
    subprocess.run([*map(str, words)], check=True, capture_output=True)


def begun(command: list[str], log: Path, environment: dict[str, str] | None = None) -> "subprocess.Popen[bytes]":
    """A process that writes to this log."""
    with log.open("ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment)


def may_isolate() -> bool:
    """Does this machine allow network namespaces and mounts?"""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"krtest{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return False
    run("ip", "netns", "del", name)
    return True


class Network:
    """A bridge with three namespaces: the members are at .11, .12 and .13, this process at .1."""

    def __init__(self) -> None:
        number = os.getpid() % 200 + 20
        self.prefix = f"10.213.{number}"
        self._name = f"kr{number}"
        self.host = f"{self.prefix}.1"
        self.addresses = [f"{self.prefix}.{11 + member}" for member in range(MEMBERS)]
        self.can_delay = shutil.which("tc") is not None

    def __enter__(self) -> "Network":
        try:
            run("ip", "link", "add", self._name, "type", "bridge")
            run("ip", "address", "add", f"{self.host}/24", "dev", self._name)
            run("ip", "link", "set", self._name, "up")
            for member in range(MEMBERS):
                self._add(member)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for member in range(MEMBERS):  # without its namespace, the link would be removed later, in the background
            subprocess.run(["ip", "link", "del", f"{self._name}v{member}"], capture_output=True)
            subprocess.run(["ip", "netns", "del", self.space(member)], capture_output=True)
        subprocess.run(["ip", "link", "del", self._name], capture_output=True)

    def _add(self, member: int) -> None:
        space, outer = self.space(member), f"{self._name}v{member}"
        hardware = f"02:00:00:00:00:{11 + member}"  # the same after `restart`: neighbours remember it
        run("ip", "netns", "add", space)
        run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "address", hardware, "netns", space)
        run("ip", "link", "set", outer, "master", self._name, "up")
        run("ip", "-n", space, "address", "add", f"{self.addresses[member]}/24", "dev", "eth0")
        run("ip", "-n", space, "link", "set", "eth0", "up")
        run("ip", "-n", space, "link", "set", "lo", "up")

    @contextlib.contextmanager
    def restart(self, member: int) -> Iterator[None]:
        """The machine of a member loses power and starts again: connections are forgotten without a packet.

        Its processes have to be killed in between.
        """
        run("ip", "link", "del", f"{self._name}v{member}")
        yield
        run("ip", "netns", "del", self.space(member))
        self._add(member)

    def space(self, member: int) -> str:
        return f"{self._name}-n{member}"

    @contextlib.contextmanager
    def cut(self, links: list[tuple[int, int]]) -> Iterator[None]:
        """Packets from one member to another are dropped."""
        for sender, receiver in links:
            run("ip", "-n", self.space(sender), "route", "add", "blackhole", f"{self.addresses[receiver]}/32")
        try:
            yield
        finally:
            for sender, receiver in links:
                run("ip", "-n", self.space(sender), "route", "del", "blackhole", f"{self.addresses[receiver]}/32")

    @contextlib.contextmanager
    def delay(self, member: int, ms: int) -> Iterator[None]:
        device = ("dev", "eth0", "root", "netem")
        begun = subprocess.run(
            ["tc", "-n", self.space(member), "qdisc", "add", *device, "delay", f"{ms}ms", f"{ms // 2}ms"],
            capture_output=True,
        )
        if begun.returncode:  # a kernel without netem
            self.can_delay = False
        try:
            yield
        finally:
            if not begun.returncode:
                run("tc", "-n", self.space(member), "qdisc", "del", *device)


class Node:
    """One member: its process, its namespace, its disk."""

    def __init__(self, number: int, network: Network, root: Path, mode: str) -> None:
        self.number = number
        self.disk = root / f"n{number}"
        self.disk.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "kourou-test", self.disk)
        peers = ";".join(f"n{member}-{address}:40911" for member, address in enumerate(network.addresses))
        properties = {
            "brokerName": "broker-a",
            "brokerIP1": network.addresses[number],
            "enableDLegerCommitLog": "true",
            "dLegerGroup": "broker-a",
            "dLegerPeers": peers,
            "dLegerSelfId": f"n{number}",
            "storePathRootDir": self.disk / "store",
            "mappedFileSizeCommitLog": SEGMENT,
            "mappedFileSizeConsumeQueue": 20 * 3_000,
            "maxHashSlotNum": 10_000,
            "maxIndexNum": 40_000,
            "flushDiskType": mode,
            "defaultTopicQueueNums": SENDERS,
            "diskMaxUsedSpaceRatio": 95,
        }
        assigned = [word for key, value in properties.items() for word in ("--set", f"{key}={value}")]
        self._ready = root / f"n{number}.json"
        self.log = root / f"n{number}.log"
        where = ["--host", network.addresses[number], "--port", "10911", "--ready-file", str(self._ready)]
        broker = [sys.executable, "-m", "kourou", "broker", "-n", f"{network.host}:9876", *where, *assigned]
        self._command = ["ip", "netns", "exec", network.space(number), *broker]
        self.address = f"{network.addresses[number]}:10911"
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        self._ready.unlink(missing_ok=True)
        self.process = begun(self._command, self.log)
        until = time.monotonic() + AGAIN_S
        while not self._ready.exists():
            assert self.process.poll() is None, f"n{self.number} ended: {self.log.read_text()[-2000:]}"
            assert time.monotonic() < until, f"n{self.number} does not start: {self.log.read_text()[-2000:]}"
            await asyncio.sleep(PAUSE_S)

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def close(self) -> None:
        self.kill()
        run("umount", "--lazy", self.disk)


class Letters:
    """Senders that number their messages, and repeat one until it is acknowledged."""

    def __init__(self, mq: kourou.Client) -> None:
        self._mq = mq
        self.attempts: Counter[bytes] = Counter()
        self.acknowledged: set[bytes] = set()
        self.last_at = time.monotonic()
        self.is_over = False

    async def send(self, sender: int) -> None:
        number = 0
        while not self.is_over:
            body = b"%d-%d" % (sender, number)
            self.attempts[body] += 1
            try:
                await self._mq.send(TOPIC, body, ordering_key=str(sender))
            except KourouError:
                await asyncio.sleep(0.05)
            else:
                self.acknowledged.add(body)
                self.last_at = time.monotonic()
                number += 1
                await asyncio.sleep(PAUSE_S)

    async def flows(self, since: float) -> float:
        """Until a message was acknowledged that was sent after `since`: how long that took."""
        before = len(self.acknowledged)
        while len(self.acknowledged) < before + SENDERS:
            assert time.monotonic() < since + AGAIN_S, f"nothing was acknowledged for {AGAIN_S:g} s"
            await asyncio.sleep(0.005)
        return self.last_at - since


class Life:
    """One group, from its start to its end."""

    def __init__(self, seed: int, root: Path, network: Network) -> None:
        self.random = random.Random(seed)
        self.root = root
        self.network = network
        self.mode = self.random.choice(["SYNC_FLUSH", "ASYNC_FLUSH"])
        self.nodes = [Node(number, network, root, self.mode) for number in range(MEMBERS)]
        self.counts: Counter[str] = Counter()
        self.after_kill: list[float] = []
        """How long it took until a message was acknowledged, after the leader was killed."""

    async def run(self, faults: int) -> None:
        name_server = await self._name_server()
        try:
            await asyncio.gather(*(node.start() for node in self.nodes))
            settings = ClientSettings(route_interval=0.5)
            producing = ProducerSettings(retries=0, timeout=3.0)
            namesrv = f"{self.network.host}:9876"
            async with kourou.connect(namesrv, settings=settings, producer=producing) as mq:
                letters = Letters(mq)
                senders = [asyncio.create_task(letters.send(sender)) for sender in range(SENDERS)]
                await letters.flows(time.monotonic())
                for _ in range(faults):
                    await self._fault(mq, letters)
                letters.is_over = True
                await asyncio.gather(*senders)
                await self._check(mq, letters)
        finally:
            for node in self.nodes:
                node.close()
            name_server.kill()
            name_server.wait()

    async def _name_server(self) -> "subprocess.Popen[bytes]":
        ready = self.root / "names.json"
        command = [sys.executable, "-m", "kourou", "namesrv", "--host", self.network.host, "-p", "9876"]
        environment = {**os.environ, "HOME": str(self.root)}
        process = begun([*command, "--ready-file", str(ready)], self.root / "names.log", environment)
        while not ready.exists():
            assert process.poll() is None, (self.root / "names.log").read_text()
            await asyncio.sleep(PAUSE_S)
        return process

    async def _leader(self, mq: kourou.Client) -> int:
        """The member that leads, as it says itself."""
        until = time.monotonic() + AGAIN_S
        while time.monotonic() < until:
            for node in self.nodes:
                with contextlib.suppress(KourouError):
                    if (await mq.admin.raft.status(node.address)).role == "leader":
                        return node.number
            await asyncio.sleep(0.05)
        raise AssertionError("no leader")

    async def _fault(self, mq: kourou.Client, letters: Letters) -> None:
        kind = self.random.choice([one for one in FAULTS if one != "delay" or self.network.can_delay])
        leader = await self._leader(mq)
        member = leader if self.random.random() < 0.6 else self.random.randrange(MEMBERS)
        self.counts[kind] += 1
        self.counts["faults"] += 1
        begun = time.monotonic()
        async with self._during(kind, member):
            took = await letters.flows(begun)
            if kind == "kill" and member == leader:
                self.after_kill.append(took)
            await asyncio.sleep(self.random.uniform(0, 1.5))
        await letters.flows(time.monotonic())

    @contextlib.asynccontextmanager
    async def _during(self, kind: str, member: int) -> AsyncIterator[None]:
        node = self.nodes[member]
        if kind == "kill":
            node.kill()
            yield
            await node.start()
        elif kind == "stop":
            node.signal(signal.SIGSTOP)
            try:
                yield
            finally:
                node.signal(signal.SIGCONT)
        elif kind == "cut":
            with self.network.cut(self._links(member)):
                yield
        elif kind == "delay":
            with self.network.delay(member, self.random.choice([10, 40, 80])):
                yield
        else:
            ballast = node.disk / "ballast"
            await asyncio.to_thread(fill, ballast)
            try:
                yield
            finally:
                ballast.unlink()

    def _links(self, member: int) -> list[tuple[int, int]]:
        others = [other for other in range(MEMBERS) if other != member]
        if self.random.random() < 0.5:
            others = [self.random.choice(others)]
        out = [(member, other) for other in others]
        back = [(other, member) for other in others]
        return self.random.choice([out + back, out, back])

    async def _check(self, mq: kourou.Client, letters: Letters) -> None:
        """Nothing that was acknowledged is missing; order; no more copies than attempts."""
        found: dict[tuple[int, int], bytes] = {}
        missing = set(letters.acknowledged)
        async with mq.consume(TOPIC, group="readers", start="first") as consumer:
            while missing:
                message = await consumer.next(timeout=30)
                assert message is not None, f"{len(missing)} acknowledged letters are lost, as {sorted(missing)[:3]}"
                async with message.process():
                    found[message.queue.queue_id, message.queue_offset] = message.body
                    missing.discard(message.body)
        copies = Counter(found.values())
        too_many = {body: count for body, count in copies.items() if count > letters.attempts[body]}
        assert not too_many, f"more copies than attempts: {sorted(too_many)[:3]}"
        seen: dict[bytes, list[int]] = defaultdict(list)
        for _, body in sorted(found.items()):
            sender, _, number = body.partition(b"-")
            if int(number) not in seen[sender]:
                seen[sender].append(int(number))
        assert all(numbers == sorted(numbers) for numbers in seen.values()), "the order of a sender is not kept"
        self.counts["acknowledged"] += len(letters.acknowledged)
        self.counts["copies by retries"] += sum(count - 1 for count in copies.values())


def life(seed: int, faults: int, folder: Path | None = None) -> Life:
    """One life with so many faults. Raises AssertionError."""
    root = Path(tempfile.mkdtemp(prefix="kourou-raft-faults-", dir=folder))
    with Network() as network:
        one = Life(seed, root, network)
        asyncio.run(one.run(faults))
    shutil.rmtree(root, ignore_errors=True)
    return one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=20)
    options = parser.parse_args()
    if not may_isolate():
        raise SystemExit("network namespaces are not allowed here: run it as root")
    one = life(options.seed, options.faults)
    late = [took for took in one.after_kill if took > TARGET_S]
    after = {"kills of the leader": len(one.after_kill), "longest, s": round(max(one.after_kill, default=0), 2)}
    print(json.dumps({"mode": one.mode, **one.counts, **after, f"over {TARGET_S:g} s": len(late)}))


if __name__ == "__main__":
    main()
