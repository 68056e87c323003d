"""`twistd rmq-broker`: a broker."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

from twisted.application import service
from twisted.internet.defer import Deferred, inlineCallbacks, maybeDeferred, succeed
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Surroundings
from rocketmq_tw.broker.assembly.neighbours import NoNeighbours
from rocketmq_tw.broker.broker import Broker
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.load import Derived, Loaded
from rocketmq_tw.config.log import LogConfig
from rocketmq_tw.config.monitoring import MonitoringConfig
from rocketmq_tw.config.net import NettyClientConfig, NettyServerConfig, TlsConfig
from rocketmq_tw.config.properties import ConfigError, Setting, StartFile
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.container.child import Supervision, read_settings
from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.metrics.instruments import Metric
from rocketmq_tw.net.client import RemotingClient
from rocketmq_tw.net.errors import TlsConfigError
from rocketmq_tw.net.interfaces import AccessChecks
from rocketmq_tw.net.live_config import (
    WriteChanges,
    in_config_file,
    only_until_stop,
    where_possible,
)
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.net.tls import ServerTls
from rocketmq_tw.replication.auto_switch.epoch_file import EpochFileError
from rocketmq_tw.replication.links.members import SlaveAddressCheck
from rocketmq_tw.runtime.threads import in_pool
from rocketmq_tw.services.access import request_checks
from rocketmq_tw.services.background import with_start_report
from rocketmq_tw.services.derived import of_broker
from rocketmq_tw.services.failed_start import (
    PROXY_KEYS,
    KeysToChange,
    describe_failed_start,
    refuse_to_start,
)
from rocketmq_tw.services.local_proxy import LocalProxyOptions
from rocketmq_tw.services.monitoring import with_monitoring
from rocketmq_tw.services.options import shown_beside
from rocketmq_tw.services.ports import PortUse, check_free, ports_of_broker, ports_of_proxy
from rocketmq_tw.services.process import freeze_startup_objects, prepare_process
from rocketmq_tw.services.reactor import server_reactor
from rocketmq_tw.store.errors import StoreError
from rocketmq_tw.structs import msgspec

if TYPE_CHECKING:
    from rocketmq_tw.services.proxy import ProxyServer


class Options(LocalProxyOptions):
    """What `twistd rmq-broker` takes."""

    synopsis = (
        "[-c broker.properties] [-n host:port;...] [-o key=value]... [-p]"
        " [--enable-proxy [-pc rmq-proxy.json]]"
    )
    types = (
        BrokerConfig,
        MessageStoreConfig,
        NettyServerConfig,
        NettyClientConfig,
        TlsConfig,
        MonitoringConfig,
        LogConfig,
    )
    own_defaults: ClassVar[Mapping[str, str]] = {"listenPort": "10911"}

    optFlags: ClassVar[list[list[Any]]] = [
        ["supervised", None, "Obey the container that started this process (for its use only)."],
    ]

    def derived(self) -> Mapping[str, Derived]:
        return of_broker(self.loaded)

    def says_version(self) -> bool:
        # Its container, whose log it writes to, has said it.
        return not self["supervised"]

    def settings(self) -> list[Setting]:
        settings = super().settings()
        if self["supervised"]:
            try:
                settings += read_settings()
            except (EOFError, ValueError) as error:
                raise ConfigError(f"--supervised: {error}: only containers give it") from error
        return settings


class BrokerService(service.Service):
    """Serves from `startService` to `stopService`; `started` fires once clients can be served."""

    log = Logger()

    def __init__(
        self,
        reactor: Any,
        loaded: Loaded,
        supervision: Supervision | None = None,
        proxy: Loaded | None = None,
        start_file: StartFile | None = None,
    ) -> None:
        """`supervision`: the container, where one has started this process. `proxy`: the
        configuration of a proxy in this process, where there is to be one. `start_file`: the file
        with the broker's configuration, where there is one."""
        self.setName("rmq-broker")
        self.config = msgspec.structs.replace(
            loaded[BrokerConfig], is_in_broker_container=supervision is not None
        )
        self.store_config = loaded[MessageStoreConfig]
        self.broker: Broker | None = None
        self.started: Deferred[None] = succeed(None)
        self._reactor = reactor
        self._supervision = supervision
        self._proxy_config = proxy
        self._make_proxy = None if proxy is None else _proxy_maker(reactor, proxy)
        self._start_file = start_file
        self._proxy: ProxyServer | None = None
        self._net = loaded[NettyServerConfig]
        self._client_config = loaded[NettyClientConfig]
        self._tls = loaded[TlsConfig]
        self._is_monitored = loaded[MonitoringConfig].is_enabled
        self._shown_beside = shown_beside(loaded)

    def ports(self) -> list[PortUse]:
        """Returns what it listens on from its start."""
        net = self._net
        found = ports_of_broker(net.bind_address, net.listen_port, self.store_config, at_start=True)
        return found if self._proxy_config is None else found + ports_of_proxy(self._proxy_config)

    def startService(self) -> None:
        super().startService()
        try:
            check_free(self.ports())
        except CannotListenError as error:
            self._refuse_to_start(error, KeysToChange())
            return
        if not self.config.namesrv_addr:
            self.log.warn("no name server is named (-n or namesrvAddr): clients cannot find topics")
        try:
            tls = ServerTls(self._tls)
            client = RemotingClient(
                self._reactor,
                self._client_config,
                tls=self._tls,
                # A slave may take as large a table as its master may send.
                frame_limit=self._net.frame_max_length,
            )
        except TlsConfigError as error:
            self._refuse_to_start(error, KeysToChange())
            return
        access = AccessChecks(
            requests=request_checks(self._net, self._reactor.seconds),
            connections=[
                SlaveAddressCheck(self.store_config.ha_addresses, self._net.cluster_addresses)
            ],
        )
        server = RemotingServer(self._reactor, self._net, tls=tls, access=access)
        self._client, self._server = client, server
        supervision = self._supervision
        self.broker = Broker(
            Surroundings(
                reactor=self._reactor,
                config=self.config,
                store_config=self.store_config,
                net_config=self._net,
                files=PosixFiles(),
                client=client,
                server=server,
                other_configs=self._shown_beside,
                neighbours=NoNeighbours() if supervision is None else supervision.neighbours,
                keep_config=self._keep_config(),
                is_monitored=self._is_monitored,
            )
        )
        self.started = maybeDeferred(self.broker.start)
        self.started.addCallback(self._start_proxy)
        self.started.addCallback(self._is_ready)
        self.started.addErrback(self._cannot_start)

    def stopService(self) -> Deferred[None]:
        super().stopService()
        broker = self.broker
        if broker is None:
            return succeed(None)
        if broker.addresses.port or self.started.called:
            return self._stop(broker)
        # The store is being loaded in a thread: only then it can be closed properly.
        stopped: Deferred[None] = Deferred()
        self.started.addBoth(lambda _: self._stop(broker).chainDeferred(stopped))
        return stopped

    @inlineCallbacks
    def _stop(self, broker: Broker) -> Generator[Any, Any, None]:
        try:
            if self._proxy is not None:
                yield self._proxy.stop()
            yield broker.stop()
        finally:
            yield self._server.stop()
            yield self._client.close()

    def metrics(self) -> Iterable[Metric]:
        """See `Monitored`."""
        if self.broker is None or not self.started.called:
            # The store is being loaded.
            return ()
        proxy = () if self._proxy is None else self._proxy.metrics()
        return chain(self.broker.metrics(), proxy)

    def not_ready(self) -> str:
        """See `Monitored`."""
        if self.broker is None or not self.started.called:
            return "the store is being loaded"
        return self.broker.not_ready() or ("" if self._proxy is None else self._proxy.not_ready())

    def _cannot_start(self, failure: Failure) -> None:
        if not failure.check(CannotListenError, ConfigError, EpochFileError, StoreError, OSError):
            self.log.failure("the broker failed to start", failure=failure)
        config = self.store_config
        paths = {
            "storePathRootDir": config.store_path_root_dir,
            "storePathCommitLog": config.store_path_commit_log,
        }
        self._refuse_to_start(failure.value, KeysToChange(paths=paths))

    def _start_proxy(self, _: object) -> None:
        if self._make_proxy is not None and self.broker is not None and self.running:
            self._proxy = self._make_proxy(self.broker)
            try:
                self._proxy.start()
            except (CannotListenError, TlsConfigError) as error:
                self._refuse_to_start(error, PROXY_KEYS)

    def _is_ready(self, _: object) -> None:
        freeze_startup_objects()
        if self._supervision is not None and self.broker is not None:
            self._supervision.serves(self.broker.addresses.broker)

    def _keep_config(self) -> WriteChanges:
        start = self._start_file
        if start is None:
            return only_until_stop
        return where_possible(
            in_config_file(
                PosixFiles(), start.path, in_pool(self._reactor), overridden=start.overridden
            )
        )

    def _refuse_to_start(self, error: BaseException | None, keys: KeysToChange) -> None:
        if self._supervision is not None:
            self._supervision.failed(describe_failed_start(error, keys) or type(error).__name__)
        refuse_to_start(self._reactor, error, keys)


def _proxy_maker(reactor: Any, loaded: Loaded) -> Callable[[Broker], ProxyServer]:
    """Returns what makes the proxy in a broker's process. The modules of gRPC are loaded for that
    alone, before the reactor runs: they take a fifth of a broker's start."""
    from rocketmq_tw.proxy.local.brokers import LocalBrokers
    from rocketmq_tw.services.proxy import LocalBroker, ProxyServer

    def make(broker: Broker) -> ProxyServer:
        beside = LocalBroker(broker.config.namesrv_addr, partial(LocalBrokers, reactor, broker))
        return ProxyServer(reactor, loaded, beside)

    return make


def makeService(options: Options) -> service.Service:
    """Returns the service that `options` describe."""
    reactor = server_reactor()
    prepare_process(reactor)
    supervision = None
    if options["supervised"]:
        supervision = Supervision(reactor)
        supervision.begin()
    server = BrokerService(reactor, options.loaded, supervision, options.proxy, options.start_file)
    monitored = with_monitoring(reactor, options.loaded, server)
    return with_start_report(options, monitored, lambda: server.started)
