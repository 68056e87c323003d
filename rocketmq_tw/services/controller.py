"""`twistd rmq-controller`: one controller of a group."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from twisted.application import service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.config.controller import ControllerConfig
from rocketmq_tw.config.load import Derived, Loaded
from rocketmq_tw.config.log import LogConfig
from rocketmq_tw.config.monitoring import MonitoringConfig
from rocketmq_tw.config.net import NettyClientConfig, NettyServerConfig, TlsConfig
from rocketmq_tw.config.properties import ConfigError, Setting, StartFile
from rocketmq_tw.controller.controller import Controller, ControllerConfigError, node_config
from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.metrics.instruments import Metric
from rocketmq_tw.net.address import split_address
from rocketmq_tw.net.client import RemotingClient
from rocketmq_tw.net.errors import TlsConfigError
from rocketmq_tw.net.interfaces import AccessChecks, IPeer
from rocketmq_tw.net.live_config import kept_config
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.net.tls import ServerTls
from rocketmq_tw.raft.core.config import NodeConfig
from rocketmq_tw.raft.store.ledger import DEFAULT_INDEX_FILE_SIZE
from rocketmq_tw.raft.store.member import MemberStore
from rocketmq_tw.runtime.threads import in_pool
from rocketmq_tw.services.access import request_checks
from rocketmq_tw.services.background import with_start_report
from rocketmq_tw.services.failed_start import KeysToChange, refuse_to_start
from rocketmq_tw.services.monitoring import with_monitoring
from rocketmq_tw.services.options import ServerOptions, shown_beside, with_client_tls
from rocketmq_tw.services.ports import PortUse, check_free, own_port
from rocketmq_tw.services.process import freeze_startup_objects, prepare_process
from rocketmq_tw.services.reactor import server_reactor
from rocketmq_tw.store.errors import StoreError
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.command import RemotingCommand

#: Where stock has its log unless the file says another place.
CONTROLLER_DEFAULTS: Mapping[str, str] = {"controllerStorePath": "${user.home}/DLedgerController"}


class Options(ServerOptions):
    """What `twistd rmq-controller` takes."""

    synopsis = "[-c controller.conf] [-o key=value]... [-p]"
    types = (
        ControllerConfig,
        NettyServerConfig,
        NettyClientConfig,
        TlsConfig,
        MonitoringConfig,
        LogConfig,
    )
    own_defaults: ClassVar[Mapping[str, str]] = CONTROLLER_DEFAULTS

    def monitored(self) -> Sequence[str]:
        return ("controller",)

    def derived(self) -> Mapping[str, Derived]:
        try:
            config = node_config(self.loaded[ControllerConfig])
        except ControllerConfigError:
            return {}
        _, port = split_address(config.peers[config.raft.self_id])
        return {"listenPort": Derived(str(port), "controllerDLegerPeers")}

    def ports(self) -> list[PortUse]:
        # Its own port is of its peers.
        return self.monitoring_port()

    def check_start(self) -> None:
        super().check_start()
        try:
            node_config(self.loaded[ControllerConfig])
        except ControllerConfigError as error:
            raise ConfigError(str(error)) from error

    def settings(self) -> list[Setting]:
        settings = super().settings()
        if (start := self.start_file) is not None:
            # Changes over the wire are kept in the file that the controller started from.
            settings.insert(0, Setting("configStorePath", start.path, "-c", follows="-c"))
        return with_client_tls(settings)


class ControllerService(service.Service):
    """Opens the store and takes part from `startService` to `stopService`.

    It listens on the port that `controllerDLegerPeers` has for it. `on_failure` is called with the
    reason where it cannot go on later; by default the process ends. `start_file` is the file with
    the configuration, where there is one.
    """

    log = Logger()

    def __init__(
        self,
        reactor: Any,
        loaded: Loaded,
        *,
        on_failure: Callable[[BaseException | None], None] | None = None,
        start_file: StartFile | None = None,
    ) -> None:
        self.setName("rmq-controller")
        self._reactor = reactor
        self._loaded = loaded
        self._config = loaded[ControllerConfig]
        self._start_file = start_file
        self._on_failure = on_failure or self._cannot_go_on
        self._keys = KeysToChange(
            "the port in controllerDLegerPeers",
            paths={"controllerStorePath": self._config.controller_store_path},
        )
        self._server: RemotingServer | None = None
        self._client: RemotingClient | None = None
        self._controller: Controller | None = None

    def ports(self) -> list[PortUse]:
        """Returns what it listens on; nothing where its keys are wrong, as a start says."""
        try:
            config = node_config(self._config)
        except ControllerConfigError:
            return []
        _, port = split_address(config.peers[config.raft.self_id])
        return own_port("controllerDLegerPeers", self._loaded[NettyServerConfig], port, self._keys)

    def startService(self) -> None:
        loaded, store = self._loaded, None
        try:
            check_free(self.ports())
            config = node_config(self._config)
            member = config.raft.self_id
            _, port = split_address(config.peers[member])
            net = msgspec.structs.replace(loaded[NettyServerConfig], listen_port=port)
            tls = loaded[TlsConfig]
            access = AccessChecks(
                requests=request_checks(net, self._reactor.seconds, self._needs_no_administrator)
            )
            self._server = RemotingServer(self._reactor, net, tls=ServerTls(tls), access=access)
            self._client = RemotingClient(self._reactor, loaded[NettyClientConfig], tls=tls)
            store = self._open_store(config)
            in_thread = in_pool(self._reactor)
            controller = Controller(
                self._reactor,
                self._config,
                kept_config(
                    PosixFiles(),
                    self._config,
                    (net, *shown_beside(loaded)),
                    in_thread,
                    start=self._start_file,
                ),
                store,
                self._client,
                in_thread,
                hears_strangers=not net.cluster_addresses.strip(),
            )
            controller.start(self._server)
        except (
            ControllerConfigError,
            CannotListenError,
            StoreError,
            TlsConfigError,
            OSError,
        ) as error:
            if store is not None:
                store.close()
            self._cannot_go_on(error)
            return
        super().startService()
        self._controller = controller
        controller.node.when_failed.addErrback(self._failed)
        # The reader may stop this process: Ctrl-C works only once the reactor runs.
        self._reactor.callWhenRunning(freeze_startup_objects)
        self._reactor.callWhenRunning(
            self.log.info,
            "{kind} controller {group}/{member}: listening on {address}",
            kind=self._config.controller_type,
            group=config.group,
            member=member,
            address=config.peers[member],
        )

    def metrics(self) -> Iterable[Metric]:
        """See `Monitored`."""
        return () if self._controller is None else self._controller.metrics()

    def not_ready(self) -> str:
        """See `Monitored`."""
        return "it has not started" if self._controller is None else self._controller.not_ready()

    def _open_store(self, config: NodeConfig) -> MemberStore:
        return MemberStore(
            PosixFiles(),
            f"{self._config.controller_store_path}/dledger-{config.raft.self_id}",
            self._config.mapped_file_size,
            DEFAULT_INDEX_FILE_SIZE,
        )

    def _needs_no_administrator(self, request: RemotingCommand, peer: IPeer) -> bool:
        return self._controller is not None and self._controller.needs_no_administrator(
            request, peer
        )

    def _failed(self, failure: Failure) -> None:
        self._on_failure(failure.value)

    def _cannot_go_on(self, error: BaseException | None) -> None:
        refuse_to_start(self._reactor, error, self._keys)

    def stopService(self) -> "Deferred[None]":
        super().stopService()
        controller, self._controller = self._controller, None
        stopped = succeed(None) if controller is None else controller.stop()
        server, client = self._server, self._client
        if server is not None:
            stopped.addCallback(lambda _: server.stop(0.5))
        if client is not None:
            stopped.addCallback(lambda _: client.close())
        return stopped


def makeService(options: Options) -> service.Service:
    """Returns the service that `options` describe."""
    reactor = server_reactor()
    prepare_process(reactor)
    server = ControllerService(reactor, options.loaded, start_file=options.start_file)
    return with_start_report(options, with_monitoring(reactor, options.loaded, server))
