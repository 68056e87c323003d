"""What ties a slave to its master beside the log: who the master is, and its tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.cluster.membership import Master
from rocketmq_tw.broker.interfaces import Arrived, IMessageStore
from rocketmq_tw.broker.replicas.metadata import SlaveMetadata
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.broker.writing.dispatcher import Dispatcher
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.wire.bodies.stats import HARuntimeInfo
from rocketmq_tw.wire.errors import RequestError

#: Seconds after which a slave that met a message of a queue that its topics lack asks its master.
NEW_QUEUE_SECONDS = 0.2

log = Logger()


class Follower:
    """Copies the tables of the master at `address`, or whom `learned` names. By itself it is a
    follower in a DLedger group, whose log the group copies."""

    def __init__(
        self,
        reactor: Any,
        dispatcher: Dispatcher,
        store: IMessageStore,
        topics: TopicTable,
        metadata: SlaveMetadata,
        address: str = "",
        *,
        own_address: str = "",
    ) -> None:
        self._reactor = reactor
        self._store = store
        self._topics = topics
        self._metadata = metadata
        self._copying = DeferredLock()
        #: Queues that were asked about since the topics had `_asked_version`.
        self._asked: set[tuple[str, int]] = set()
        self._asked_version = topics.data_version
        self._soon: IDelayedCall | None = None
        self._stopped = False
        self._own_address = own_address
        self._master = Master(address, "")
        self._unsubscribe = [
            dispatcher.on_dispatched(metadata.log_grew),
            store.on_arrival(self.arrived),
        ]

    def start(self) -> None:
        """Follows the master that is known, where one is."""

    def search(self) -> Deferred[None]:
        """Asks the master where its log can be had, where only it can tell."""
        return succeed(None)

    def learned(self, master: Master) -> None:
        """A name server says who the master is."""
        address = master.address
        if self._stopped or not address or address in (self._own_address, self._master.address):
            # It may not have heard yet that this broker is master no more.
            return
        log.info("the master is {address}", address=address)
        self._metadata.forget()
        self._master = self._master._replace(address=address)

    def forget_master(self) -> None:
        """Another broker is the master now; who, a name server will say."""
        self._metadata.forget()
        self._master = Master("", "")

    def keep_copying(self) -> Deferred[None]:
        """`copy`, from time to time; never fails."""
        return self.copy().addErrback(_not_copied)

    def copy(self) -> Deferred[None]:
        """Copies what only masters change."""
        if not self._master.address or not self.master_is_near:
            return succeed(None)
        return self._copying.run(self._metadata.copy, self._master.address)

    def arrived(self, runs: Sequence[Arrived]) -> None:
        """The store's arrival callback: where a topic or its number of queues is new to this slave,
        the topics are copied soon. Were it the master before, nobody would read what is in them."""
        if self._stopped:
            return
        for run in runs:
            config = self._topics.get(run.topic)
            if config is None or run.queue_id >= max(
                config.read_queue_nums, config.write_queue_nums
            ):
                self._ask_for(run.topic, run.queue_id)

    def _ask_for(self, topic: str, queue_id: int) -> None:
        """Once for each queue: the master may lack it as well."""
        if self._asked_version != self._topics.data_version:
            self._asked_version = self._topics.data_version
            self._asked.clear()
        if (topic, queue_id) in self._asked or self._metadata.is_unserved(topic):
            return
        self._asked.add((topic, queue_id))
        if self._soon is None:
            self._soon = self._reactor.callLater(NEW_QUEUE_SECONDS, self._copy_soon)

    def _copy_soon(self) -> None:
        self._soon = None
        self.keep_copying()

    @property
    def master_is_near(self) -> bool:
        """Whether a client that this broker cannot serve will find the master."""
        return bool(self._master.address)

    def runtime_info(self) -> HARuntimeInfo:
        """What 5.x's request for the state of replication tells."""
        return HARuntimeInfo()

    def stop(self) -> Deferred[Any]:
        """Follows nobody any more; fires once all is closed."""
        self._stopped = True
        self._metadata.forget()
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        return succeed(None)


def _not_copied(failure: Failure) -> None:
    if failure.check(RemotingError, RequestError) is None:
        log.failure("copying from the master", failure)
    else:
        # A master that is gone or busy.
        log.warn("not all is copied from the master: {why}", why=failure.getErrorMessage())
