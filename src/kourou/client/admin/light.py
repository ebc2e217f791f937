"""Light topics: many small queues inside a topic of the type LITE. Only Apache's brokers from 5.5 on have them."""

from kourou.client.admin.requests import AdminRequests
from kourou.protocol.bodies import (
    GetBrokerLiteInfoResponseBody,
    GetLiteClientInfoResponseBody,
    GetLiteGroupInfoResponseBody,
    GetLiteTopicInfoResponseBody,
    GetParentTopicInfoResponseBody,
)
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers import (
    GetLiteClientInfo,
    GetLiteGroupInfo,
    GetLiteTopicInfo,
    GetParentTopicInfo,
    TriggerLiteDispatch,
)


class LightTopics:
    """`mq.admin.light`. Each method asks one broker, given by its address."""

    def __init__(self, requests: AdminRequests) -> None:
        self._ask = requests

    def _wrap(self, name: str) -> str:
        return self._ask.session.wrap(name)

    async def counts(self, broker: str) -> GetBrokerLiteInfoResponseBody:
        """How many light topics a broker has."""
        return await self._ask.body(GetBrokerLiteInfoResponseBody, broker, RequestCode.GET_BROKER_LITE_INFO)

    async def parent(self, broker: str, topic: str) -> GetParentTopicInfoResponseBody:
        """A topic with light topics in it."""
        header = GetParentTopicInfo(topic=self._wrap(topic))
        return await self._ask.body(GetParentTopicInfoResponseBody, broker, RequestCode.GET_PARENT_TOPIC_INFO, header)

    async def topic(self, broker: str, parent: str, light: str) -> GetLiteTopicInfoResponseBody:
        """One light topic, and its subscribers."""
        header = GetLiteTopicInfo(parent_topic=self._wrap(parent), lite_topic=light)
        return await self._ask.body(GetLiteTopicInfoResponseBody, broker, RequestCode.GET_LITE_TOPIC_INFO, header)

    async def client(self, broker: str, parent: str, group: str, client_id: str) -> GetLiteClientInfoResponseBody:
        """The light topics that one client reads."""
        header = GetLiteClientInfo(parent_topic=self._wrap(parent), group=self._wrap(group), client_id=client_id)
        return await self._ask.body(GetLiteClientInfoResponseBody, broker, RequestCode.GET_LITE_CLIENT_INFO, header)

    async def group(
        self, broker: str, group: str, light: str | None = None, *, top: int = 20
    ) -> GetLiteGroupInfoResponseBody:
        """The lag of a group in one light topic, or in the `top` ones with the largest."""
        header = GetLiteGroupInfo(group=self._wrap(group), lite_topic=light, top_k=top)
        return await self._ask.body(GetLiteGroupInfoResponseBody, broker, RequestCode.GET_LITE_GROUP_INFO, header)

    async def dispatch(self, broker: str, group: str, client_id: str | None = None) -> None:
        """Let a broker look for messages that the members of a group were not notified of."""
        header = TriggerLiteDispatch(group=self._wrap(group), client_id=client_id)
        await self._ask.broker(broker, RequestCode.TRIGGER_LITE_DISPATCH, header)


__all__ = ["LightTopics"]
