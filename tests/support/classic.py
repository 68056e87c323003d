"""The remoting port of a proxy before played brokers, asked by classic clients."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.proxy.brokers import Endpoint
from rocketmq_tw.proxy.metadata import Metadata
from rocketmq_tw.proxy.remoting.broker_ports import NO_PORTS, BrokerPorts
from rocketmq_tw.proxy.remoting.requests import ClassicRequests
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.network import FakePeer
from tests.support.proxy import PlayedBrokers, answer_of, heartbeat_sync_of, undelivered_pops


class ClassicPort:
    """`peer` is the client that asks unless another one is named. With `typed` topics take messages
    of their type only."""

    def __init__(
        self,
        advertised: Endpoint | None = None,
        *,
        typed: bool = False,
        ports: BrokerPorts = NO_PORTS,
    ) -> None:
        self.clock = Clock()
        self.brokers = PlayedBrokers()
        metadata = Metadata(self.clock, self.brokers) if typed else None
        self.heartbeat_sync = heartbeat_sync_of(self.clock, self.brokers)
        self.requests = ClassicRequests(
            self.brokers,
            self.clock,
            self.heartbeat_sync,
            undelivered_pops(self.clock, self.brokers),
            advertised,
            metadata,
            ports,
        )
        self.peer = FakePeer(address="10.0.0.9:40000", local_address="10.0.0.1:8080")

    def begin(self, request: RemotingCommand, peer: IPeer | None = None) -> Any:
        """What the handler returns; a coroutine as a Deferred."""
        handler = self.requests.handlers()[request.code]
        result = handler(request, peer or self.peer)
        if isinstance(result, (Deferred, RemotingCommand)):
            return result
        return Deferred.fromCoroutine(result)

    def ask(self, request: RemotingCommand, peer: IPeer | None = None) -> RemotingCommand:
        """The answer; raises what the request is refused with."""
        answer: RemotingCommand = answer_of(self.begin(request, peer), self.clock)
        return answer

    def asked_names(self) -> list[str]:
        """The brokers that were asked, or told, so far."""
        return [asked.broker_name for asked in self.brokers.asked]


def classic_request(
    code: int, body: bytes = b"", *, old: bool = False, oneway: bool = False, **fields: object
) -> RemotingCommand:
    """A request of a client; `old` is one of 4.9.7."""
    request = RemotingCommand.request(code, body=body, oneway=oneway)
    request.ext_fields = {name: str(value) for name, value in fields.items()}
    if old:
        request.version = 407
    return request


def echo(request: RemotingCommand) -> RemotingCommand:
    """Answers with what was asked."""
    response = request.response(ResponseCode.SUCCESS, "echoed", body=request.body)
    response.ext_fields = dict(request.ext_fields)
    return response
