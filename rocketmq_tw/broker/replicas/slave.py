"""A slave's side of its group: it follows its master and copies its log and its tables.

Rules: stock's `SlaveSynchronize`; docs/replication.md, "What is promised" and "Slaves that do not
link".
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, inlineCallbacks, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.cluster.name_server_links import Master
from rocketmq_tw.broker.replicas.copied_tables import CopiedTables
from rocketmq_tw.broker.replicas.log_matching import LogMatching
from rocketmq_tw.broker.replicas.stop_notice import StopWatch
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.net.address import join_address, split_address
from rocketmq_tw.net.client import host_endpoints
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.replication.auto_switch.client import RecordComparison
from rocketmq_tw.replication.links.client import HAClient
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.runtime.fairness import Serial
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.store.interface import Arrived
from rocketmq_tw.wire.bodies.stats import HAClientInfo, HARuntimeInfo
from rocketmq_tw.wire.errors import RequestError

CONNECT_TIMEOUT = 5.0
#: Seconds after which a slave that met a message of a queue that its topics lack asks its master.
NEW_QUEUE_SECONDS = 0.2

log = Logger()


class SlaveTools(NamedTuple):
    """What a slave works with while `scope`, the role's, lasts; `may_copy` says whether the
    master's tables may be copied now."""

    host: Host
    writing: Writing
    tables: CopiedTables
    scope: Scope
    may_copy: Callable[[], bool]


class TableCopier:
    """Copies the tables of the master at `address`, or of the one that name servers tell of. By
    itself it is a follower in a DLedger group, whose log the group copies."""

    def __init__(self, tools: SlaveTools, address: str = "", *, own_address: str = "") -> None:
        host, writing, tables, scope, may_copy = tools
        self._store = writing.store
        self._topics = tables.topics
        self._tables = tables
        self._scope = scope
        self._own_address = own_address
        self._master = Master(address, "")
        self._copying = Serial()
        self._stop_watch = StopWatch(tables.calls.until_stop, self.keep_copying, scope)
        self._may_copy = may_copy
        #: Queues that were asked about since the topics had `_asked_version`.
        self._asked: set[tuple[str, int]] = set()
        self._asked_version = self._topics.data_version
        self._copy_soon = Alarm(host.reactor, self.keep_copying)
        scope.on_end(tables.forget)
        scope.on_end(self._copy_soon.cancel)
        scope.on_end(writing.dispatcher.on_dispatched(tables.log_grew))
        scope.on_end(writing.store.on_arrival(self.arrived))

    @property
    def master(self) -> Master:
        """The master that this broker follows; empty addresses where it knows none."""
        return self._master

    @property
    def lacks_master(self) -> bool:
        """Whether neither anybody nor the configuration has named a master."""
        return not any(self._master)

    def start(self) -> None:
        """Follows the master that is known, where one is."""

    def search(self) -> Deferred[None]:
        """Asks the master where its log can be had, where only it can tell."""
        return succeed(None)

    def learned(self, master: Master) -> None:
        """Takes the master's addresses from a name server's answer."""
        address = master.address
        if self._scope.is_over or address in ("", self._own_address, self._master.address):
            # It may not have heard yet that this broker is master no more.
            return
        log.info("the master is {address}", address=address)
        self._tables.forget()
        self._master = self._master._replace(address=address)

    def forget_master(self) -> None:
        """Forgets the master, since another broker is it now; a name server will say which."""
        self._tables.forget()
        self._master = Master("", "")

    def forget_tables(self) -> None:
        """Ends a copy of the master's tables that is under way; see `CopiedTables.forget`."""
        self._tables.forget()

    def keep_copying(self) -> Deferred[None]:
        """Copies as `copy` does, from time to time; never fails."""
        return self.copy().addErrback(_not_copied)

    def copy(self) -> Deferred[None]:
        """Copies the tables that only masters change; see `CopiedTables.copy`."""
        address = self._master.address
        if not address or not self.copies_master or not self._may_copy():
            return succeed(None)

        def copied(result: Failure | None) -> Failure | None:
            if address == self._master.address:
                self._stop_watch.copied(address)
            return result

        return self._copying.run(self._tables.copy, address).addBoth(copied)

    def arrived(self, runs: Sequence[Arrived]) -> None:
        """The store's arrival callback: where a topic or its number of queues is new to this slave,
        the topics are copied soon: were it the master before, no client would find these messages.
        """
        for run in runs:
            config = self._topics.get(run.topic)
            if config is None or run.queue_id >= max(
                config.read_queue_nums, config.write_queue_nums
            ):
                self._ask_for(run.topic, run.queue_id)

    def _ask_for(self, topic: str, queue_id: int) -> None:
        """Asks once for each queue, since the master may lack it as well."""
        if self._asked_version != self._topics.data_version:
            self._asked_version = self._topics.data_version
            self._asked.clear()
        if (topic, queue_id) in self._asked or self._tables.is_unserved(topic):
            return
        self._asked.add((topic, queue_id))
        self._copy_soon.set_if_unset(NEW_QUEUE_SECONDS)

    @property
    def copies_master(self) -> bool:
        """Whether this broker copies what its master has now."""
        return bool(self._master.address)

    @property
    def clients_find_master(self) -> bool:
        """Whether a client that this broker cannot serve will find the master."""
        return self.copies_master

    def hears_master(self, within_ms: int) -> bool:
        """Returns whether the master has said something over its link in the last `within_ms`."""
        return False

    def close_silent_link(self) -> None:
        """Closes the link with a master that says nothing; it is made anew by and by."""

    def runtime_info(self) -> HARuntimeInfo:
        """Returns what request 907 tells of the link."""
        return HARuntimeInfo()

    def stop(self) -> Deferred[None]:
        """Fires once all is closed; the scope is over."""
        return succeed(None)


class NoSlave:
    """In place of a `TableCopier` on a broker that is no slave: copies nothing, and follows
    nobody."""

    master = Master("", "")
    lacks_master = False
    copies_master = False
    clients_find_master = True

    def search(self) -> Deferred[None]:
        """See `TableCopier`."""
        return succeed(None)

    def learned(self, master: Master) -> None:
        """See `TableCopier`."""

    def forget_master(self) -> None:
        """See `TableCopier`."""

    def forget_tables(self) -> None:
        """See `TableCopier`."""

    def keep_copying(self) -> Deferred[None]:
        """See `TableCopier`."""
        return succeed(None)

    def hears_master(self, within_ms: int) -> bool:
        """See `TableCopier`."""
        return False

    def close_silent_link(self) -> None:
        """See `TableCopier`."""

    def runtime_info(self) -> HARuntimeInfo:
        """See `TableCopier`."""
        return HARuntimeInfo()

    def stop(self) -> Deferred[None]:
        """See `TableCopier`."""
        return succeed(None)


#: Makes a slave's end of links, which asks the slave about the master's log.
MakeClient = Callable[["MasterFollower"], HAClient[Any]]


class MasterFollower(TableCopier):
    """Follows the master that haMasterAddress names, or the name servers; with `address`, the
    controller's, only the broker there."""

    def __init__(self, tools: SlaveTools, make_client: MakeClient, address: str = "") -> None:
        super().__init__(tools, address)
        host, writing = tools.host, tools.writing
        config = host.store_config
        self._host = host
        self._truncation = writing.truncation
        by_tcp = host_endpoints(host.reactor, CONNECT_TIMEOUT)
        self._endpoint_for = host.ha_endpoint_for or by_tcp
        self._matching = LogMatching(
            tools.tables.calls, writing.store, config.mapped_file_size_commit_log, host.in_slices
        )
        #: haMasterAddress, where it counts.
        self._configured = "" if address else config.ha_master_address
        self._is_told = bool(address)
        self._misses_master = False
        self._master = Master(address, self._configured)
        self.client = make_client(self)

    def start(self) -> None:
        """Follows the master that is known, where one is."""
        if self._is_told:
            self.search()
        elif self._configured:
            self._follow(self._configured)

    def search(self) -> Deferred[None]:
        """Asks the master that the controller named where its log can be had."""
        if not self._is_told or self._scope.is_over or self.client.linked:
            return succeed(None)

        def answered(master: Master) -> None:
            if master.ha_address and not self._scope.is_over:
                self._follow(master.ha_address)

        def failed(failure: Failure) -> None:
            if not self._scope.is_over:
                self.client.note(failure.getErrorMessage())

        asked = self._tables.calls.master(self._master.address)
        return asked.addCallbacks(answered, failed)

    def learned(self, master: Master) -> None:
        """Takes the master's addresses from a name server's answer."""
        if self._scope.is_over or self._is_told:
            return
        if not (master.address or self._master.address or self._configured or self._misses_master):
            self._misses_master = True
            log.warn(
                "no name server knows a master of this broker name: nothing is copied until one is"
                " registered there"
            )
        super().learned(master)
        if master.ha_address and not self._configured:
            self._master = self._master._replace(ha_address=master.ha_address)
            self._follow(master.ha_address)

    @property
    def copies_master(self) -> bool:
        """See `TableCopier`."""
        return self.client.linked

    def hears_master(self, within_ms: int) -> bool:
        """See `TableCopier`."""
        connection = self.client.connection
        link = None if connection is None or not self.client.linked else connection.link
        return link is not None and self.client.now_ms() - link.last_read < within_ms

    def close_silent_link(self) -> None:
        """See `TableCopier`."""
        if self.client.connection is not None:
            self.client.connection.close("the master is silent, and this broker acts for it")

    def runtime_info(self) -> HARuntimeInfo:
        """Returns what request 907 tells of the link."""
        connection, now_ms = self.client.connection, self.client.now_ms()
        info = HAClientInfo(
            master_addr=self.client.master_address or None, max_offset=self._store.end_offset
        )
        if connection is not None and connection.link is not None:
            link = connection.link
            info.transferred_byte_in_second = link.flow.bytes_per_second(now_ms)
            time_of_day = self._host.now_ms()
            info.last_read_timestamp = time_of_day - (now_ms - link.last_read)
            info.last_write_timestamp = time_of_day - (now_ms - link.last_write)
        return HARuntimeInfo(ha_client_runtime_info=info)

    def stop(self) -> Deferred[None]:
        """Fires once the link is closed; the scope is over."""
        return self.client.stop()

    def _follow(self, address: str) -> None:
        try:
            host, port = split_address(address)
        except ValueError as error:
            log.error("the master's HA address cannot be used: {error}", error=error)
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
        yield self._matching.check(self._master.address)

    def compare_before(self, point: int) -> Deferred[RecordComparison]:
        """Compares the newest record in front of `point` with the master's; fails with a
        `LinkError` that says what to do where the master cannot go on from there."""
        return self._matching.compare_before(self._master.address, point)


def _not_copied(failure: Failure) -> None:
    if failure.check(RemotingError, RequestError) is None:
        log.failure("copying topics, groups and offsets from the master failed", failure)
    else:
        # A master that is gone or busy.
        log.warn("not all is copied from the master: {why}", why=failure.getErrorMessage())
