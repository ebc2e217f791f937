"""An asyncio client for Apache's brokers and Kourou's: producers, consumers, transactions, administration.

    async with connect("127.0.0.1:9876") as mq:
        await mq.send("orders", b"...", tag="paid")
        async for message in mq.consume("orders", group="billing"):
            async with message.process():
                ...

The modules from the bottom up; each imports only those above it in this list:

    errors user_calls events naming                              names, callbacks
    identity pacing settings spans                               values, a budget for requests, OpenTelemetry
    link pool                                                    connections
    nameservers routes                                           where topics are
    session                                                      what all parts share; heartbeats; requests of brokers
    outgoing results in_flight faults selecting                  messages to send, and what becomes of them
    deadlines retries producer                                   sending
    transactions request_reply tracing                           transactions, request and reply, traces
    filters unsettled pulling delivery offsets queue_bounds      the parts of consuming
    balance assigned_queue rebalancing send_back                 sharing queues, sending failed messages back
    ordered pull_loops consumer_loop                             the order of queues, pull loops, the loops of users
    consumer listeners lite_pull_consumer pull_consumer          consuming
    serializing                                                  values instead of bytes
    broker_requests                                              requests that brokers and admins send to consumers
    admin                                                        requests that admins send to brokers
    client                                                       all of it as one object
"""

from kourou.client.balance import (
    Averagely,
    AveragelyByCircle,
    ByMachineRoom,
    Configured,
    ConsistentHash,
    NearbyRoom,
    Strategy,
)
from kourou.client.client import Client, connect
from kourou.client.consumer import Consumer
from kourou.client.delivery import DeadLetter, Delivery, RetryLater
from kourou.client.errors import (
    ClientError,
    ClosedError,
    GroupInUseError,
    InvalidExpressionError,
    InvalidMessageError,
    InvalidNameError,
    NoBrokerError,
    NoNameServerError,
    NoReplyError,
    NoRouteError,
    NotANameServerError,
    TransactionFailedError,
)
from kourou.client.events import Connected, ConnectionEvent, Disconnected
from kourou.client.lite_pull_consumer import LitePullConsumer
from kourou.client.outgoing import Message
from kourou.client.producer import Producer
from kourou.client.pull_consumer import Batch, PullConsumer
from kourou.client.results import SendManyError, SendResult, SendStatus
from kourou.client.selecting import Selector
from kourou.client.serializing import Json, Serializer, Text, Topic, TypedConsumer, TypedDelivery
from kourou.client.settings import ClientSettings, ConsumerOptions, ConsumerSettings, ProducerSettings, Start
from kourou.client.transactions import Transaction
from kourou.net.tls import TlsMode, TlsSettings
from kourou.protocol.compression import Compression
from kourou.protocol.errors import KourouError, RefusedError
from kourou.protocol.message import MessageQueue
from kourou.protocol.signing import Credentials

__all__ = [
    "Averagely",
    "AveragelyByCircle",
    "Batch",
    "ByMachineRoom",
    "Client",
    "ClientError",
    "ClientSettings",
    "ClosedError",
    "Compression",
    "Configured",
    "Connected",
    "ConnectionEvent",
    "ConsistentHash",
    "Consumer",
    "ConsumerOptions",
    "ConsumerSettings",
    "Credentials",
    "DeadLetter",
    "Delivery",
    "Disconnected",
    "GroupInUseError",
    "InvalidExpressionError",
    "InvalidMessageError",
    "InvalidNameError",
    "Json",
    "KourouError",
    "LitePullConsumer",
    "Message",
    "MessageQueue",
    "NearbyRoom",
    "NoBrokerError",
    "NoNameServerError",
    "NoReplyError",
    "NoRouteError",
    "NotANameServerError",
    "Producer",
    "ProducerSettings",
    "PullConsumer",
    "RefusedError",
    "RetryLater",
    "Selector",
    "SendManyError",
    "SendResult",
    "SendStatus",
    "Serializer",
    "Start",
    "Strategy",
    "Text",
    "TlsMode",
    "TlsSettings",
    "Topic",
    "Transaction",
    "TransactionFailedError",
    "TypedConsumer",
    "TypedDelivery",
    "connect",
]
