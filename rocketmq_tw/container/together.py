"""Brokers in the container's own process: they share its server, client and thread pool."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import attrs
from twisted.internet.defer import Deferred, inlineCallbacks, maybeDeferred, succeed
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from zope.interface import implementer

from rocketmq_tw.broker.assembly.host import Surroundings
from rocketmq_tw.broker.broker import Broker
from rocketmq_tw.config.base import Config
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.config.properties import ConfigError
from rocketmq_tw.container.interface import (
    BrokerIdentity,
    BrokerSetup,
    IBrokerHosting,
    IHostedBroker,
    StartFailed,
)
from rocketmq_tw.container.neighbours import NearbyBrokers
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.net.interfaces import (
    ConnectionBuilder,
    IIdentified,
    IListener,
    IRemotingClient,
    IRemotingServer,
    RequestCheck,
)
from rocketmq_tw.net.live_config import in_config_file, where_possible
from rocketmq_tw.replication.auto_switch.epoch_file import EpochFileError
from rocketmq_tw.replication.links.members import SlaveAddressCheck
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.store.errors import StoreError
from rocketmq_tw.structs import msgspec

#: Says why a broker did not start and what to change in its file.
Describe = Callable[[BaseException, BrokerSetup], str]

log = Logger()


@attrs.frozen(kw_only=True)
class SharedMachine:
    """What brokers of one process share, and do not close."""

    reactor: Any
    files: IFiles
    client: IRemotingClient
    server: IRemotingServer
    net_config: NettyServerConfig
    #: Shown to administrators beside each broker's own.
    other_configs: Sequence[Config] = ()
    in_thread: InThread
    #: Lets jobs for so many brokers run in threads at once.
    allow_brokers: Callable[[int], object] = lambda brokers: None
    describe: Describe
    #: Raises `CannotListenError` where a broker's port is taken, before its store is read.
    check_ports: Callable[[BrokerSetup], object] = lambda setup: None


@implementer(IRemotingServer)
class BrokerServer:
    """The shared server as one broker has it: listeners of that server, but slaves from the
    networks of the broker's own `haAddresses`, or else of the container's `clusterAddresses`."""

    def __init__(self, server: IRemotingServer, ha_addresses: str, cluster: str) -> None:
        self._server = server
        self._check = SlaveAddressCheck(ha_addresses, cluster)

    def listener(
        self,
        *,
        before_request: Sequence[RequestCheck] = (),
        http2: ConnectionBuilder | None = None,
    ) -> IListener:
        return self._server.listener(before_request=before_request, http2=http2)

    def check(self, connection: IIdentified) -> Deferred[None] | None:
        self._check(connection)
        return self._server.check(connection)

    def stop(self, timeout: float | None = None) -> Deferred[None]:
        """Stops nothing: the server is the container's."""
        return succeed(None)


@implementer(IHostedBroker)
class InnerBroker:
    """A broker in this process."""

    def __init__(self, setup: BrokerSetup, broker: Broker, stopped: Callable[[], None]) -> None:
        self.setup = setup
        self.broker = broker
        self._stopped = stopped

    def stop(self) -> Deferred[None]:
        self._stopped()
        return self.broker.stop()


@implementer(IBrokerHosting)
class BrokersTogether:
    """Starts brokers in this process."""

    def __init__(self, machine: SharedMachine) -> None:
        self._machine = machine
        #: Those that serve, in the order in which they came.
        self.brokers: list[Broker] = []
        self.neighbours = NearbyBrokers(machine.reactor, self.brokers)

    @inlineCallbacks
    def start(self, setup: BrokerSetup) -> Generator[Any, Any, IHostedBroker]:
        broker = None
        try:
            self._machine.check_ports(setup)
            broker = self._make(setup)
            self._machine.allow_brokers(len(self.brokers) + 1)
            yield broker.start()
        except Exception as error:
            expected = (CannotListenError, ConfigError, EpochFileError, StoreError, OSError)
            if not isinstance(error, expected):
                log.failure("starting the broker of {path} failed", path=setup.path)
            if broker is not None:
                # What it had opened by then is its own only.
                yield maybeDeferred(broker.stop).addErrback(self._stop_failed)
            raise StartFailed(self._machine.describe(error, setup)) from error
        self.brokers.append(broker)
        return InnerBroker(setup, broker, lambda: self.brokers.remove(broker))

    def give_up(self, identity: BrokerIdentity) -> None:
        """Does nothing: what hangs in this process is not ended without it."""

    def _make(self, setup: BrokerSetup) -> Broker:
        machine = self._machine
        return Broker(
            Surroundings(
                reactor=machine.reactor,
                config=setup.config,
                store_config=setup.store_config,
                net_config=msgspec.structs.replace(
                    machine.net_config, listen_port=setup.listen_port
                ),
                other_configs=machine.other_configs,
                files=machine.files,
                client=machine.client,
                server=BrokerServer(
                    machine.server,
                    setup.store_config.ha_addresses,
                    machine.net_config.cluster_addresses,
                ),
                in_thread=machine.in_thread,
                neighbours=self.neighbours,
                log_name=setup.identity.canonical_name,
                keep_config=where_possible(
                    in_config_file(machine.files, setup.path, machine.in_thread)
                ),
            )
        )

    def _stop_failed(self, failure: Any) -> None:
        # The reason is told already; this follows from it more often than not.
        log.debug("after a failed start: {why}", why=failure.getErrorMessage())
