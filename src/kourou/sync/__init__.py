"""The client for code that is not asyncio: the same names, without `await`.

    with kourou.sync.connect("127.0.0.1:9876") as mq:
        mq.send("orders", b"...", tag="paid")
        for message in mq.consume("orders", group="billing"):
            with message.process():
                ...

One event loop in a thread of its own serves one client; a call waits for its result. A client may be used from several
threads. The documentation of `kourou.client` is valid here too.

client.py       `connect`, the client, its topics and transactions
producer.py     producers
consumers.py    consumers of every kind
deliveries.py   messages that are delivered
admin.py        administration
methods.py      makes methods from those of `kourou.client`
loop.py         the event loop in a thread
"""

from kourou.client import Message
from kourou.sync.client import Client, Topic, Transaction, connect
from kourou.sync.consumers import Consumer, Listening, LitePullConsumer, PullConsumer, TypedConsumer
from kourou.sync.deliveries import Delivery, TypedDelivery
from kourou.sync.producer import Producer

__all__ = [
    "Client",
    "Consumer",
    "Delivery",
    "Listening",
    "LitePullConsumer",
    "Message",
    "Producer",
    "PullConsumer",
    "Topic",
    "Transaction",
    "TypedConsumer",
    "TypedDelivery",
    "connect",
]
