"""A master's side of its group: it listens for slaves and gives them its log."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks, maybeDeferred, succeed
from twisted.internet.error import CannotListenError

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.replication.links.service import HAService
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.wire.bodies.stats import HARuntimeInfo


class MasterLinks:
    """Listens on the HA port and pushes the log to every slave that connects."""

    def __init__(
        self, host: Host, writing: Writing, service: HAService[Any], *, synchronous: bool
    ) -> None:
        """`synchronous`: senders wait for slaves."""
        self._host = host
        self._listening: Any = None
        self.service = service
        service.check = host.server.check
        self._commit = writing.commit
        #: Outlasts the role: slaves get what was stored until its end.
        self._pushing = Scope()
        self._pushing.on_end(writing.commit.on_written(service.log_grew))
        self._pushing.on_end(writing.flusher.on_round(service.log_grew))
        if synchronous:
            writing.commit.replicator = service

    def listen(self, port: int) -> int:
        """Listens for slaves on haListenPort, or behind `port`, the broker's; returns the port.
        Raises `OSError` where it is taken."""
        host, net_config = self._host, self._host.net_config
        named = host.store_config.ha_listen_port
        wanted = named or port + 1
        try:
            self._listening = self._listen_on(wanted)
        except CannotListenError as error:
            if named or net_config.listen_port:
                raise OSError(
                    f"{net_config.bind_address}:{wanted} cannot be listened on for slaves"
                    f" ({error.socketError.strerror}): change haListenPort"
                ) from error
            # A port of the kernel's choice may have a neighbour; name servers tell this one too.
            self._listening = self._listen_on(0)
        return int(self._listening.getHost().port)

    def _listen_on(self, port: int) -> Any:
        interface = self._host.net_config.bind_address
        return self._host.reactor.listenTCP(port, self.service, interface=interface)

    def runtime_info(self) -> HARuntimeInfo:
        """Returns what request 907 tells of the links."""
        return self.service.runtime_info()

    @inlineCallbacks
    def stop(self) -> Generator[Deferred[Any], Any, None]:
        """Gives the slaves all that was stored, then closes all links; sends that still wait are
        answered with FLUSH_SLAVE_TIMEOUT."""
        closed: Deferred[Any] = succeed(None)
        if self._listening is not None:
            closed = maybeDeferred(self._listening.stopListening)
            self._listening = None
        yield self._commit.flushed()
        yield self.service.stop()
        yield closed
        self._commit.replicator = None
        self._pushing.end()
