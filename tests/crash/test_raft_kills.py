"""A Raft group of real processes whose leader is killed under load."""

import asyncio
import os
import signal
import time
from collections import defaultdict
from pathlib import Path

import pytest
from tests.waiting import POLL_S, eventually

import kourou
from kourou.client.settings import ClientSettings
from kourou.protocol.errors import KourouError
from kourou.server.cluster import free_ports, raft_peers
from kourou.server.members import MemberProcess

from .raft_faults import life, may_isolate

TOPIC = "letters"
SENDERS = 8
QUEUES = 4
SEGMENT = 16 * 1024 * 1024
BEFORE, AFTER = 400, 400


class Letters:
    """Senders that number their messages and repeat one until it is acknowledged."""

    def __init__(self, mq: kourou.Client) -> None:
        self._mq = mq
        self.acknowledged: set[bytes] = set()
        self.acknowledged_at = 0.0
        self.is_over = False

    async def send(self, sender: int) -> None:
        number = 0
        while not self.is_over:
            body = b"%d-%d" % (sender, number)
            try:
                await self._mq.send(TOPIC, body, ordering_key=str(sender))
            except KourouError:
                await asyncio.sleep(POLL_S)
            else:
                self.acknowledged.add(body)
                self.acknowledged_at = time.monotonic()
                number += 1


def words(namesrv: str, member: int, peers: str, root: Path, mode: str) -> list[str]:
    properties = {
        "brokerName": "broker-a",
        "enableDLegerCommitLog": "true",
        "dLegerGroup": "broker-a",
        "dLegerPeers": peers,
        "dLegerSelfId": f"n{member}",
        "storePathRootDir": str(root / f"n{member}"),
        "mappedFileSizeCommitLog": str(SEGMENT),
        "flushDiskType": mode,
        "defaultTopicQueueNums": str(QUEUES),
    }
    assigned = [word for key, text in properties.items() for word in ("--set", f"{key}={text}")]
    return ["broker", "-n", namesrv, "--host", "127.0.0.1", "--port", "0", *assigned]


def logs(root: Path) -> list[bytes]:
    """The commit log of each member, without the zeros after its end."""
    return [
        b"".join(file.read_bytes() for file in sorted((root / f"n{member}" / "commitlog").iterdir())).rstrip(b"\0")
        for member in range(3)
    ]


def are_equal(found: list[bytes]) -> bool:
    return found[0] == found[1] == found[2] != b""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_nothing_acknowledged_is_lost_when_the_leader_is_killed(mode: str, tmp_path: Path) -> None:
    peers = raft_peers("127.0.0.1", free_ports("127.0.0.1", 3))
    name_server = MemberProcess("namesrv", ["namesrv", "--host", "127.0.0.1", "--port", "0"], tmp_path)
    members: list[MemberProcess] = []
    try:
        await name_server.start()
        namesrv = str(name_server.ready["namesrv"])
        members += [
            MemberProcess(f"n{number}", words(namesrv, number, peers, tmp_path, mode), tmp_path) for number in range(3)
        ]
        await asyncio.gather(*(member.start() for member in members))
        async with kourou.connect(namesrv, settings=ClientSettings(route_interval=0.5)) as mq:
            letters = Letters(mq)
            senders = [asyncio.create_task(letters.send(sender)) for sender in range(SENDERS)]
            await eventually(lambda: len(letters.acknowledged) >= BEFORE, seconds=60)
            master = await master_of(mq)
            leader = next(one for one in members if one.ready["broker"] == master)
            os.kill(leader.pid, signal.SIGKILL)
            killed_at, before = time.monotonic(), len(letters.acknowledged)
            await eventually(lambda: len(letters.acknowledged) > before + SENDERS, seconds=60)
            print(f"{mode}: acknowledged again after {letters.acknowledged_at - killed_at:.2f} s")
            await eventually(lambda: not leader.is_running)
            await leader.start()
            await eventually(lambda: len(letters.acknowledged) >= before + AFTER, seconds=60)
            letters.is_over = True
            await asyncio.gather(*senders)
            await check(mq, letters.acknowledged)
            await eventually(lambda: are_equal(logs(tmp_path)), seconds=60)
    finally:
        for process in [*members, name_server]:
            if process.is_running:
                await process.stop()


@pytest.mark.slow
@pytest.mark.once
def test_a_group_with_faults_of_networks_and_disks_loses_nothing(tmp_path: Path) -> None:
    """python -m tests.crash.raft_faults --seed 3 --faults 200 goes on for longer."""
    if not may_isolate():
        pytest.skip("network namespaces are not allowed here")
    one = life(3, 4, tmp_path)
    assert one.counts["faults"] == 4
    assert one.counts["acknowledged"] > 0


async def master_of(mq: kourou.Client) -> str:
    cluster = await mq.admin.brokers.cluster()
    return str(cluster.broker_addr_table["broker-a"].broker_addrs[0])


async def check(mq: kourou.Client, acknowledged: set[bytes]) -> None:
    """Every acknowledged letter is there, and those of a sender are in their order."""
    found: dict[tuple[int, int], bytes] = {}
    missing = set(acknowledged)
    async with mq.consume(TOPIC, group="readers", start="first") as consumer:
        while missing:
            message = await consumer.next(timeout=30)
            assert message is not None, f"{len(missing)} acknowledged letters are lost, as {sorted(missing)[:3]}"
            async with message.process():
                found[message.queue.queue_id, message.queue_offset] = message.body
                missing.discard(message.body)
    seen: dict[bytes, list[int]] = defaultdict(list)
    for _, body in sorted(found.items()):
        sender, _, number = body.partition(b"-")
        if int(number) not in seen[sender]:
            seen[sender].append(int(number))
    assert all(numbers == sorted(numbers) for numbers in seen.values())
