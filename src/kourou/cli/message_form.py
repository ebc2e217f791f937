"""How commands show a message: as a line of text, or as a JSON object that is the same in all commands."""

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kourou.cli.output import printable, show, show_json
from kourou.cli.times import iso_time, moment

if TYPE_CHECKING:
    from kourou.client import Delivery


class BodyForm(StrEnum):
    """How to show bodies."""

    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    NONE = "none"


def show_message(message: "Delivery", form: BodyForm, *, as_json: bool) -> None:
    """Raises OutputClosed."""
    if as_json:
        show_json(message_object(message, form))
        return
    queue = message.queue
    words = [
        moment(message.stored_ms)[11:].replace(",", "."),
        printable(f"{queue.broker_name}:{queue.queue_id}@{message.queue_offset}"),
        *([printable(f"tag={message.tag}")] if message.tag else []),
        *([printable(f"keys={','.join(message.keys)}")] if message.keys else []),
    ]
    body = body_of(message, form)
    text = body if isinstance(body, str) or body is None else json.dumps(body, ensure_ascii=False, indent=2)
    show(" ".join([*words, *([] if text is None else [text])]))


def message_object(message: "Delivery", form: BodyForm = BodyForm.TEXT) -> dict[str, Any]:
    """The JSON object of a message."""
    record = message.record
    return {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "msgId": message.message_id,
        "offsetMsgId": message.offset_id,
        "tags": message.tag,
        "keys": message.keys,
        "commitLogOffset": record.physical_offset,
        "reconsumeTimes": message.reconsume_times,
        "bornTime": iso_time(record.born_ms),
        "bornTimestamp": record.born_ms,
        "bornHost": record.born_address,
        "storeTime": iso_time(record.stored_ms),
        "storeTimestamp": record.stored_ms,
        "storeHost": record.store_address,
        "sysFlag": record.sys_flag,
        "properties": message.properties,
        "body": body_of(message, form),
    }


def body_of(message: "Delivery", form: BodyForm) -> Any:
    """The body in this form; if it can't be decompressed, as it is stored."""
    from kourou.protocol.errors import BodyError

    if form is BodyForm.NONE:
        return None
    try:
        body = message.body
    except BodyError:
        body = bytes(message.record.body)
    match form:
        case BodyForm.HEX:
            return body.hex(" ")
        case BodyForm.JSON:
            try:
                value = json.loads(body, parse_constant=str)
                json.dumps(value)  # fails if it is nested too deeply
            except (ValueError, RecursionError):
                return body.decode("utf-8", "replace")
            return value
        case _:
            return body.decode("utf-8", "replace")


__all__ = ["BodyForm", "body_of", "message_object", "show_message"]
