"""The masters of a container, as its brokers ask them: in one process by a call, in processes of
their own by name only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketmq_tw.broker.assembly.neighbours import INeighbours
from rocketmq_tw.broker.broker import Broker
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.net.address import join_address
from rocketmq_tw.net.errors import RequestTimeout
from rocketmq_tw.net.in_process import InProcessPeer, call_handler
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.permissions import WRITE


@implementer(INeighbours)
class NearbyBrokers:
    """The brokers of one process; `brokers` are those that serve now."""

    def __init__(self, clock: Any, brokers: Sequence[Broker]) -> None:
        self._clock = clock
        self._brokers = brokers

    def masters(self) -> Sequence[str]:
        return [broker.config.broker_name for broker in self._masters()]

    def write_queues(self, broker_name: str, topic: str) -> int:
        broker = self._find(broker_name)
        if broker is None or topic in broker[Tables].mappings:
            return 0
        found = broker[Tables].topics.get(topic)
        return found.write_queue_nums if found is not None and found.perm & WRITE else 0

    def ask(self, broker_name: str, request: RemotingCommand) -> Deferred[RemotingCommand] | None:
        broker = self._find(broker_name)
        if broker is None or request.code not in broker.listener.handlers:
            return None
        address = join_address(broker.addresses.ip, broker.addresses.port)
        timeout = broker.config.forward_timeout / 1000
        peer = InProcessPeer(address, address)
        answer = call_handler(broker.listener.handlers, request, peer, timeout, self._clock)
        return answer.addErrback(_refuse, broker_name)

    def _masters(self) -> list[Broker]:
        return [broker for broker in self._brokers if broker.role.role is Role.MASTER]

    def _find(self, name: str) -> Broker | None:
        return next((each for each in self._masters() if each.config.broker_name == name), None)


def _refuse(failure: Failure, broker_name: str) -> NoReturn:
    failure.trap(RequestTimeout)
    raise RequestError(ResponseCode.SYSTEM_BUSY, f"{broker_name} did not answer in time")


@implementer(INeighbours)
class NamedNeighbours:
    """The brokers of a container whose brokers are processes: only their names are known."""

    def __init__(self) -> None:
        #: As the container has told last.
        self.names: Sequence[str] = ()

    def masters(self) -> Sequence[str]:
        return self.names

    def write_queues(self, broker_name: str, topic: str) -> int:
        return 0

    def ask(self, broker_name: str, request: RemotingCommand) -> Deferred[RemotingCommand] | None:
        return None
