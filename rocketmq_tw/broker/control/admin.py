"""The broker itself: 25 changes its configuration, 26 shows it, 28 says how it is doing, 315 how
much goes through a topic or a group; 306, 316 and 329 remove what nobody needs.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from rocketmq_tw.broker.control.live_config import LiveConfig
from rocketmq_tw.broker.interfaces import IMessageStore
from rocketmq_tw.broker.stats.statistics import Statistics
from rocketmq_tw.broker.stats.traffic import Traffic
from rocketmq_tw.broker.tables.topics import TopicTable
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.files.interface import DiskUsage
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.data_version import DataVersion
from rocketmq_tw.wire.bodies.kv import KVTable
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import VERSION_5_3_3, RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.broker_admin import (
    GetBrokerConfigResponseHeader,
    ViewBrokerStatsDataRequestHeader,
)

log = Logger()

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
        "timerReadBehind",
        "timerOffsetBehind",
        "timerCongestNum",
        "remainTransientStoreBufferNumbs",
    ),
    "0",
)


class AdminRequests:
    """`disk_usage` tells of the store's file system; `permission_changed` announces a changed
    brokerPermission to the name servers."""

    def __init__(
        self,
        config: BrokerConfig,
        live_config: LiveConfig,
        store: IMessageStore,
        statistics: Statistics,
        traffic: Traffic,
        topics: TopicTable,
        now_ms: Callable[[], int],
        disk_usage: Callable[[], DiskUsage],
        permission_changed: Callable[[], None],
    ) -> None:
        self._config = config
        self._live_config = live_config
        self._store = store
        self._statistics = statistics
        self._traffic = traffic
        self._topics = topics
        self._now_ms = now_ms
        self._disk_usage = disk_usage
        self._permission_changed = permission_changed

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
            RequestCode.GET_BROKER_CONFIG: self.get_config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
            RequestCode.VIEW_BROKER_STATS_DATA: self.traffic,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_queues,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_topics,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.clean_log,
        }

    def update_config(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
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
        version = encode_body(DataVersion(timestamp=self._statistics.boot_timestamp)).decode()
        return request.response(
            header=GetBrokerConfigResponseHeader(version=version),
            body=self._live_config.text().encode(),
        )

    def runtime_info(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        statistics, store = self._statistics, self._store
        disk = self._disk_usage()
        ratio = f"{disk.used / disk.total:.4f}" if disk.total else "-1"
        table = _IDLE | {
            "brokerActive": "true",
            "brokerVersionDesc": "V5_3_3",
            "brokerVersion": str(VERSION_5_3_3),
            "bootTimestamp": str(statistics.boot_timestamp),
            "runtime": statistics.uptime(),
            "putTps": str(statistics.sent),
            "getTransferredTps": str(statistics.pulled),
            # 4.9's spelling; its clients fail without it.
            "getTransferedTps": str(statistics.pulled),
            "getFoundTps": str(statistics.pulled),
            "getTotalTps": str(statistics.pulled),
            "putMessageTimesTotal": str(statistics.sent.total),
            "msgPutTotalYesterdayMorning": str(statistics.sent_by_day.yesterday),
            "msgPutTotalTodayMorning": str(statistics.sent_by_day.today),
            "msgPutTotalTodayNow": str(statistics.sent.total),
            "msgGetTotalYesterdayMorning": str(statistics.pulled_by_day.yesterday),
            "msgGetTotalTodayMorning": str(statistics.pulled_by_day.today),
            "msgGetTotalTodayNow": str(statistics.pulled.total),
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
            "commitLogDiskRatio": ratio,
            "consumeQueueDiskRatio": ratio,
            "commitLogDirCapacity": (
                f"Total : {_human(disk.total)}, Free : {_human(disk.total - disk.used)}."
            ),
            "commitLogMinOffset": str(store.min_physical_offset),
            "commitLogMaxOffset": str(store.end_offset),
            "remainHowManyDataToFlush": _human(store.end_offset - store.flushed_offset),
            "dispatchBehindBytes": "0",
            "earliestMessageTimeStamp": str(self._earliest()),
            "startAcceptSendRequestTimeStamp": str(
                self._config.start_accept_send_request_time_stamp
            ),
        }
        return request.response(body=encode_body(KVTable(table=table)))

    def traffic(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        header = request.header(ViewBrokerStatsDataRequestHeader)
        found = self._traffic.of(header.stats_name, header.stats_key)
        if found is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"nothing is counted as {header.stats_name} of {header.stats_key}",
            )
        return request.response(body=encode_body(found))

    def clean_queues(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Units go with the log that they point into, so none is left over."""
        log.info("{peer} had queues cleaned: they always are", peer=peer.address)
        return request.response()

    def clean_topics(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Removes the queues of topics that the broker does not have any more."""
        unused = sorted(self._store.queues().keys() - self._topics.all().keys())
        self._store.remove_topics(unused)
        log.info("{peer} had the queues of {topics} removed", peer=peer.address, topics=unused)
        return request.response()

    def clean_log(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Removes what is older than fileReservedTime, whatever the hour."""
        removed = self._store.clean(self._now_ms(), at_any_hour=True)
        log.info("{peer} had expired files removed: {n}", peer=peer.address, n=removed)
        return request.response()

    def _earliest(self) -> int:
        first = self._store.message_at(self._store.min_physical_offset)
        return -1 if first is None else first.store_timestamp


def _human(size: int) -> str:
    """Bytes with a binary unit."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.1f} {unit}" if unit != "B" else f"{size} B"
        amount /= 1024
    return f"{amount:.1f} TiB"
