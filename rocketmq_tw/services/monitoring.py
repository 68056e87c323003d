"""A server together with its port for monitoring."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from twisted.application import service
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.error import CannotListenError

from rocketmq_tw.config.load import Loaded
from rocketmq_tw.config.monitoring import MonitoringConfig
from rocketmq_tw.metrics.instruments import Metric
from rocketmq_tw.runtime.threads import in_pool
from rocketmq_tw.services.failed_start import KeysToChange, refuse_to_start

_KEYS = KeysToChange(port="metricsPromExporterPort", address="metricsPromExporterHost")


class Monitored(Protocol):
    """A server that tells what it measures."""

    def metrics(self) -> Iterable[Metric]:
        """Returns its figures; none before it has started."""

    def not_ready(self) -> str:
        """Returns why its clients cannot be served yet; an empty text once they can."""


class MonitoringService(service.Service):
    """Answers Prometheus and health checks from `startService` to `stopService`."""

    def __init__(self, reactor: Any, config: MonitoringConfig, server: Monitored) -> None:
        self.setName("monitoring")
        # Only here: the web server and the client library take a good part of a start.
        from rocketmq_tw.net.monitoring import Monitoring

        self._reactor = reactor
        self._monitoring = Monitoring(
            reactor, config, in_pool(reactor), server.metrics, server.not_ready
        )

    def startService(self) -> None:
        """Raises `CannotListenError`."""
        super().startService()
        self._monitoring.start()

    def server_stops(self) -> None:
        """Answers from now on that the server is being stopped."""
        self._monitoring.server_stops()

    def stopService(self) -> Deferred[Any]:
        super().stopService()
        return self._monitoring.stop()


class _WithMonitoring(service.MultiService):
    """The port for monitoring first: where it cannot be had, the server does not begin. It is there
    until the server has stopped: that takes a while, in which nobody is to be sent there."""

    def __init__(self, reactor: Any, monitoring: MonitoringService, server: Any) -> None:
        super().__init__()
        self._reactor = reactor
        self._monitoring = monitoring
        self._server = server
        self._is_refused = False

    def startService(self) -> None:
        super().startService()
        try:
            self._monitoring.startService()
        except CannotListenError as error:
            self._is_refused = True
            refuse_to_start(self._reactor, error, _KEYS)
            return
        self._server.startService()

    def stopService(self) -> Deferred[Any]:
        stopped: Deferred[Any] = super().stopService()
        if self._is_refused:
            return stopped
        self._monitoring.server_stops()
        stopping = maybeDeferred(self._server.stopService)

        def close(result: object) -> Deferred[object]:
            return self._monitoring.stopService().addCallback(lambda _: result)

        return DeferredList([stopped, stopping.addBoth(close)])


def with_monitoring(reactor: Any, loaded: Loaded, server: Any) -> Any:
    """Returns `server`, with its port for monitoring beside it where `metricsExporterType` wants
    one."""
    config = loaded[MonitoringConfig]
    if not config.is_enabled:
        return server
    return _WithMonitoring(reactor, MonitoringService(reactor, config, server), server)
