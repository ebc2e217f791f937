"""Parameters of a search for messages, and messages by their id."""

import re
import time
from typing import Final

from kourou.client import Delivery, NoRouteError
from kourou.console.errors import ConsoleError
from kourou.console.facts import Look
from kourou.console.scanning import Cursor, first_cursor
from kourou.protocol.errors import ProtocolError
from kourou.protocol.ids import IPV4_ID_LENGTH, IPV6_ID_LENGTH, decode_offset_id
from kourou.protocol.system_names import TOOLS_GROUP

_SPAN: Final = re.compile(r"-(\d{1,9})(s|m|h|d)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
ID_LENGTH_MAX: Final = 200


def time_ms(text: str, name: str) -> int | None:
    """`now`, `-15m`, or ms since 1970; None without a text. Raises ConsoleError."""
    if not text:
        return None
    if text == "now":
        return round(time.time() * 1000)
    if found := _SPAN.fullmatch(text):
        return max(round((time.time() - int(found[1]) * _SECONDS[found[2]]) * 1000), 0)
    if text.isascii() and text.isdigit() and len(text) <= 15:
        return int(text)
    raise ConsoleError("bad_request", f"{name}={text[:50]}: now, a time ago such as -15m, or ms since 1970 is expected")


async def cursor_of(look: Look, topic: str, text: str, since: str, until: str) -> Cursor:
    """Where a page begins: at the cursor, or at the beginning of a search. Raises ConsoleError."""
    if text:
        cursor = Cursor.decode(text)
        known = {(queue.broker_name, queue.queue_id) for queue in await look.mq.pull(group=TOOLS_GROUP).queues(topic)}
        if any((span.broker, span.queue) not in known for span in cursor.spans):
            raise ConsoleError("bad_request", "the cursor belongs to another topic", "begin the search again")
        return cursor
    ends = {queue: (end.min_offset, end.max_offset) for queue, end in (await look.topic_ends(topic, 0.5)).items()}
    return await first_cursor(look.mq, topic, ends, time_ms(since, "from"), time_ms(until, "to"))


def is_offset_id(text: str) -> bool:
    try:
        decode_offset_id(text)
    except ProtocolError:
        return False
    return True


async def by_id(look: Look, message_id: str, topic: str | None) -> list[Delivery]:
    """The messages with this id, the oldest first. Raises ConsoleError."""
    if not message_id or len(message_id) > ID_LENGTH_MAX:
        raise ConsoleError("bad_request", "this is not the id of a message")
    messages = look.mq.admin.messages
    if topic:
        try:
            found = await messages.by_unique_key(topic, message_id)
        except NoRouteError:
            found = []
        if found:
            return found
    if len(message_id) in (IPV4_ID_LENGTH, IPV6_ID_LENGTH) and is_offset_id(message_id):
        try:
            place = await messages.by_offset_id(message_id, topic)
        except ConsoleError:
            raise
        except Exception as error:
            if topic:
                return []
            raise ConsoleError(
                "bad_request",
                f"{message_id} is not the offset id of a message of this cluster: {error}",
                "a unique id needs the topic as well",
            ) from None
        return [] if place is None else [place]
    if not topic:
        raise ConsoleError("bad_request", "a unique id needs the topic as well", "choose a topic")
    return []
