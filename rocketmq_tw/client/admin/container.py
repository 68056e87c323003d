"""Requests of administrators to broker containers."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from rocketmq_tw.client.errors import check_success
from rocketmq_tw.net.interfaces import IRemotingClient
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.base import Header
from rocketmq_tw.wire.headers.broker import AddBrokerRequestHeader, RemoveBrokerRequestHeader

#: Seconds that a container may take to answer: it starts or stops a broker before it does.
CONTAINER_TIMEOUT = 60.0


class ContainerClient:
    """Adds brokers to the container at an address and removes them; no name server is asked."""

    def __init__(self, remoting: IRemotingClient, container: str) -> None:
        self._remoting = remoting
        self._container = container

    def add_broker(self, path: str) -> Deferred[None]:
        """Has the container start the broker that the file at `path` of its machine describes."""
        return self._tell(RequestCode.ADD_BROKER, AddBrokerRequestHeader(config_path=path))

    def remove_broker(self, cluster: str, name: str, broker_id: int) -> Deferred[None]:
        """Has the container stop one of its brokers."""
        header = RemoveBrokerRequestHeader(
            broker_name=name, broker_cluster_name=cluster, broker_id=broker_id
        )
        return self._tell(RequestCode.REMOVE_BROKER, header)

    def _tell(self, code: RequestCode, header: Header) -> Deferred[None]:
        request = RemotingCommand.request(code, header)
        answer = self._remoting.request(self._container, request, CONTAINER_TIMEOUT)

        def check(response: RemotingCommand) -> None:
            check_success(self._container, response)

        return answer.addCallback(check)
