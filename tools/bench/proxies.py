"""Proxies beside stock's, each before a broker of its kind or in its process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from rocketmq_tw.proxy.proto import messages as pb
from tests.support.processes import ServerProcess
from tests.support.proxies import (
    BrokerWithProxy,
    OurProxy,
    ProxyPorts,
    SharingProxy,
    StockLocalProxy,
    StockProxy,
)
from tools.bench.subjects import (
    NAME,
    SETTINGS,
    START_LIMIT,
    STOCK,
    STOCK_VERSION,
    Subject,
    as_in_production,
    make_broker,
    make_name_server,
    until,
)

_PROXY_HEAP_MB = 1024
_LOCAL_HEAP_MB = 2048
#: Asked until it is answered, whatever with.
_QUERY_ROUTE = "/apache.rocketmq.v2.MessagingService/QueryRoute"


class _WarmStockProxy(StockProxy):
    def command(self) -> list[str]:
        return as_in_production(super().command(), _PROXY_HEAP_MB)


class _WarmStockLocalProxy(StockLocalProxy):
    def command(self) -> list[str]:
        return as_in_production(super().command(), _LOCAL_HEAP_MB)


class ProxySubject(Subject):
    """A proxy before a broker; figures of CPU, memory and start are the proxy's."""

    proxy: ServerProcess
    ports: ProxyPorts

    def __init__(self, kind: str, home: Path, settings: dict[str, str] | None = None) -> None:
        self.kind = kind
        self.start_seconds = 0.0
        self.name_server = make_name_server(kind, home / "namesrv")
        self._settings = _FEATURES | SETTINGS | (settings or {})
        self._home = home
        self._make()

    @property
    def servers(self) -> Sequence[ServerProcess]:
        return [self.proxy]

    @property
    def endpoint(self) -> str:
        """Where gRPC clients come to."""
        return self.ports.grpc

    def start(self) -> None:
        self.name_server.start(START_LIMIT)
        self.start_broker()
        self._start_proxy()

    def close(self) -> None:
        self.proxy.close()
        super().close()

    def _make(self) -> None:
        home, names = self._home, self.name_server
        self.broker = make_broker(self.kind, home / "broker", names, self._settings)
        if self.kind == STOCK:
            self._use(_WarmStockProxy(STOCK_VERSION, home / "proxy", names.address))
        else:
            self._use(OurProxy(home / "proxy", names.address))

    def _use(self, proxy: OurProxy) -> None:
        self.proxy, self.ports = proxy, proxy.ports

    def _start_proxy(self) -> None:
        started = time.perf_counter()
        self.proxy.launch()
        until(self._answers, f"{self.kind} to answer by gRPC", START_LIMIT)
        self.start_seconds = time.perf_counter() - started
        self.proxy.wait_ready(START_LIMIT)

    def _answers(self) -> bool:
        if not self.proxy.running:
            self.proxy.wait_ready()
        with grpc.insecure_channel(self.endpoint) as channel:
            ask = channel.unary_unary(
                _QUERY_ROUTE,
                request_serializer=pb.QueryRouteRequest.SerializeToString,
                response_deserializer=pb.QueryRouteResponse.FromString,
            )
            request = pb.QueryRouteRequest(topic=pb.Resource(name="bench-first"))
            metadata = [("x-mq-client-id", "bench"), ("x-mq-language", "JAVA")]
            try:
                ask(request, metadata=metadata, timeout=5)
            except grpc.RpcError:
                return False
        return True


class SharedProxySubject(ProxySubject):
    """Two proxies of ours at one port, or one of stock's, which has threads."""

    @property
    def servers(self) -> Sequence[ServerProcess]:
        return [self.proxy, *self._more]

    def _make(self) -> None:
        super()._make()
        self._more: list[ServerProcess] = []
        if self.kind != STOCK:
            names = self.name_server.address
            first = OurProxy(self._home / "proxy", names, sharePorts=True)
            self._use(first)
            self._more.append(SharingProxy(self._home / "proxy-2", names, first))

    def _start_proxy(self) -> None:
        super()._start_proxy()
        for proxy in self._more:
            proxy.start(START_LIMIT)

    def close(self) -> None:
        for proxy in self._more:
            proxy.close()
        super().close()


class LocalProxySubject(ProxySubject):
    """A broker with a proxy in its process; figures are of both."""

    def _make(self) -> None:
        home, names = self._home / "broker", self.name_server
        broker: Any
        if self.kind == STOCK:
            broker = _WarmStockLocalProxy(
                STOCK_VERSION, NAME, home, [names], settings=self._settings
            )
        else:
            broker = BrokerWithProxy(NAME, home, [names], settings=self._settings)
        self.broker = self.proxy = broker
        self.ports = broker.proxy_ports

    def start(self) -> None:
        self.name_server.start(START_LIMIT)
        self._start_proxy()

    def close(self) -> None:
        self.proxy.close()
        self.name_server.close()


#: Stock pops only with its timer, and proxies pop.
_FEATURES = {
    "timerWheelEnable": "true",
    "brokerClusterName": "DefaultCluster",
}
