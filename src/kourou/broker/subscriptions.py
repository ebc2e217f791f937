"""Subscriptions: which messages of a topic a consumer wants, by tag.

The broker has only the hashes of tags; consumers compare the text.

Java: FilterAPI, ExpressionMessageFilter.
"""

from kourou.protocol.bodies import SubscriptionData
from kourou.protocol.hashes import java_hash

ALL = "*"


class SubscriptionFault(ValueError):
    """A subscription that does not parse."""


def is_by_tag(expression_type: str | None) -> bool:
    return expression_type is None or expression_type in ("", "TAG")


def build(topic: str, text: str | None, expression_type: str | None) -> SubscriptionData:
    """A subscription from the text of a pull. Raises SubscriptionFault."""
    if not is_by_tag(expression_type):
        if not text:
            raise SubscriptionFault("an expression is expected")
        return SubscriptionData(topic=topic, sub_string=text, expression_type=expression_type or "TAG")
    if text is None or text in ("", ALL):
        return SubscriptionData(topic=topic, sub_string=ALL)
    tags = [tag for word in text.split("||") if (tag := word.strip())]
    if not tags:
        raise SubscriptionFault(f"{text[:40]!r} has no tags: TAG || TAG is expected")
    return SubscriptionData(
        topic=topic, sub_string=text, tags_set=tags, code_set=[java_hash(tag) for tag in dict.fromkeys(tags)]
    )


def codes(subscription: SubscriptionData) -> frozenset[int] | None:
    """Hashes of the tags that a subscription wants; None: all messages."""
    if subscription.class_filter_mode or subscription.sub_string == ALL:
        return None
    return frozenset(subscription.code_set)
