"""A server and its port for monitoring, which is there first and goes last."""

from __future__ import annotations

from typing import Any

from twisted.application import service
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock, StringTransport

from rocketmq_tw.config.load import Loaded
from rocketmq_tw.config.monitoring import MonitoringConfig
from rocketmq_tw.services.monitoring import with_monitoring


class _Reactor(MemoryReactorClock):
    def __init__(self) -> None:
        super().__init__()
        self.closed = 0

    def listenTCP(self, *args: Any, **kwargs: Any) -> Any:
        port = super().listenTCP(*args, **kwargs)
        port.stopListening = self._close
        return port

    def _close(self) -> None:
        self.closed += 1


class _Slow(service.Service):
    """A server whose stop ends when the test says so."""

    def __init__(self) -> None:
        self.stopped: Deferred[None] = Deferred()

    def stopService(self) -> Deferred[None]:
        super().stopService()
        return self.stopped

    def metrics(self) -> tuple[()]:
        return ()

    def not_ready(self) -> str:
        return ""


def _ready(reactor: _Reactor) -> bytes:
    peer = IPv4Address("TCP", "127.0.0.1", 50000)
    protocol = reactor.tcpServers[0][1].buildProtocol(peer)
    transport = StringTransport(peerAddress=peer)
    protocol.makeConnection(transport)
    protocol.dataReceived(b"GET /readyz HTTP/1.0\r\n\r\n")
    # It is answered in a turn of its own.
    reactor.advance(0)
    return transport.value()


def test_a_probe_is_answered_until_the_server_has_stopped() -> None:
    reactor, server = _Reactor(), _Slow()
    loaded = Loaded([MonitoringConfig(metrics_exporter_type="PROM")], [])
    both = with_monitoring(reactor, loaded, server)
    both.startService()
    assert b" 200 " in _ready(reactor)
    done: list[object] = []
    both.stopService().addCallback(done.append)
    assert b" 503 " in _ready(reactor)
    assert (reactor.closed, done) == (0, [])
    server.stopped.callback(None)
    assert reactor.closed == 1
    assert done
