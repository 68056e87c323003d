"""`twistd rmq-container`: a container of brokers."""

import os
import sys
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, ClassVar

import attrs
from twisted.application import service
from twisted.internet.defer import Deferred, inlineCallbacks, succeed
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.broker import VIP_DISTANCE
from rocketmq_tw.broker.cluster.addresses import announced_host
from rocketmq_tw.config.base import Config
from rocketmq_tw.config.container import SEPARATE, BrokerContainerConfig
from rocketmq_tw.config.load import Derived, Loaded
from rocketmq_tw.config.log import LogConfig
from rocketmq_tw.config.net import NettyClientConfig, NettyServerConfig, TlsConfig
from rocketmq_tw.config.properties import Setting, StartFile
from rocketmq_tw.container.broker_files import BrokerFiles
from rocketmq_tw.container.container import BrokerContainer, NotAdded
from rocketmq_tw.container.interface import BrokerSetup, IBrokerHosting
from rocketmq_tw.container.requests import ContainerRequests
from rocketmq_tw.container.separate import BrokersApart, spawn_with
from rocketmq_tw.container.together import BrokersTogether, SharedMachine
from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.net.address import join_address
from rocketmq_tw.net.client import RemotingClient
from rocketmq_tw.net.errors import TlsConfigError
from rocketmq_tw.net.interfaces import AccessChecks
from rocketmq_tw.net.live_config import CONTAINER_RULES, LiveConfig, in_config_file
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.net.tls import ServerTls
from rocketmq_tw.runtime.clock import wall_clock_ms
from rocketmq_tw.runtime.threads import allow_brokers, in_pool
from rocketmq_tw.services.access import request_checks
from rocketmq_tw.services.background import with_start_report
from rocketmq_tw.services.container_brokers import (
    check_brokers,
    file_refusal,
    ports_at_start,
    ports_of_hosted,
)
from rocketmq_tw.services.derived import of_container
from rocketmq_tw.services.failed_start import KeysToChange, describe_failed_start, refuse_to_start
from rocketmq_tw.services.options import NamesrvAddressOptions, shown_beside
from rocketmq_tw.services.ports import PortUse, check_free, own_port
from rocketmq_tw.services.process import freeze_startup_objects, prepare_process
from rocketmq_tw.services.reactor import server_reactor

#: Stock's port of a container.
LISTEN_PORT = "10811"


class Options(NamesrvAddressOptions):
    """What `twistd rmq-container` takes."""

    synopsis = "[-c container.conf] [-b broker.conf:...] [-n host:port;...] [-o key=value]... [-p]"
    types = (BrokerContainerConfig, NettyServerConfig, NettyClientConfig, TlsConfig, LogConfig)
    own_defaults: ClassVar[dict[str, str]] = {"listenPort": LISTEN_PORT}

    optParameters: ClassVar[list[list[Any]]] = [
        ["brokerConfigFiles", "b", None, "Files of brokers to start with, ':' between them."],
    ]

    def derived(self) -> Mapping[str, Derived]:
        return of_container(self.loaded)

    def ports(self) -> list[PortUse]:
        return _own_ports(self.loaded[NettyServerConfig])

    def check_start(self) -> None:
        super().check_start()
        files = broker_files(self.loaded, lambda text: sys.stderr.write(f"{text}\n"))
        paths = broker_paths(self.loaded[BrokerContainerConfig])
        check_brokers(files, paths, self.ports())

    def settings(self) -> list[Setting]:
        settings = super().settings()
        if self["brokerConfigFiles"] is not None:
            settings.append(Setting("brokerConfigPaths", self["brokerConfigFiles"], "-b"))
        return settings


def _own_ports(net: NettyServerConfig) -> list[PortUse]:
    own = own_port("listenPort", net, net.listen_port)
    vip = f"the VIP channel (listenPort - {VIP_DISTANCE})"
    return own + [each._replace(what=vip, port=each.port - VIP_DISTANCE) for each in own]


class ContainerService(service.Service):
    """Serves from `startService` to `stopService`; `started` fires once the brokers that its file
    names are served. `start_file` is where changes over the wire are kept, if anywhere."""

    log = Logger()

    def __init__(self, reactor: Any, loaded: Loaded, start_file: StartFile | None = None) -> None:
        self.setName("rmq-container")
        self.config = loaded[BrokerContainerConfig]
        self._loaded = loaded
        self.started: Deferred[None] = succeed(None)
        self.container: BrokerContainer | None = None
        #: Its port, once it listens.
        self.port = 0
        self._reactor = reactor
        self._start_file = start_file
        self._net = loaded[NettyServerConfig]
        self._client_config = loaded[NettyClientConfig]
        self._tls = loaded[TlsConfig]

    def ports(self) -> list[PortUse]:
        """Returns what it and the brokers of its file listen on from the start. Reads their
        files; what looks like a mistake in one is told as its broker is added."""
        files = broker_files(self._loaded, lambda text: None)
        return _own_ports(self._net) + ports_at_start(files, broker_paths(self.config))

    def startService(self) -> None:
        super().startService()
        try:
            check_free(self.ports())
            self._client = RemotingClient(
                self._reactor,
                self._client_config,
                tls=self._tls,
                frame_limit=self._net.frame_max_length,
            )
            access = AccessChecks(requests=request_checks(self._net, self._reactor.seconds))
            self._server = RemotingServer(
                self._reactor, self._net, tls=ServerTls(self._tls), access=access
            )
        except (CannotListenError, TlsConfigError) as error:
            refuse_to_start(self._reactor, error, KeysToChange())
            return
        files = broker_files(self._loaded)
        self.container = BrokerContainer(files, self._hosting(), in_pool(self._reactor))
        self.started = self._start(self.container)
        self.started.addErrback(self._cannot_start)

    @inlineCallbacks
    def stopService(self) -> Generator[Any, Any, None]:
        super().stopService()
        if self.container is None:
            return
        try:
            yield self.container.stop()
        finally:
            yield self._server.stop()
            yield self._client.close()

    @inlineCallbacks
    def _start(self, container: BrokerContainer) -> Generator[Any, Any, None]:
        listener = self._server.listener()
        requests = ContainerRequests(container, self._live_config(), wall_clock_ms())
        for code, handler in requests.handlers().items():
            listener.register(code, handler)
        self.port = listener.listen()
        if self._net.listen_port:
            listener.listen(self.port - VIP_DISTANCE)
        host = self.config.broker_container_ip or announced_host(self._net.bind_address)
        self.log.info(
            "container at {address}, its brokers live {how}",
            address=join_address(host, self.port),
            how=self.config.broker_processes,
        )
        for path in broker_paths(self.config):
            try:
                yield container.add(path)
            except NotAdded as error:
                raise NotAdded(file_refusal(path, error)) from error
        freeze_startup_objects()
        names = ", ".join(each.canonical_name for each in container.identities)
        self.log.info("the container's brokers are: {names}", names=names or "none")

    def _hosting(self) -> IBrokerHosting:
        if self.config.broker_processes == SEPARATE:
            shared = (self._net, self._client_config, self._tls)
            return BrokersApart(self._reactor, self.config, shared, spawn_with(self._reactor))
        return BrokersTogether(
            SharedMachine(
                reactor=self._reactor,
                files=PosixFiles(),
                client=self._client,
                server=self._server,
                net_config=self._net,
                other_configs=shown_beside(self._loaded),
                in_thread=in_pool(self._reactor),
                allow_brokers=partial(allow_brokers, self._reactor),
                describe=describe_failed_broker,
                check_ports=lambda setup: check_free(
                    ports_of_hosted(self._net.bind_address, setup)
                ),
            )
        )

    def _live_config(self) -> LiveConfig:
        others: list[Config] = [self._net, *shown_beside(self._loaded)]
        start = self._start_file
        if start is None:
            return LiveConfig(self.config, others, CONTAINER_RULES)
        write = in_config_file(
            PosixFiles(), start.path, in_pool(self._reactor), overridden=start.overridden
        )
        return LiveConfig(self.config, others, CONTAINER_RULES, write)

    def _cannot_start(self, failure: Failure) -> None:
        if not failure.check(CannotListenError, NotAdded, OSError):
            self.log.failure("the container failed to start", failure=failure)
        refuse_to_start(self._reactor, failure.value, KeysToChange())


def broker_paths(config: BrokerContainerConfig) -> list[str]:
    """Returns the files of the brokers that a container starts with."""
    return [path for path in config.broker_config_paths.split(":") if path]


def broker_files(loaded: Loaded, warn: Callable[[str], object] | None = None) -> BrokerFiles:
    """Returns what reads the files of a container's brokers; `warn` gets, in place of the log, what
    looks like a mistake in one."""
    names, host = loaded[BrokerContainerConfig].namesrv_addr, loaded[NettyServerConfig].bind_address
    files = BrokerFiles(names, host, os.path.expanduser("~"))
    return files if warn is None else attrs.evolve(files, warn=warn)


def describe_failed_broker(error: BaseException, setup: BrokerSetup) -> str:
    """Says why a broker of a container did not start, and which key of its file to change."""
    store = setup.store_config
    paths = {
        "storePathRootDir": store.store_path_root_dir,
        "storePathCommitLog": store.store_path_commit_log,
    }
    return describe_failed_start(error, KeysToChange(paths=paths)) or type(error).__name__


def makeService(options: Options) -> service.Service:
    """Returns the service that `options` describe."""
    reactor = server_reactor()
    prepare_process(reactor)
    server = ContainerService(reactor, options.loaded, options.start_file)
    return with_start_report(options, server, lambda: server.started)
