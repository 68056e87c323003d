"""Heartbeat and NotifyClientTermination: a gRPC client lives, or goes."""

from __future__ import annotations

from rocketmq_tw.proxy.clients import ProxyClient, ProxyClients
from rocketmq_tw.proxy.grpc.interfaces import ICall, Methods
from rocketmq_tw.proxy.messaging.checks import client_group, client_id_of
from rocketmq_tw.proxy.messaging.methods import path, unary
from rocketmq_tw.proxy.messaging.statuses import StatusError, ok
from rocketmq_tw.proxy.proto.messages import (
    Code,
    HeartbeatRequest,
    HeartbeatResponse,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
    Resource,
)


class ClientHeartbeats:
    """Hears of clients, and lets them go."""

    def __init__(self, clients: ProxyClients) -> None:
        self._clients = clients

    def methods(self) -> Methods:
        return {
            path("Heartbeat"): unary(HeartbeatRequest, HeartbeatResponse, self._heartbeat),
            path("NotifyClientTermination"): unary(
                NotifyClientTerminationRequest,
                NotifyClientTerminationResponse,
                self._terminate,
            ),
        }

    async def _heartbeat(self, request: HeartbeatRequest, call: ICall) -> HeartbeatResponse:
        client = self._known(call)
        _check_own_group(client, request.group)
        self._clients.heard(client)
        return HeartbeatResponse(status=ok())

    async def _terminate(
        self, request: NotifyClientTerminationRequest, call: ICall
    ) -> NotifyClientTerminationResponse:
        client = self._known(call)
        _check_own_group(client, request.group)
        if not client.is_from_host_of(call):
            raise StatusError(
                Code.FORBIDDEN, f"{client.client_id} came from another host, which alone may end it"
            )
        self._clients.remove(client.client_id)
        return NotifyClientTerminationResponse(status=ok())

    def _known(self, call: ICall) -> ProxyClient:
        client_id = client_id_of(call)
        client = self._clients.get(client_id)
        if client is None:
            raise StatusError(
                Code.UNRECOGNIZED_CLIENT_TYPE,
                f"{client_id} has told no settings here: open a Telemetry stream and send them",
            )
        return client


def _check_own_group(client: ProxyClient, resource: Resource) -> None:
    """Consumers name their group; Node.js's client does not, when it goes."""
    if client.is_consumer and resource.name and client_group(resource) != client.group:
        raise StatusError(
            Code.ILLEGAL_CONSUMER_GROUP,
            f"{client.client_id} is in group {client.group}: name that one",
        )
