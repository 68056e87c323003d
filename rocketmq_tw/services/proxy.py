"""`twistd rmq-proxy`: a proxy before a cluster."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from socket import gethostname
from typing import Any, ClassVar, NamedTuple

from twisted.application import service
from twisted.internet.defer import Deferred, inlineCallbacks, succeed
from twisted.internet.error import CannotListenError
from twisted.logger import Logger

from rocketmq_tw.config.load import Derived, Loaded
from rocketmq_tw.config.log import LogConfig
from rocketmq_tw.config.monitoring import MonitoringConfig
from rocketmq_tw.config.net import NettyClientConfig, NettyServerConfig, TlsConfig
from rocketmq_tw.config.properties import ConfigError
from rocketmq_tw.config.proxy import LOCAL, OWN_DEFAULTS, ProxyConfig
from rocketmq_tw.config.values import split_named_ports
from rocketmq_tw.message.compression import missing_packages
from rocketmq_tw.metrics.instruments import Metric, gauge, labelled
from rocketmq_tw.net.address import join_address
from rocketmq_tw.net.client import RemotingClient
from rocketmq_tw.net.errors import TlsConfigError
from rocketmq_tw.net.interfaces import IRemotingClient, ISharedPorts
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.net.server_metrics import MetricsLog, request_latency
from rocketmq_tw.net.tls import ServerTls
from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.cluster.brokers import ClusterBrokers
from rocketmq_tw.proxy.grpc.health import HealthService
from rocketmq_tw.proxy.grpc.latency import call_latency
from rocketmq_tw.proxy.grpc.reflection import ReflectionService
from rocketmq_tw.proxy.grpc.server import GrpcConfig, GrpcServer
from rocketmq_tw.proxy.http2.limits import Http2Limits
from rocketmq_tw.proxy.messaging.methods import SERVICE
from rocketmq_tw.proxy.proto import messages
from rocketmq_tw.proxy.proxy import Proxy
from rocketmq_tw.runtime.threads import in_pool
from rocketmq_tw.services.background import with_start_report
from rocketmq_tw.services.derived import of_proxy
from rocketmq_tw.services.failed_start import PROXY_KEYS, KeysToChange, refuse_to_start
from rocketmq_tw.services.monitoring import with_monitoring
from rocketmq_tw.services.options import NamesrvAddressOptions, check_tls
from rocketmq_tw.services.ports import PortUse, ports_of_proxy
from rocketmq_tw.services.process import freeze_startup_objects, prepare_process
from rocketmq_tw.services.reactor import server_reactor
from rocketmq_tw.structs import msgspec

_KEYS = KeysToChange(port=f"{PROXY_KEYS.port}, or give each proxy at it sharePorts=true")


class Options(NamesrvAddressOptions):
    """What `twistd rmq-proxy` takes."""

    synopsis = "[-c rmq-proxy.json] [-n host:port;...] [-o key=value]... [-p]"
    types = (
        ProxyConfig,
        NettyServerConfig,
        NettyClientConfig,
        TlsConfig,
        MonitoringConfig,
        LogConfig,
    )
    own_defaults: ClassVar[Mapping[str, str]] = OWN_DEFAULTS

    def pid_port(self) -> int | None:
        return self.loaded[ProxyConfig].grpc_server_port

    def derived(self) -> Mapping[str, Derived]:
        return of_proxy(self.loaded)

    def check(self, loaded: Loaded) -> None:
        config = loaded[ProxyConfig]
        if config.proxy_mode == LOCAL:
            raise ConfigError(
                "proxyMode=LOCAL is a proxy in a broker's process: start twistd rmq-broker"
                " --enable-proxy with the broker's file as -c and this one as -pc"
            )
        if not config.namesrv_addr:
            raise ConfigError("no name server is named: give -n host:port or namesrvAddr")

    def ports(self) -> list[PortUse]:
        return ports_of_proxy(self.loaded) + self.monitoring_port()

    def monitored(self) -> Sequence[str]:
        return ("proxy",)

    def check_start(self) -> None:
        check_proxy_tls(self.loaded)


class LocalBroker(NamedTuple):
    """The broker in whose process a proxy is."""

    namesrv_addr: str
    #: Returns what asks it here, and the others of its cluster as its argument does.
    brokers: Callable[[IBrokers], IBrokers]


class ProxyServer:
    """A proxy with its ports. With a `broker` it is in that one's process, and calls it there."""

    log = Logger()

    def __init__(self, reactor: Any, loaded: Loaded, broker: LocalBroker | None = None) -> None:
        self.config = loaded[ProxyConfig]
        if broker is not None:
            self.config = msgspec.structs.replace(
                self.config,
                namesrv_addr=self.config.namesrv_addr or broker.namesrv_addr,
                proxy_mode=LOCAL,
            )
        self._reactor = reactor
        self._net = loaded[NettyServerConfig]
        self._client_config = loaded[NettyClientConfig]
        self._tls = loaded[TlsConfig]
        self._broker = broker
        self._server: RemotingServer | None = None
        self._proxy: Proxy | None = None
        self._cluster: ClusterBrokers | None = None
        self._health = HealthService(reactor, [SERVICE], self.not_ready)
        self._calls, self._requests = call_latency(), request_latency()
        self._metrics_log = MetricsLog(reactor, self.metrics)

    def start(self) -> None:
        """Serves from now on; raises `CannotListenError`, `ConfigError`, `TlsConfigError`."""
        if not self.config.namesrv_addr:
            raise ConfigError("a proxy finds topics by name servers: give -n host:port")
        if self.config.share_ports and not ISharedPorts.providedBy(self._reactor):
            raise ConfigError(
                "sharePorts=true needs epoll: start twistd on Linux without --reactor"
            )
        self._server = RemotingServer(
            self._reactor, self._net, tls=ServerTls(_server_tls(self.config, self._tls))
        )
        # The ports are taken first: routes name them.
        listener = self._server.listener(http2=lambda *args: grpc.connection(*args))
        listen = partial(listener.listen, accepts=False, shared=self.config.share_ports)
        grpc_port = listen(self.config.grpc_server_port)
        remoting_port = self.config.remoting_listen_port
        if remoting_port != grpc_port or not remoting_port:
            remoting_port = listen(remoting_port)
        for port in split_named_ports(self.config.remoting_broker_ports).values():
            listen(port)
        self.config = msgspec.structs.replace(
            self.config, grpc_server_port=grpc_port, remoting_listen_port=remoting_port
        )
        self._cluster = ClusterBrokers(self._reactor, self.config, self._connect)
        brokers: IBrokers = self._cluster
        if self._broker is not None:
            brokers = self._broker.brokers(self._cluster)
        self._cluster.start()
        self._proxy = Proxy(self._reactor, self.config, brokers, in_pool(self._reactor))
        methods = {
            **self._proxy.methods,
            **self._health.methods(),
            **ReflectionService([messages.DESCRIPTOR]).methods(),
        }
        grpc = GrpcServer(self._reactor, grpc_config(self.config), methods, self._calls.record)
        listener.observe(self._requests.record)
        listener.serve(self._proxy.handlers)
        self._proxy.start()
        self._metrics_log.start()
        listener.accept()
        self.log.info(
            "proxy: gRPC at {grpc}, classic clients at {remoting}; either takes both; its name"
            " servers are {names}",
            grpc=join_address(self._net.bind_address, grpc_port),
            remoting=join_address(self._net.bind_address, remoting_port),
            names=self.config.namesrv_addr,
        )
        if missing := missing_packages():
            self.log.warn(
                "proxy: bodies that need {packages} go to gRPC clients as they are, packed: pip"
                " install them",
                packages=" and ".join(missing),
            )

    @inlineCallbacks
    def stop(self) -> Generator[Any, Any, None]:
        """Serves no more; fires when all connections are closed."""
        self._health.stop()
        self._metrics_log.stop()
        try:
            if self._proxy is not None and self._server is not None:
                yield self._proxy.stop(self._server.stop)
        finally:
            if self._server is not None:
                yield self._server.stop()
            if self._cluster is not None:
                yield self._cluster.stop()

    def metrics(self) -> Iterable[Metric]:
        """Yields the proxy's figures."""
        if self._proxy is None or self._server is None:
            return ()
        held = gauge("rocketmq_proxy_in_flight", self._server.bytes_in_flight, unit="bytes")
        labels = {
            "cluster": self.config.proxy_cluster_name,
            "node_type": "proxy",
            "node_id": self.config.proxy_name or gethostname(),
            "proxy_mode": self.config.proxy_mode.lower(),
        }
        requests = chain(self._calls.metrics(), self._requests.metrics())
        return labelled(chain(self._proxy.metrics(), [held], requests), labels)

    def not_ready(self) -> str:
        """Returns why clients cannot be served yet; an empty text once they can."""
        return "it does not listen yet" if self._cluster is None else self._cluster.not_ready()

    def _connect(self) -> IRemotingClient:
        return RemotingClient(
            self._reactor,
            self._client_config,
            tls=self._tls,
            frame_limit=self._net.frame_max_length,
        )


class ProxyService(service.Service):
    """Serves from `startService` to `stopService`."""

    def __init__(self, reactor: Any, loaded: Loaded) -> None:
        self.setName("rmq-proxy")
        self.proxy = ProxyServer(reactor, loaded)
        self._reactor = reactor
        self._serves = False

    def startService(self) -> None:
        super().startService()
        try:
            self.proxy.start()
        except (CannotListenError, ConfigError, TlsConfigError) as error:
            refuse_to_start(self._reactor, error, _KEYS)
            return
        self._serves = True
        freeze_startup_objects()

    def stopService(self) -> Deferred[None]:
        super().stopService()
        stopped: Deferred[None] = self.proxy.stop() if self._serves else succeed(None)
        return stopped

    def metrics(self) -> Iterable[Metric]:
        """See `Monitored`."""
        return self.proxy.metrics()

    def not_ready(self) -> str:
        """See `Monitored`."""
        return self.proxy.not_ready()


def grpc_config(config: ProxyConfig) -> GrpcConfig:
    """Returns what bounds gRPC connections and calls."""
    return GrpcConfig(
        largest_message=config.grpc_max_inbound_message_size,
        connections=Http2Limits(
            streams=config.grpc_max_streams,
            header_list=config.grpc_max_metadata_bytes,
            idle_seconds=config.grpc_client_idle_time_mills / 1000,
            keepalive_seconds=config.grpc_keepalive_seconds,
            drain_seconds=config.grpc_shutdown_time_seconds,
        ),
    )


def _server_tls(config: ProxyConfig, tls: TlsConfig) -> TlsConfig:
    """Returns how the proxy's ports speak TLS: by the keys of stock's proxies, where they name
    files, else by those of all servers; not at all without a certificate."""
    key, cert = config.tls_key_path, config.tls_cert_path
    tls = msgspec.structs.replace(
        tls,
        test_mode_enable=config.tls_test_mode_enable,
        server_key_path=key or tls.server_key_path,
        server_cert_path=cert or tls.server_cert_path,
    )
    has_certificate = tls.server_cert_path or tls.test_mode_enable
    if tls.server_mode == "permissive" and not has_certificate:
        return msgspec.structs.replace(tls, server_mode="disabled")
    return tls


def check_proxy_tls(loaded: Loaded) -> None:
    """Raises `TlsConfigError` where a proxy of this configuration could not speak TLS."""
    check_tls(loaded, _server_tls(loaded[ProxyConfig], loaded[TlsConfig]))


def makeService(options: Options) -> service.Service:
    """Returns the service that `options` describe."""
    reactor = server_reactor()
    prepare_process(reactor)
    server = ProxyService(reactor, options.loaded)
    return with_start_report(options, with_monitoring(reactor, options.loaded, server))
