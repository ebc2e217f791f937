"""How far a group is behind in time, where it has not consumed anything yet."""

from tests.unit.console.conftest import Page

import kourou
from kourou.embedded import Embedded

DAY_MS = 86_400_000


async def test_a_group_that_has_consumed_nothing(broker: Embedded, page: Page) -> None:
    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=1)
        sent = await mq.send("orders", b"1")
        await mq.admin.groups.create("billing")
        await mq.admin.groups.set_offset("billing", sent.queue, 0)
    found = await page.get("/api/groups/billing")
    assert found["lag"] == "1"
    assert found["lag_ms"] is None or found["lag_ms"] < DAY_MS


async def test_a_group_that_has_committed_nothing_in_some_queues(broker: Embedded, page: Page) -> None:
    """Brokers count the delay of these from 1970."""
    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=2)
        places = {(await mq.send("orders", b"1")).queue for _ in range(4)}
        await mq.admin.groups.create("billing")
        await mq.admin.groups.set_offset("billing", min(places), 1)
    assert len(places) == 2
    found = await page.get("/api/groups/billing")
    assert [row["lag_ms"] is not None and row["lag_ms"] < DAY_MS for row in found["queues"]] == [True, True]
    assert found["lag_ms"] < DAY_MS
