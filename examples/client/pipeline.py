"""Orders in, invoices out: a producer, and a consumer that fails sometimes and retries.

    python examples/client/pipeline.py 127.0.0.1:9876

Without an address it starts its own broker.
"""

import asyncio
import sys

import kourou
from kourou import Client, Delivery, RetryLater

ORDERS = 100


async def produce(mq: Client) -> None:
    bodies = [f"order {number}".encode() for number in range(ORDERS)]
    await mq.send_many("example-orders", bodies)


async def consume(mq: Client) -> None:
    done = asyncio.Event()
    billed: set[bytes] = set()

    async def bill(message: Delivery) -> None:
        if message.body.endswith(b"7") and message.reconsume_times == 0:
            raise RetryLater(1)  # delivered again after a second
        await mq.send("example-invoices", b"invoice of " + message.body)
        billed.add(message.body)
        if len(billed) == ORDERS:
            done.set()

    async with await mq.listen("example-orders", bill, group="example-billing", start="first"):
        await done.wait()


async def main(address: str | None) -> None:
    if address is None:
        async with kourou.embedded() as broker:
            await main(broker.namesrv)
        return
    async with kourou.connect(address) as mq:
        await asyncio.gather(produce(mq), consume(mq))
        invoices = sum([1 async for _ in mq.admin.messages.by_time("example-invoices", 0)])
        print(f"{invoices} invoices")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))
