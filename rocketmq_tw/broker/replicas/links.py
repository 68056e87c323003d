"""A broker's part in its group of replicas: a master serves slaves, a slave follows its master."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred, DeferredLock, maybeDeferred, succeed
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IDelayedCall, IStreamClientEndpoint
from twisted.logger import Logger

from rocketmq_tw.broker.cluster.membership import Master
from rocketmq_tw.broker.interfaces import Arrived, IMessageStore
from rocketmq_tw.broker.replicas.kinship import check_kinship
from rocketmq_tw.broker.replicas.master_calls import MasterCalls
from rocketmq_tw.broker.replicas.metadata import SlaveMetadata
from rocketmq_tw.broker.replicas.replicated_log import StoreLog
from rocketmq_tw.broker.tables.topics import TopicTable
from rocketmq_tw.broker.writing.commit import Commit
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.config.properties import ConfigError
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.net.address import join_address, split_address
from rocketmq_tw.replication.client import HAClient
from rocketmq_tw.replication.service import HAService, HASettings
from rocketmq_tw.wire.bodies.stats import HAClientInfo, HARuntimeInfo

CONNECT_TIMEOUT = 5.0
#: Seconds after which a slave that met a message of an unknown topic asks its master for topics.
NEW_TOPIC_SECONDS = 0.2

#: How a host and port are reached.
EndpointFor = Callable[[str, int], IStreamClientEndpoint]

log = Logger()


def check_role(config: BrokerConfig, store_config: MessageStoreConfig) -> None:
    """Raises `ConfigError` where brokerRole and brokerId do not fit. (Stock makes a master's id 0
    whatever the file says.)"""
    role, broker_id = store_config.broker_role, config.broker_id
    if store_config.is_slave and broker_id <= 0:
        raise ConfigError(f"brokerRole=SLAVE with brokerId={broker_id}: give a slave 1 or more")
    if not store_config.is_slave and broker_id != 0:
        raise ConfigError(
            f"brokerRole={role} with brokerId={broker_id}: a master has brokerId=0, or set"
            " brokerRole=SLAVE"
        )


def ha_settings(config: MessageStoreConfig) -> HASettings:
    """The HA keys as the links take them."""
    limit = config.max_ha_transfer_byte_in_second if config.ha_flow_control_enable else None
    return HASettings(
        file_size=config.mapped_file_size_commit_log,
        batch_size=config.ha_transfer_batch_size,
        heartbeat_ms=config.ha_send_heartbeat_interval,
        housekeeping_ms=config.ha_housekeeping_interval,
        bytes_per_second=limit,
        max_gap=config.max_gap,
        slave_timeout_ms=config.slave_timeout,
        in_sync_replicas=config.in_sync_replicas,
        min_in_sync_replicas=config.min_in_sync_replicas,
        automatic=config.enable_auto_in_sync_replicas,
    )


class Replicas(Protocol):
    """What the broker asks of either part."""

    def listen(self, port: int) -> int:
        """Listens for slaves where this part does; `port` is the broker's. Returns the HA port
        to announce. Raises `OSError` where it is taken."""
        ...

    def learned(self, master: Master) -> None:
        """A name server says who the master is."""
        ...

    def copy(self) -> Deferred[None]:
        """Copies what only masters change, from time to time."""
        ...

    def master_is_near(self) -> bool:
        """Whether a client that this broker cannot serve will find the master."""
        ...

    def runtime_info(self) -> HARuntimeInfo:
        """What request 907 answers."""
        ...

    def stop(self) -> Deferred[Any]:
        """Closes all links; fires once they are closed."""
        ...


class MasterPart:
    """Listens on the HA port and pushes the log to every slave that connects."""

    def __init__(
        self,
        reactor: Any,
        store_config: MessageStoreConfig,
        net_config: NettyServerConfig,
        replicated: StoreLog,
        commit: Commit,
        on_flushed: Callable[[Callable[[], None]], None],
    ) -> None:
        """`on_flushed` adds a listener to the rounds that make the log durable."""
        self._reactor = reactor
        self._config = store_config
        self._net_config = net_config
        self._listening: Any = None
        self.service = HAService(replicated, ha_settings(store_config), reactor)
        commit.on_written(self.service.log_grew)
        on_flushed(self.service.log_grew)
        if store_config.broker_role == "SYNC_MASTER":
            commit.replicator = self.service

    def listen(self, port: int) -> int:
        wanted = self._config.ha_listen_port or port + 1
        try:
            self._listening = self._listen_on(wanted)
        except CannotListenError as error:
            if self._config.ha_listen_port or self._net_config.listen_port:
                raise OSError(
                    f"{self._net_config.bind_address}:{wanted} cannot be listened on for slaves"
                    f" ({error.socketError.strerror}): change haListenPort"
                ) from error
            # A port of the kernel's choice may have a neighbour; name servers tell this one too.
            self._listening = self._listen_on(0)
        return int(self._listening.getHost().port)

    def _listen_on(self, port: int) -> Any:
        return self._reactor.listenTCP(port, self.service, interface=self._net_config.bind_address)

    def learned(self, master: Master) -> None:
        """A master needs no other."""

    def copy(self) -> Deferred[None]:
        return succeed(None)

    def master_is_near(self) -> bool:
        return True

    def runtime_info(self) -> HARuntimeInfo:
        return self.service.runtime_info()

    def stop(self) -> Deferred[Any]:
        if self._listening is None:
            return succeed(None)
        listening, self._listening = self._listening, None
        closed = maybeDeferred(listening.stopListening)
        return self.service.stop().addCallback(lambda _: closed)


class SlavePart:
    """Follows the master that haMasterAddress names, or the name servers."""

    def __init__(
        self,
        reactor: Any,
        store_config: MessageStoreConfig,
        replicated: StoreLog,
        commit: Commit,
        store: IMessageStore,
        topics: TopicTable,
        calls: MasterCalls,
        metadata: SlaveMetadata,
        now_ms: Callable[[], int],
        endpoint_for: EndpointFor | None = None,
    ) -> None:
        self._endpoint_for = endpoint_for or self._tcp
        self._reactor = reactor
        self._config = store_config
        self._commit = commit
        self._store = store
        self._calls = calls
        self._metadata = metadata
        self._topics = topics
        self._now_ms = now_ms
        self._copying = DeferredLock()
        self._soon: IDelayedCall | None = None
        self._stopped = False
        self._master = Master("", store_config.ha_master_address)
        self.client = HAClient(replicated, ha_settings(store_config), reactor, self._agree)
        commit.on_dispatched(metadata.log_grew)
        store.on_arrival(self.arrived)

    def listen(self, port: int) -> int:
        if self._config.ha_master_address:
            self._follow(self._config.ha_master_address)
        return self._config.ha_listen_port or port + 1

    def learned(self, master: Master) -> None:
        if self._stopped:
            return
        if master.address and master.address != self._master.address:
            log.info("the master is {address}", address=master.address)
            self._metadata.forget()
            self._master = self._master._replace(address=master.address)
        if master.ha_address and not self._config.ha_master_address:
            self._master = self._master._replace(ha_address=master.ha_address)
            self._follow(master.ha_address)

    def copy(self) -> Deferred[None]:
        if not self._master.address or not self.client.linked:
            return succeed(None)
        return self._copying.run(self._metadata.copy, self._master.address)

    def arrived(self, runs: Sequence[Arrived]) -> None:
        """The store's arrival callback: a topic that is new to this slave is copied soon."""
        if self._soon is not None or self._stopped:
            return
        if any(self._topics.get(run.topic) is None for run in runs):
            self._soon = self._reactor.callLater(NEW_TOPIC_SECONDS, self._copy_soon)

    def _copy_soon(self) -> None:
        self._soon = None
        self.copy().addErrback(lambda failure: log.failure("copying a new topic", failure))

    def master_is_near(self) -> bool:
        return self.client.linked

    def runtime_info(self) -> HARuntimeInfo:
        connection, now_ms = self.client.connection, self.client.now_ms()
        info = HAClientInfo(
            master_addr=self.client.master_address or None, max_offset=self._store.end_offset
        )
        if connection is not None and connection.link is not None:
            link = connection.link
            info.transferred_byte_in_second = link.flow.bytes_per_second(now_ms)
            time_of_day = self._now_ms()
            info.last_read_timestamp = time_of_day - (now_ms - link.last_read)
            info.last_write_timestamp = time_of_day - (now_ms - link.last_write)
        return HARuntimeInfo(ha_client_runtime_info=info)

    def stop(self) -> Deferred[Any]:
        self._stopped = True
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        return self.client.stop()

    def _follow(self, address: str) -> None:
        try:
            host, port = split_address(address)
        except ValueError as error:
            log.error("the master's HA address: {error}", error=error)
            return
        self.client.follow(join_address(host, port), self._endpoint_for(host, port))

    def _tcp(self, host: str, port: int) -> IStreamClientEndpoint:
        return TCP4ClientEndpoint(self._reactor, host, port, timeout=CONNECT_TIMEOUT)

    def _agree(self) -> Deferred[None]:
        if not self._master.address:
            log.warn(
                "no name server has told the master's address: whether its log is the same as"
                " this one's is not checked, and topics, groups and offsets are not copied"
            )
            return succeed(None)
        # The newest message is what is compared.
        self._commit.dispatch_now()
        return check_kinship(
            self._calls,
            self._master.address,
            self._store,
            self._config.mapped_file_size_commit_log,
        )
