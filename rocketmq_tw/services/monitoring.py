"""A server together with its port for monitoring."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from twisted.application import service
from twisted.internet.defer import Deferred
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
        super().startService()
        try:
            self._monitoring.start()
        except CannotListenError as error:
            refuse_to_start(self._reactor, error, _KEYS)

    def stopService(self) -> Deferred[Any]:
        super().stopService()
        return self._monitoring.stop()


def with_monitoring(reactor: Any, loaded: Loaded, server: Any) -> Any:
    """Returns `server`, with its port for monitoring beside it where `metricsExporterType` wants
    one."""
    config = loaded[MonitoringConfig]
    if not config.is_enabled:
        return server
    both = service.MultiService()
    server.setServiceParent(both)
    MonitoringService(reactor, config, server).setServiceParent(both)
    return both
