"""A slave's side of its group: it follows its master and copies the log and the tables."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.cluster.membership import Master
from rocketmq_tw.broker.interfaces import IMessageStore
from rocketmq_tw.broker.replicas.follower import Follower
from rocketmq_tw.broker.replicas.kinship import check_kinship, compare_before
from rocketmq_tw.broker.replicas.master_calls import MasterCalls
from rocketmq_tw.broker.replicas.metadata import SlaveMetadata
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.broker.writing.dispatcher import Dispatcher
from rocketmq_tw.broker.writing.truncation import Truncation
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.net.address import join_address, split_address
from rocketmq_tw.net.client import EndpointFor, host_endpoints
from rocketmq_tw.replication.auto_switch.interfaces import Comparison
from rocketmq_tw.replication.links.client import HAClient
from rocketmq_tw.wire.bodies.stats import HAClientInfo, HARuntimeInfo

CONNECT_TIMEOUT = 5.0

log = Logger()


#: Makes the slave's end of links, which asks the follower about the master's log.
MakeClient = Callable[["MasterFollower"], HAClient[Any]]


class MasterFollower(Follower):
    """Follows the master that haMasterAddress names, or the name servers; with `address`, the
    controller's, nobody but the broker there."""

    def __init__(
        self,
        reactor: Any,
        store_config: MessageStoreConfig,
        make_client: MakeClient,
        dispatcher: Dispatcher,
        truncation: Truncation,
        store: IMessageStore,
        topics: TopicTable,
        calls: MasterCalls,
        metadata: SlaveMetadata,
        now_ms: Callable[[], int],
        endpoint_for: EndpointFor | None = None,
        address: str = "",
    ) -> None:
        self._endpoint_for = endpoint_for or host_endpoints(reactor, CONNECT_TIMEOUT)
        super().__init__(reactor, dispatcher, store, topics, metadata)
        self._config = store_config
        self._truncation = truncation
        self._calls = calls
        self._now_ms = now_ms
        self._is_told = bool(address)
        self._master = Master(address, "" if address else store_config.ha_master_address)
        self.client = make_client(self)

    def start(self) -> None:
        """Follows the master that is known, where one is."""
        if self._is_told:
            self.search()
        elif self._config.ha_master_address:
            self._follow(self._config.ha_master_address)

    def search(self) -> Deferred[None]:
        """Asks the master that the controller named where its log can be had."""
        if not self._is_told or self._stopped or self.client.linked:
            return succeed(None)

        def answered(ha_address: str) -> None:
            if ha_address and not self._stopped:
                self._follow(ha_address)

        def failed(failure: Failure) -> None:
            if not self._stopped:
                self.client.note(failure.getErrorMessage())

        return self._calls.ha_address(self._master.address).addCallbacks(answered, failed)

    def learned(self, master: Master) -> None:
        """A name server says who the master is."""
        if self._stopped or self._is_told:
            return
        super().learned(master)
        if master.ha_address and not self._config.ha_master_address:
            self._master = self._master._replace(ha_address=master.ha_address)
            self._follow(master.ha_address)

    @property
    def master_is_near(self) -> bool:
        """Whether a client that this broker cannot serve will find the master."""
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
        """Follows nobody any more; fires once the link is closed."""
        super().stop()
        return self.client.stop()

    def _follow(self, address: str) -> None:
        try:
            host, port = split_address(address)
        except ValueError as error:
            log.error("the master's HA address: {error}", error=error)
            return
        address = join_address(host, port)
        self.client.follow(address, self._endpoint_for(address))

    @inlineCallbacks
    def agree(self) -> Generator[Deferred[Any], Any, None]:
        """Before each link: a record of which only a part came is cut off, since another master
        may have other bytes for the rest; then the logs are compared."""
        yield self._truncation.end_at_whole_record()
        if not self._master.address:
            log.warn(
                "no name server has told the master's address: whether its log is the same as"
                " this one's is not checked, and topics, groups and offsets are not copied"
            )
            return
        yield check_kinship(
            self._calls,
            self._master.address,
            self._store,
            self._config.mapped_file_size_commit_log,
            self._reactor,
        )

    def compare_before(self, point: int) -> Deferred[Comparison]:
        """Compares the newest record in front of `point` with the master's; fails with a
        `LinkError` that says what to do where the master cannot go on from there."""
        return compare_before(
            self._calls,
            self._master.address,
            self._store,
            self._config.mapped_file_size_commit_log,
            self._reactor,
            point,
        )
