"""The other brokers of a container, as one of its brokers sees them."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred
from zope.interface import Interface, implementer

from rocketmq_tw.wire.command import RemotingCommand


class INeighbours(Interface):
    """The masters that are in the same container as a broker."""

    def masters() -> Sequence[str]:
        """Returns the broker names of those that serve now, the broker's own among them where it
        has a master here."""

    def write_queues(broker_name: str, topic: str) -> int:
        """Returns how many queues of a topic a master in this process has to write to; 0 where it
        has none, or is in another process, and of static topics, whose routes tell."""

    def ask(broker_name: str, request: RemotingCommand) -> Deferred[RemotingCommand] | None:
        """Has a master in this process answer a request, without the network: a refusal is an
        answer. Fails with `RequestError` where it does not answer in time. None where there is no
        such master in this process."""


@implementer(INeighbours)
class NoNeighbours:
    """A broker that is in no container."""

    def masters(self) -> Sequence[str]:
        return ()

    def write_queues(self, broker_name: str, topic: str) -> int:
        return 0

    def ask(self, broker_name: str, request: RemotingCommand) -> Deferred[RemotingCommand] | None:
        return None
