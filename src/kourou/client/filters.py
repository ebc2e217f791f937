"""Which messages of a topic a group subscribes to: by tag, or by SQL over properties.

    None, "*"          all
    "paid || new"      messages with one of these tags
    sql="amount > 10"  a broker with enablePropertyFilter=true evaluates it

A broker compares hashes of tags, so it may let other tags with the same hash through; the client compares the tags
themselves. All consumers of a group must use the same filter. Java: FilterAPI.
"""

import time

from kourou.client.errors import InvalidExpressionError
from kourou.protocol.bodies import SubscriptionData
from kourou.protocol.hashes import java_hash

ALL = "*"
TAG = "TAG"
SQL = "SQL92"


def subscription(topic: str, tags: str | None = None, sql: str | None = None) -> SubscriptionData:
    """The subscription to send to brokers. Raises InvalidExpressionError."""
    version = time.time_ns() // 1_000_000
    if sql is not None:
        if tags is not None:
            raise InvalidExpressionError(
                "give either tags or sql, not both; an SQL filter can use the tag as the property TAGS"
            )
        if not sql.strip():
            raise InvalidExpressionError("the SQL filter is empty")
        return SubscriptionData(topic=topic, sub_string=sql, expression_type=SQL, sub_version=version)
    if not tags or tags.strip() == ALL:
        return SubscriptionData(topic=topic, sub_string=ALL, sub_version=version)
    wanted = list(dict.fromkeys(tag.strip() for tag in tags.split("||") if tag.strip()))
    if not wanted:
        raise InvalidExpressionError(f"{tags!r} names no tag: tags are separated by ||")
    return SubscriptionData(
        topic=topic, sub_string=tags, tags_set=wanted, code_set=[java_hash(tag) for tag in wanted], sub_version=version
    )
