"""Controllers, which choose the masters of broker groups; and containers, which run several brokers in one process."""

from collections.abc import Iterable, Mapping

import msgspec

from kourou.client.admin.requests import AdminRequests, properties
from kourou.protocol import conf_text
from kourou.protocol.bodies import BrokerReplicasInfo, ElectMasterResponseBody
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers import (
    AddBroker,
    CleanControllerBrokerData,
    ElectMaster,
    ElectMasterAnswer,
    GetMetadataAnswer,
    RemoveBroker,
)


class Controllers:
    """`mq.admin.controllers`. Controllers and containers are named by their address, `host:port`."""

    def __init__(self, requests: AdminRequests) -> None:
        self._ask = requests

    async def metadata(self, controller: str) -> GetMetadataAnswer:
        """The controllers of a group, and which of them leads."""
        answer = await self._ask.broker(controller, RequestCode.CONTROLLER_GET_METADATA_INFO)
        return GetMetadataAnswer.decode(answer.ext)

    async def replicas(self, controller: str, broker_names: Iterable[str]) -> BrokerReplicasInfo:
        """The replicas of broker groups: which are in sync, and which is the master."""
        leader = await self._leader(controller)
        body = msgspec.json.encode(list(broker_names))
        answer = await self._ask.broker(leader, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=body)
        return BrokerReplicasInfo.decode(answer.body)

    async def config(self, controller: str) -> dict[str, str]:
        """A controller's settings."""
        return properties((await self._ask.broker(controller, RequestCode.GET_CONTROLLER_CONFIG)).body)

    async def set_config(self, settings: Mapping[str, str], controller: str) -> None:
        """Change settings of one controller."""
        body = conf_text.dumps(dict(settings)).encode()
        await self._ask.broker(controller, RequestCode.UPDATE_CONTROLLER_CONFIG, body=body)

    async def elect_master(
        self, controller: str, cluster: str, broker_name: str, broker_id: int
    ) -> tuple[ElectMasterAnswer, ElectMasterResponseBody]:
        """Make a replica the master of its broker group. Returns the master, and the members of the group."""
        header = ElectMaster(
            cluster_name=cluster, broker_name=broker_name, broker_id=broker_id, designate_elect=True, invoke_time=0
        )
        answer = await self._ask.broker(await self._leader(controller), RequestCode.CONTROLLER_ELECT_MASTER, header)
        members = ElectMasterResponseBody.decode(answer.body) if answer.body else ElectMasterResponseBody()
        return ElectMasterAnswer.decode(answer.ext), members

    async def forget_replicas(
        self,
        controller: str,
        broker_name: str,
        *,
        cluster: str | None = None,
        broker_ids: Iterable[int] | None = None,
        living: bool = False,
    ) -> None:
        """Remove replicas of a broker group from a controller: all, or those with these ids.

        With `living`, replicas that are alive are removed as well.
        """
        header = CleanControllerBrokerData(
            broker_name=broker_name,
            cluster_name=cluster,
            broker_controller_ids_to_clean=None if broker_ids is None else ";".join(map(str, broker_ids)),
            is_clean_living_broker=living,
        )
        await self._ask.broker(await self._leader(controller), RequestCode.CLEAN_BROKER_DATA, header)

    async def _leader(self, controller: str) -> str:
        """The controller that decides. A single one may not name itself."""
        return (await self.metadata(controller)).controller_leader_address or controller

    # ── Containers ────────────────────────────────────────────────────────────────────────────────────────────────

    async def add_broker(self, container: str, config_path: str) -> None:
        """Start a broker in a container, with a settings file on the container's machine."""
        await self._ask.broker(container, RequestCode.ADD_BROKER, AddBroker(config_path=config_path))

    async def remove_broker(self, container: str, cluster: str, broker_name: str, broker_id: int) -> None:
        """Stop a broker in a container."""
        header = RemoveBroker(broker_name=broker_name, broker_cluster_name=cluster, broker_id=broker_id)
        await self._ask.broker(container, RequestCode.REMOVE_BROKER, header)


__all__ = ["Controllers"]
