"""A name server and broker in one, which answers whatever a test tells it to. For clients that must survive it."""

from collections.abc import Callable
from typing import Any

from kourou.net.connection import Connection
from kourou.net.listener import Listener
from kourou.protocol.bodies import BrokerData, HeartbeatData, QueueData, TopicRouteData
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.hosts import encode_host
from kourou.protocol.record import encode_record

HOST = encode_host("127.0.0.1:10911")
BROKER = "broker-a"

Answer = Callable[[Command], Command]


def record(offset: int, body: bytes = b"x", *, topic: str = "t", sys_flag: int = 0, properties: str = "") -> bytes:
    return encode_record(
        topic=topic,
        body=body,
        queue_id=0,
        queue_offset=offset,
        physical_offset=1000 + 200 * offset,
        born_ms=1,
        born_host=HOST,
        stored_ms=2,
        store_host=HOST,
        raw_properties=properties.encode(),
        sys_flag=sys_flag,
    )


def pulled(request: Command, body: bytes, following: int, code: int = 0, *, end: int = 1 << 40) -> Command:
    """An answer to a pull."""
    answer = request.answer(code, body=body)
    answer.ext = {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(following),
        "minOffset": "0",
        "maxOffset": str(end),
    }
    return answer


class Hostile:
    """Behaves, but for the requests whose answers a test replaces in `answers`."""

    def __init__(self) -> None:
        self.answers: dict[int, Answer] = {}
        self.asked: list[Command] = []
        self.replies: list[Command] = []  # to what this server asks
        self.connections: list[Connection] = []
        self.clients: list[str] = []
        self._listener = Listener(self)

    async def __aenter__(self) -> "Hostile":
        await self._listener.start("127.0.0.1", 0)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._listener.close(0.2)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.port}"

    def count(self, code: int) -> int:
        return sum(command.code == code for command in self.asked)

    def route(self, queues: int = 1, **more: Any) -> TopicRouteData:
        return TopicRouteData(
            queue_datas=[QueueData(broker_name=BROKER, read_queue_nums=queues, write_queue_nums=queues, perm=6)],
            broker_datas=[BrokerData(cluster="c", broker_name=BROKER, broker_addrs={0: self.address})],
            **more,
        )

    def closed(self, connection: Connection) -> None:
        pass

    def requests(self, connection: Connection, commands: list[Command]) -> None:
        if connection not in self.connections:
            self.connections.append(connection)
        for command in commands:
            self.asked.append(command)
            answer = self.answers.get(command.code, self._usual)(command)
            if not command.is_one_way:
                connection.reply(answer)

    def _usual(self, command: Command) -> Command:
        match command.code:
            case RequestCode.GET_ROUTEINFO_BY_TOPIC:
                if command.ext is not None and command.ext["topic"].startswith("%RETRY%"):
                    return command.answer(ResponseCode.TOPIC_NOT_EXIST, "no route")
                return command.answer(body=self.route().encode())
            case RequestCode.HEART_BEAT:
                self.clients = [HeartbeatData.decode(command.body).client_id or ""]
                return command.answer()
            case RequestCode.GET_CONSUMER_LIST_BY_GROUP:
                ids = ",".join(f'"{client}"' for client in self.clients)
                return command.answer(body=f'{{"consumerIdList":[{ids}]}}'.encode())
            case RequestCode.QUERY_CONSUMER_OFFSET:
                return command.answer(ResponseCode.QUERY_NOT_FOUND, "none")
            case RequestCode.GET_MAX_OFFSET | RequestCode.GET_MIN_OFFSET | RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
                answer = command.answer()
                answer.ext = {"offset": "0"}
                return answer
            case RequestCode.PULL_MESSAGE:
                return pulled(command, b"", int((command.ext or {})["queueOffset"]), ResponseCode.PULL_NOT_FOUND)
            case _:
                return command.answer()
