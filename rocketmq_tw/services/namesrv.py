"""`twistd rmq-namesrv`: a name server."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

from twisted.application import service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import CannotListenError
from twisted.logger import Logger

from rocketmq_tw.config.controller import ControllerConfig
from rocketmq_tw.config.load import Loaded
from rocketmq_tw.config.log import LogConfig
from rocketmq_tw.config.monitoring import MonitoringConfig
from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.config.net import NettyClientConfig, NettyServerConfig, TlsConfig
from rocketmq_tw.config.properties import Setting, StartFile
from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.metrics.instruments import Metric
from rocketmq_tw.namesrv.namesrv import NameServer
from rocketmq_tw.net.address import join_address
from rocketmq_tw.net.client import RemotingClient
from rocketmq_tw.net.errors import TlsConfigError
from rocketmq_tw.net.interfaces import AccessChecks
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.net.tls import ServerTls
from rocketmq_tw.runtime.threads import in_pool
from rocketmq_tw.services.access import request_checks
from rocketmq_tw.services.background import with_start_report
from rocketmq_tw.services.controller import CONTROLLER_DEFAULTS, ControllerService
from rocketmq_tw.services.failed_start import KeysToChange, refuse_to_start
from rocketmq_tw.services.monitoring import with_monitoring
from rocketmq_tw.services.options import ServerOptions, shown_beside, with_client_tls
from rocketmq_tw.services.ports import PortUse, check_free, own_port
from rocketmq_tw.services.process import freeze_startup_objects, prepare_process
from rocketmq_tw.services.reactor import server_reactor
from rocketmq_tw.store.errors import StoreError
from rocketmq_tw.structs import msgspec


class Options(ServerOptions):
    """What `twistd rmq-namesrv` takes."""

    synopsis = "[-c namesrv.properties] [-o key=value]... [-p]"
    types = (
        NamesrvConfig,
        NettyServerConfig,
        TlsConfig,
        NettyClientConfig,
        ControllerConfig,
        MonitoringConfig,
        LogConfig,
    )
    own_defaults: ClassVar[Mapping[str, str]] = {"listenPort": "9876", **CONTROLLER_DEFAULTS}

    def settings(self) -> list[Setting]:
        settings = super().settings()
        if (start := self.start_file) is not None:
            # As in stock, changes over the wire are kept in the file that the server started from.
            settings.insert(0, Setting("configStorePath", start.path, "-c", follows="-c"))
        return with_client_tls(settings)

    def monitored(self) -> Sequence[str]:
        return kinds_of_name_server(self.loaded)


def kinds_of_name_server(loaded: Loaded) -> Sequence[str]:
    """Returns the kinds of servers of which the name server that is configured so tells figures."""
    has_controller = loaded[NamesrvConfig].enable_controller_in_namesrv
    return ("name server", "controller") if has_controller else ("name server",)


def reached_at(host: str, port: int) -> str:
    """Returns where this machine reaches a server that listens on `host`."""
    return join_address("127.0.0.1" if host == "0.0.0.0" else host, port)


class NamesrvService(service.Service):
    """Listens from `startService` to `stopService`, with a controller beside it where
    `enableControllerInNamesrv` says so.

    `listen_port` takes the place of the configured one, which is the broker's in a process with
    both. `start_file` is the file with the configuration, where there is one. `local_address` is
    where this machine reaches it.
    """

    log = Logger()

    def __init__(
        self,
        reactor: Any,
        loaded: Loaded,
        *,
        listen_port: int | None = None,
        start_file: StartFile | None = None,
    ) -> None:
        self.setName("rmq-namesrv")
        config = loaded[NamesrvConfig]
        self._keys = KeysToChange(
            port="listenPort" if listen_port is None else "namesrvListenPort",
            paths={"kvConfigPath": config.kv_config_path},
        )
        self.local_address = ""
        self._net = loaded[NettyServerConfig]
        if listen_port is not None:
            self._net = msgspec.structs.replace(self._net, listen_port=listen_port)
        self._tls = loaded[TlsConfig]
        self._reactor = reactor
        self._server: RemotingServer | None = None

        self._config = config
        self._start_file = start_file
        self._client_config = loaded[NettyClientConfig]
        self._shown_beside = shown_beside(loaded)
        self._name_server: NameServer | None = None
        self._client: RemotingClient | None = None
        self._controller: ControllerService | None = None
        #: Why the controller had to stop while the name server stays; empty where it had not.
        self._controller_failure = ""
        self._ports = own_port(self._keys.port, self._net, self._net.listen_port, self._keys)
        if config.enable_controller_in_namesrv:
            self._controller = ControllerService(
                reactor, loaded, on_failure=self._controller_failed, start_file=start_file
            )

    def ports(self) -> list[PortUse]:
        """Returns what it listens on, with its controller."""
        return self._ports + ([] if self._controller is None else self._controller.ports())

    def startService(self) -> None:
        try:
            check_free(self.ports())
            self._server = RemotingServer(
                self._reactor,
                self._net,
                tls=ServerTls(self._tls),
                access=AccessChecks(requests=request_checks(self._net, self._reactor.seconds)),
            )
            self._client = RemotingClient(self._reactor, self._client_config, tls=self._tls)
            self._name_server = NameServer(
                self._reactor,
                PosixFiles(),
                self._config,
                other_configs=(self._net, *self._shown_beside),
                client=self._client,
                in_thread=in_pool(self._reactor),
                start_file=self._start_file,
            )
            port = self._name_server.start(self._server)
        except (CannotListenError, StoreError, TlsConfigError, OSError) as error:
            refuse_to_start(self._reactor, error, self._keys)
            return
        super().startService()
        host = self._net.bind_address
        self.local_address = reached_at(host, port)
        # The reader may stop this process: Ctrl-C works only once the reactor runs.
        self._reactor.callWhenRunning(freeze_startup_objects)
        self._reactor.callWhenRunning(
            self.log.info, "name server: listening on {address}", address=join_address(host, port)
        )
        if self._controller is not None:
            self._controller.startService()

    def name_new_brokers(self, on: bool) -> None:
        """Sets whether the log names brokers that come; not those of whom somebody else tells."""
        if self._name_server is not None:
            self._name_server.registrations.names_new = on

    def metrics(self) -> Iterable[Metric]:
        """See `Monitored`."""
        if self._name_server is None:
            return ()
        of_controller = () if self._controller is None else self._controller.metrics()
        return chain(self._name_server.metrics(), of_controller)

    def not_ready(self) -> str:
        """See `Monitored`."""
        if self._name_server is None or not self.local_address:
            return "it has not started"
        return self._name_server.not_ready() or self._controller_failure

    def _controller_failed(self, error: BaseException | None) -> None:
        """Routes are told on: that needs no controller."""
        self._controller_failure = f"its controller cannot go on and has stopped: {error}"
        self.log.critical(
            "the controller cannot go on and stops, the name server stays: {reason}", reason=error
        )
        if self._controller is not None:
            self._controller.stopService()

    def stopService(self) -> Deferred[None]:
        super().stopService()
        stopped: Deferred[None] = succeed(None)
        name_server, controller = self._name_server, self._controller
        if name_server is not None:
            stopped = name_server.stop()
        server, client = self._server, self._client
        if server is not None:
            stopped.addCallback(lambda _: server.stop())
        if client is not None:
            stopped.addCallback(lambda _: client.close())
        if controller is not None and controller.running:
            stopped.addCallback(lambda _: controller.stopService())
        return stopped


def makeService(options: Options) -> service.Service:
    """Returns the service that `options` describe."""
    reactor = server_reactor()
    prepare_process(reactor)
    server = NamesrvService(reactor, options.loaded, start_file=options.start_file)
    return with_start_report(options, with_monitoring(reactor, options.loaded, server))
