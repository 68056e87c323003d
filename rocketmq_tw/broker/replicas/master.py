"""A master's side of its group: it listens for slaves and gives them its log."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks, maybeDeferred, succeed
from twisted.internet.error import CannotListenError

from rocketmq_tw.broker.writing.commit import Commit
from rocketmq_tw.broker.writing.flush import Flusher
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.replication.links.service import HAService
from rocketmq_tw.wire.bodies.stats import HARuntimeInfo


class MasterLinks:
    """Listens on the HA port and pushes the log to every slave that connects."""

    def __init__(
        self,
        reactor: Any,
        store_config: MessageStoreConfig,
        net_config: NettyServerConfig,
        service: HAService[Any],
        commit: Commit,
        flusher: Flusher,
        *,
        synchronous: bool,
    ) -> None:
        """`synchronous`: senders wait for slaves."""
        self._reactor = reactor
        self._config = store_config
        self._net_config = net_config
        self._listening: Any = None
        self.service = service
        self._commit = commit
        self._unsubscribe = [
            commit.on_written(self.service.log_grew),
            flusher.on_round(self.service.log_grew),
        ]
        if synchronous:
            commit.replicator = self.service

    def listen(self, port: int) -> int:
        """Listens for slaves on haListenPort, or behind `port`, the broker's; returns the port.
        Raises `OSError` where it is taken."""
        wanted = self._config.ha_listen_port or port + 1
        try:
            self._listening = self._listen_on(wanted)
        except CannotListenError as error:
            if self._config.ha_listen_port or self._net_config.listen_port:
                raise OSError(
                    f"{self._net_config.bind_address}:{wanted} cannot be listened on for slaves"
                    f" ({error.socketError.strerror}): change haListenPort"
                ) from error
            # A port of the kernel's choice may have a neighbour; name servers tell this one too.
            self._listening = self._listen_on(0)
        return int(self._listening.getHost().port)

    def _listen_on(self, port: int) -> Any:
        return self._reactor.listenTCP(port, self.service, interface=self._net_config.bind_address)

    def runtime_info(self) -> HARuntimeInfo:
        return self.service.runtime_info()

    @inlineCallbacks
    def stop(self) -> Generator[Deferred[Any], Any, None]:
        """Gives the slaves all that was stored, then closes all links; senders that still wait are
        told FLUSH_SLAVE_TIMEOUT."""
        closed: Deferred[Any] = succeed(None)
        if self._listening is not None:
            closed = maybeDeferred(self._listening.stopListening)
            self._listening = None
        yield self._commit.flushed()
        yield self.service.stop()
        yield closed
        self._commit.replicator = None
        for unsubscribe in self._unsubscribe:
            unsubscribe()
