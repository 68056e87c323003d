"""The listening side of a process: limits, TLS and outboxes that all its ports share."""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from zope.interface import implementer

from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.net.interfaces import IRemotingServer, RequestCheck
from rocketmq_tw.net.listener import Listener
from rocketmq_tw.net.shared import Shared
from rocketmq_tw.net.tls import ServerTls


@implementer(IRemotingServer)
class RemotingServer:
    """Makes listeners, bounds what their connections hold together, and stops all of them."""

    def __init__(
        self, reactor: Any, config: NettyServerConfig, *, tls: ServerTls | None = None
    ) -> None:
        self._reactor = reactor
        self._shared = Shared(reactor, config)
        self._tls = tls
        self._listeners: list[Listener] = []

    @property
    def bytes_in_flight(self) -> int:
        """What all connections hold now: incomplete frames, open requests, replies not taken."""
        return self._shared.budget.used

    def listener(self, *, before_request: Sequence[RequestCheck] = ()) -> Listener:
        listener = Listener(
            self._reactor, self._shared, self._tls, before_request, self._listeners.remove
        )
        self._listeners.append(listener)
        return listener

    def gather(self, work: Callable[..., None], *args: Any) -> None:
        self._shared.outboxes.gather(work, *args)

    def stop(self, timeout: float | None = None) -> Deferred[None]:
        stopped = DeferredList([listener.stop(timeout) for listener in list(self._listeners)])
        return stopped.addCallback(lambda _: None)
