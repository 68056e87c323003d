"""`twistd rmq-standalone`: a name server and a broker in one process, to try things."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

from twisted.application import service
from twisted.internet.defer import inlineCallbacks
from twisted.internet.error import CannotListenError
from twisted.logger import Logger

from rocketmq_tw.broker.broker import Broker
from rocketmq_tw.broker.cluster.part import Cluster
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.controller import ControllerConfig
from rocketmq_tw.config.load import Derived, Loaded
from rocketmq_tw.config.log import LogConfig
from rocketmq_tw.config.monitoring import MonitoringConfig
from rocketmq_tw.config.namesrv import NamesrvConfig, StandaloneConfig
from rocketmq_tw.config.net import NettyClientConfig, NettyServerConfig, TlsConfig
from rocketmq_tw.config.properties import Setting, StartFile
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.metrics.instruments import Metric
from rocketmq_tw.services.background import with_start_report
from rocketmq_tw.services.broker import BrokerService
from rocketmq_tw.services.derived import of_broker
from rocketmq_tw.services.failed_start import KeysToChange, refuse_to_start
from rocketmq_tw.services.local_proxy import LocalProxyOptions
from rocketmq_tw.services.monitoring import with_monitoring
from rocketmq_tw.services.namesrv import NamesrvService, kinds_of_name_server, reached_at
from rocketmq_tw.services.ports import PortUse, check_free, own_port
from rocketmq_tw.services.process import prepare_process
from rocketmq_tw.services.reactor import server_reactor
from rocketmq_tw.structs import msgspec


class Options(LocalProxyOptions):
    """What `twistd rmq-standalone` takes."""

    synopsis = (
        "[-c standalone.properties] [-n host:port;...] [-o key=value]... [-p]"
        " [--enable-proxy [-pc rmq-proxy.json]]"
    )
    types = (
        StandaloneConfig,
        NamesrvConfig,
        BrokerConfig,
        MessageStoreConfig,
        NettyServerConfig,
        NettyClientConfig,
        TlsConfig,
        ControllerConfig,
        MonitoringConfig,
        LogConfig,
    )
    #: On loopback and beneath the current directory: nothing to set up, nobody else gets in.
    own_defaults: ClassVar[Mapping[str, str]] = {
        "bindAddress": "127.0.0.1",
        "listenPort": "10911",
        "brokerName": "broker-a",
        "storePathRootDir": "data/store",
        "kvConfigPath": "data/namesrv/kvConfig.json",
        "controllerStorePath": "data/controller",
    }

    def settings(self) -> list[Setting]:
        settings = super().settings()
        # The name server keeps its changes where the broker keeps its own.
        kept = Setting("configStorePath", "data/namesrv/namesrv.properties", "default")
        if (start := self.start_file) is not None:
            kept = Setting("configStorePath", start.path, "-c", follows="-c")
        return [kept, *settings]

    def ports(self) -> list[PortUse]:
        net, own = self.loaded[NettyServerConfig], self.loaded[StandaloneConfig]
        return own_port("namesrvListenPort", net, own.namesrv_listen_port) + super().ports()

    def monitored(self) -> Sequence[str]:
        return (*kinds_of_name_server(self.loaded), *super().monitored())

    def derived(self) -> Mapping[str, Derived]:
        net = self.loaded[NettyServerConfig]
        own = reached_at(net.bind_address, self.loaded[StandaloneConfig].namesrv_listen_port)
        value = Derived(_with_own(own, self.loaded[BrokerConfig]), "namesrvListenPort")
        return of_broker(self.loaded) | {"namesrvAddr": value}


def _with_own(own: str, config: BrokerConfig) -> str:
    """Returns the name servers of the broker: the `own` one of this process, then the others."""
    return ";".join(dict.fromkeys(f"{own};{config.namesrv_addr}".rstrip(";").split(";")))


class StandaloneService(service.Service):
    """A name server and a broker in one process. The name server starts first, then the broker,
    which registers with it; they are stopped in reverse."""

    log = Logger()

    def __init__(
        self,
        reactor: Any,
        loaded: Loaded,
        proxy: Loaded | None = None,
        start_file: StartFile | None = None,
    ) -> None:
        """`proxy`: the configuration of a proxy in this process, where there is to be one.
        `start_file`: the file with the configuration, where there is one."""
        self.setName("rmq-standalone")
        self.name_server = NamesrvService(
            reactor,
            loaded,
            listen_port=loaded[StandaloneConfig].namesrv_listen_port,
            start_file=start_file,
        )
        self._reactor = reactor
        enforcing = loaded[TlsConfig].server_mode == "enforcing"
        self._tls_option = " --tls" if enforcing else ""
        self.broker = BrokerService(reactor, loaded, proxy=proxy, start_file=start_file)

    def startService(self) -> None:
        super().startService()
        try:
            # Those of the broker too: the name server says at once that it listens.
            check_free([*self.name_server.ports(), *self.broker.ports()])
        except CannotListenError as error:
            refuse_to_start(self._reactor, error, KeysToChange())
            return
        self.name_server.startService()
        if not self.name_server.running:
            return
        # What it says once its broker is registered tells of that.
        self.name_server.name_new_brokers(False)
        config = self.broker.config
        addresses = _with_own(self.name_server.local_address, config)
        self.broker.config = msgspec.structs.replace(config, namesrv_addr=addresses)
        self.broker.startService()
        self.broker.started.addCallback(self._announce_when_registered)

    @inlineCallbacks
    def stopService(self) -> Any:
        super().stopService()
        if self.broker.running:
            yield self.broker.stopService()
        if self.name_server.running:
            yield self.name_server.stopService()

    def metrics(self) -> Iterable[Metric]:
        """See `Monitored`."""
        return chain(self.name_server.metrics(), self.broker.metrics())

    def not_ready(self) -> str:
        """See `Monitored`."""
        return self.name_server.not_ready() or self.broker.not_ready()

    def _announce_when_registered(self, _: object) -> None:
        """Announces that the server is ready once the name server knows the broker: a client may
        connect then."""
        broker = self.broker.broker
        if broker is not None:
            known = broker[Cluster].membership.when_registered(self.name_server.local_address)
            known.addCallback(lambda _: self._announce(broker))

    def _announce(self, broker: Broker) -> None:
        self.name_server.name_new_brokers(True)
        self.log.info(
            "ready: name server {name_server}, broker {broker}, store in {store}\n"
            "next, in another terminal (Ctrl-C in this one stops):\n"
            "{rmqadmin} clusterList -n {name_server}\n"
            "{rmqadmin} sendMessage -n {name_server} -t Orders -p hello\n"
            "{rmqadmin} consumeMessage -n {name_server} -t Orders",
            rmqadmin=os.path.join(os.path.dirname(sys.argv[0]), "rmqadmin") + self._tls_option,
            name_server=self.name_server.local_address,
            broker=broker.addresses.broker,
            store=self.broker.store_config.store_path_root_dir,
        )


def makeService(options: Options) -> service.Service:
    """Returns the service that `options` describe."""
    reactor = server_reactor()
    prepare_process(reactor)
    server = StandaloneService(reactor, options.loaded, options.proxy, options.start_file)
    monitored = with_monitoring(reactor, options.loaded, server)
    return with_start_report(options, monitored, lambda: server.broker.started)
