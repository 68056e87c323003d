"""Requests about the broker as a whole: 25 and 26 change and show its configuration, 28 shows its
runtime info; 306, 316 and 329 clean queues and files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.tables.topics.requests import REMOVED_AT_ONCE
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.broker.writing.cleaning import Cleaning
from rocketmq_tw.interpreter import python_version
from rocketmq_tw.net.changes import listed, who
from rocketmq_tw.net.growing_answers import GrowingAnswers
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.net.live_config import BROKER_RULES, LiveConfig
from rocketmq_tw.runtime.slices import every
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.wire.bodies.base import DataVersion, encode_body
from rocketmq_tw.wire.bodies.stats import KVTable
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import VERSION_5_3_3, RemotingCommand
from rocketmq_tw.wire.headers.broker import GetBrokerConfigResponseHeader

log = Logger()

#: Stock 4.9's exportConfigs fails without this key of brokers that had filter servers.
_OLD_KEYS = {"filterServerNums": "0"}
#: Stock's clients parse these; the thread pools that they are about do not exist here.
_IDLE = dict.fromkeys(
    (
        "sendThreadPoolQueueSize",
        "pullThreadPoolQueueSize",
        "litePullThreadPoolQueueSize",
        "queryThreadPoolQueueSize",
        "ackThreadPoolQueueSize",
        "EndTransactionQueueSize",
        "sendThreadPoolQueueHeadWaitTimeMills",
        "pullThreadPoolQueueHeadWaitTimeMills",
        "queryThreadPoolQueueHeadWaitTimeMills",
        "litePullThreadPoolQueueHeadWaitTimeMills",
        "ackThreadPoolQueueHeadWaitTimeMills",
        "pageCacheLockTimeMills",
    ),
    "0",
)
#: What stock's pools hold at most by default; monitoring divides by these.
_CAPACITIES = {
    "sendThreadPoolQueueCapacity": "10000",
    "pullThreadPoolQueueCapacity": "100000",
    "litePullThreadPoolQueueCapacity": "100000",
    "queryThreadPoolQueueCapacity": "20000",
    "ackThreadPoolQueueCapacity": "100000",
    "EndTransactionThreadPoolQueueCapacity": "100000",
    # Without a pool of buffers there are always enough of them.
    "remainTransientStoreBufferNumbs": "2147483647",
}


class AdminRequests:
    """Shows and changes the broker's configuration, shows its state, and cleans its files."""

    def __init__(
        self,
        host: Host,
        store: IMessageStore,
        cleaning: Cleaning,
        topics: TopicTable,
        boot_timestamp: int,
        shown: Callable[[], Mapping[str, str]],
        shown_keys: Callable[[], Mapping[str, str]],
        growing: GrowingAnswers,
    ) -> None:
        """`boot_timestamp` is in milliseconds since 1970; `shown` tells what the parts show of
        themselves, `shown_keys` the keys whose value now is another than the configured one."""
        self._host = host
        others = (host.store_config, host.net_config, *host.other_configs)
        self._live_config = LiveConfig(host.config, others, BROKER_RULES, host.keep_config)
        self._store = store
        self._cleaning = cleaning
        self._topics = topics
        self._boot_timestamp = boot_timestamp
        self._python = python_version()
        self._shown = shown
        self._shown_keys = shown_keys
        self._growing = growing

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
            RequestCode.GET_BROKER_CONFIG: self.get_config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_queues,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_topics,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.clean_log,
        }

    def update_config(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Answers 25: changes keys, in the broker's file too; fails as `LiveConfig.update` does."""
        updated = self._live_config.update(request.body, peer)
        return updated.addCallback(lambda remark: request.response(remark=remark or None))

    def get_config(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 26: every key but secrets as .properties text, with its value now."""
        version = encode_body(DataVersion(timestamp=self._boot_timestamp)).decode()
        return request.response(
            header=GetBrokerConfigResponseHeader(version=version),
            body=self._live_config.text(_OLD_KEYS | dict(self._shown_keys())).encode(),
        )

    def runtime_info(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 28: how the broker is doing, as names and values."""
        table = {
            **_IDLE,
            **_CAPACITIES,
            "brokerVersionDesc": "V5_3_3",
            "brokerVersion": str(VERSION_5_3_3),
            "pythonVersion": self._python,
            "startAcceptSendRequestTimeStamp": str(
                self._host.config.start_accept_send_request_time_stamp
            ),
            **self._shown(),
        }
        return request.response(body=encode_body(KVTable(table=table)))

    def clean_queues(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 306: changes nothing, as units of a queue are removed with the log they point
        into."""
        log.info(
            "{peer} wants the consume queues cleaned: their units go with the log", peer=who(peer)
        )
        return request.response()

    def clean_topics(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 316: removes the queues of topics that the broker does not have any more."""
        unused: list[str] = []

        def steps() -> Iterator[None]:
            topics = self._topics.all()
            for number, topic in enumerate(self._store.queue_topics()):
                if topic not in topics and self._store.queue_ids(topic):
                    unused.append(topic)
                if every(number):
                    yield
            for start in range(0, len(unused), REMOVED_AT_ONCE):
                if start:
                    yield
                # A send may have made one meanwhile.
                some = unused[start : start + REMOVED_AT_ONCE]
                self._store.remove_topics([topic for topic in some if topic not in topics])

        def answer() -> RemotingCommand:
            log.info(
                "{peer} had the queues of topics removed that are gone: {topics}",
                peer=who(peer),
                topics=listed(unused, len(unused)),
            )
            return request.response()

        return self._growing.after(steps(), answer)

    def clean_log(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Answers 329: removes files older than fileReservedTime, whatever the hour."""

        def answer(removed: int) -> RemotingCommand:
            log.info(
                "{peer} had {n} expired files of the commit log removed", peer=who(peer), n=removed
            )
            return request.response()

        return self._cleaning.run(at_any_hour=True).addCallback(answer)
