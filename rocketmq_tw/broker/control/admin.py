"""The broker itself: 25 changes its configuration, 26 shows it, 28 says how it is doing;
306, 316 and 329 remove what nobody needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.broker.control.live_config import LiveConfig
from rocketmq_tw.broker.interfaces import IMessageStore
from rocketmq_tw.broker.tables.topics.requests import REMOVED_AT_ONCE
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.net.growing_answers import GrowingAnswers
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.runtime.slices import every
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.data_version import DataVersion
from rocketmq_tw.wire.bodies.kv import KVTable
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import VERSION_5_3_3, RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.broker_admin import GetBrokerConfigResponseHeader

log = Logger()

#: Of one change of the configuration; all keys together take a tenth of it.
MAX_CONFIG_BYTES = 64 * 1024

#: Stock's clients parse these; the pools and wheels that they are about do not exist here.
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
#: What stock's pools hold at most by default: who watches them divides by these.
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
    """Answers about the broker as a whole."""

    def __init__(
        self,
        config: BrokerConfig,
        live_config: LiveConfig,
        store: IMessageStore,
        topics: TopicTable,
        now_ms: Callable[[], int],
        boot_timestamp: int,
        shown: Callable[[], Mapping[str, str]],
        permission_changed: Callable[[], None],
        growing: GrowingAnswers,
    ) -> None:
        """`shown` tells what the parts show of themselves; `permission_changed` announces a changed
        brokerPermission to the name servers."""
        self._config = config
        self._live_config = live_config
        self._store = store
        self._topics = topics
        self._now_ms = now_ms
        self._boot_timestamp = boot_timestamp
        self._shown = shown
        self._permission_changed = permission_changed
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

    def update_config(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        if len(request.body) > MAX_CONFIG_BYTES:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"{len(request.body)} bytes of configuration: send at most {MAX_CONFIG_BYTES}",
            )
        changed = self._live_config.update(request.body)
        log.info(
            "{peer} changed the configuration: {changes}",
            peer=peer.address,
            changes=", ".join(f"{key}={value}" for key, value in changed.items()) or "nothing",
        )
        if "brokerPermission" in changed:
            self._permission_changed()
        return request.response()

    def get_config(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        version = encode_body(DataVersion(timestamp=self._boot_timestamp)).decode()
        return request.response(
            header=GetBrokerConfigResponseHeader(version=version),
            body=self._live_config.text().encode(),
        )

    def runtime_info(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        table = {
            **_IDLE,
            **_CAPACITIES,
            "brokerVersionDesc": "V5_3_3",
            "brokerVersion": str(VERSION_5_3_3),
            "startAcceptSendRequestTimeStamp": str(
                self._config.start_accept_send_request_time_stamp
            ),
            **self._shown(),
        }
        return request.response(body=encode_body(KVTable(table=table)))

    def clean_queues(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Units go with the log that they point into, so none is left over."""
        log.info("{peer} had queues cleaned: they always are", peer=peer.address)
        return request.response()

    def clean_topics(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Removes the queues of topics that the broker does not have any more."""
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
            log.info("{peer} had the queues of {topics} removed", peer=peer.address, topics=unused)
            return request.response()

        return self._growing.after(steps(), answer)

    def clean_log(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Removes what is older than fileReservedTime, whatever the hour."""
        removed = 0

        def steps() -> Iterator[None]:
            nonlocal removed
            for number in self._store.clean(self._now_ms(), at_any_hour=True):
                removed += number
                yield

        def answer() -> RemotingCommand:
            log.info("{peer} had expired files removed: {n}", peer=peer.address, n=removed)
            return request.response()

        return self._growing.after(steps(), answer)
