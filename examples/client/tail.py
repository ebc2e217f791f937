"""Print the messages of a topic as they arrive, in a consumer group of its own.

python examples/client/tail.py 127.0.0.1:9876 orders [count]
"""

import asyncio
import sys
import uuid

import kourou


async def main(address: str, topic: str, count: int | None) -> None:
    async with kourou.connect(address) as mq:
        group = f"tail-{uuid.uuid4().hex[:8]}"
        seen = 0
        async for message in mq.consume(topic, group=group, start="first"):
            await message.ack()
            print(message.queue_id, message.queue_offset, message.tag or "-", message.body.decode(errors="replace"))
            seen += 1
            if seen == count:
                break


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else None))
