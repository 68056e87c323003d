"""The masters of a container, as its brokers ask them: in one process by a call, in processes of
their own by name only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from twisted.internet.defer import CancelledError, Deferred, TimeoutError, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketmq_tw.broker.assembly.neighbours import INeighbours
from rocketmq_tw.broker.broker import Broker
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.net.address import join_address
from rocketmq_tw.net.interfaces import ANONYMOUS, IPeer, PeerIdentity
from rocketmq_tw.net.protocol import as_deferred
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.permissions import WRITE

log = Logger()


@implementer(IPeer)
class NearbyPeer:
    """The other end of one request that comes from a broker of the same process."""

    identity: PeerIdentity = ANONYMOUS
    connected = True

    def __init__(self, address: str) -> None:
        self.address = self.local_address = address
        self.answer: Deferred[RemotingCommand] = Deferred()

    def request(self, command: RemotingCommand, timeout: float) -> Deferred[RemotingCommand]:
        raise RequestError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "a neighbour asks only")

    def send_oneway(self, command: RemotingCommand) -> None:
        """Nobody is there to be told."""

    def reply(self, response: RemotingCommand) -> None:
        if not self.answer.called:
            self.answer.callback(response)

    def when_lost(self, callback: Callable[[IPeer], None]) -> None:
        """It is never lost."""

    def when_ready(self, callback: Callable[[], None]) -> None:
        callback()

    def close(self, reason: str) -> None:
        """There is no connection."""


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
        found = None if broker is None else broker[Tables].topics.get(topic)
        return found.write_queue_nums if found is not None and found.perm & WRITE else 0

    def ask(self, broker_name: str, request: RemotingCommand) -> Deferred[RemotingCommand] | None:
        broker = self._find(broker_name)
        handler = None if broker is None else broker.listener.handlers.get(request.code)
        if broker is None or handler is None:
            return None
        peer = NearbyPeer(join_address(broker.addresses.ip, broker.addresses.port))

        def serve() -> Any:
            result = handler(request, peer)
            if result is None or isinstance(result, RemotingCommand):
                return result or peer.answer
            return as_deferred(result)

        answer: Deferred[Any] = maybeDeferred(serve)
        answer.addTimeout(broker.config.forward_timeout / 1000, self._clock)
        return answer.addErrback(lambda failure: _refuse(failure, broker_name))

    def _masters(self) -> list[Broker]:
        return [broker for broker in self._brokers if broker.role.role is Role.MASTER]

    def _find(self, name: str) -> Broker | None:
        return next((each for each in self._masters() if each.config.broker_name == name), None)


def _refuse(failure: Failure, broker_name: str) -> NoReturn:
    """What goes wrong is a refusal, as it would be over the network."""
    if failure.check(RequestError):
        failure.raiseException()
    if failure.check(TimeoutError, CancelledError):
        raise RequestError(ResponseCode.SYSTEM_BUSY, f"{broker_name} did not answer in time")
    log.failure("a request of a broker nearby", failure=failure)
    raise RequestError(ResponseCode.SYSTEM_ERROR, f"{broker_name}: {failure.getErrorMessage()}")


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
