"""The statistics, as a part of the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import Part, Periodic
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.stats.statistics import SAMPLE_SECONDS, Statistics
from rocketmq_tw.broker.stats.traffic import Traffic
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.message.names import LMQ_PREFIX
from rocketmq_tw.metrics.instruments import Metric
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.net.server_metrics import request_latency
from rocketmq_tw.store.interface import Arrived
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.broker import ViewBrokerStatsDataRequestHeader


class Stats(Part):
    """Counts the messages that come and go, and tells how many through a topic or group (315)."""

    def __init__(self, host: Host, writing: Writing) -> None:
        self._in_slices = host.in_slices
        self.statistics = Statistics(host.now_ms)
        self.traffic = Traffic(host.elapsed_ms, host.config.broker_cluster_name)
        self._request_latency = request_latency()
        host.listener.observe(self._request_latency.record)
        host.listener.observe_connections(self.traffic.connection)
        #: The clock of latencies, in seconds.
        self.seconds: Callable[[], float] = host.reactor.seconds
        light = host.store_config.enable_multi_dispatch
        writing.store.on_arrival(self._arrived_once if light else self._arrived)

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        return {RequestCode.VIEW_BROKER_STATS_DATA: self.view}

    def periodic(self) -> Iterable[Periodic]:
        yield Periodic("counting", SAMPLE_SECONDS, self._sample)

    def pulled(
        self, topic: str, group: str, messages: int, size: int, seconds: float = 0.0
    ) -> None:
        """Counts one read of a member of `group`: how many messages of `topic` were returned, with
        how many bytes, and the seconds that it took, where they were measured."""
        self.statistics.count_pulled(messages, seconds)
        if messages:
            self.traffic.pulled(topic, group, messages, size)

    def stored(self, topic: str, queue_id: int, since: float) -> None:
        """Counts a send that is stored; `since` is what `seconds` told when it came."""
        self.traffic.stored(topic, queue_id, int((self.seconds() - since) * 1000))

    def answered(self, topic: str, group: str, queue_id: int, since: float) -> None:
        """Counts an answer with messages to a member of `group` that asked for this queue, or for
        any (-1); `since` is what `seconds` told when it began to be made."""
        self.traffic.answered(topic, group, queue_id, int((self.seconds() - since) * 1000))

    def runtime_info(self) -> Mapping[str, str]:
        statistics = self.statistics
        return {
            "bootTimestamp": str(statistics.boot_timestamp),
            "runtime": statistics.uptime(),
            "putTps": str(statistics.sent),
            "getTransferredTps": str(statistics.pulled),
            # 4.9's spelling; its clients fail without it.
            "getTransferedTps": str(statistics.pulled),
            "getFoundTps": str(statistics.found),
            "getMissTps": str(statistics.missed),
            "getTotalTps": statistics.reads(),
            "putMessageTimesTotal": str(statistics.sent.total),
            "putMessageSizeTotal": str(statistics.sent_bytes),
            "putMessageAverageSize": str(statistics.average_size()),
            "dispatchMaxBuffer": str(statistics.most_dispatched),
            "getMessageEntireTimeMax": str(int(statistics.longest_read * 1000)),
            "msgPutTotalYesterdayMorning": str(statistics.sent_by_day.yesterday),
            "msgPutTotalTodayMorning": str(statistics.sent_by_day.today),
            "msgPutTotalTodayNow": str(statistics.sent.total),
            "msgGetTotalYesterdayMorning": str(statistics.pulled_by_day.yesterday),
            "msgGetTotalTodayMorning": str(statistics.pulled_by_day.today),
            "msgGetTotalTodayNow": str(statistics.pulled.total),
        }

    def metrics(self) -> Iterable[Metric]:
        return self._request_latency.metrics()

    def view(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 315: the figures of one statistic and key."""
        header = request.header(ViewBrokerStatsDataRequestHeader)
        found = self.traffic.of(header.stats_name, header.stats_key)
        if found is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"nothing is counted as {header.stats_name} of {header.stats_key}",
            )
        return request.response(body=encode_body(found))

    def _arrived(self, runs: Sequence[Arrived]) -> None:
        self.statistics.count_sent(*self.traffic.arrived(runs))

    def _arrived_once(self, runs: Sequence[Arrived]) -> None:
        """Counts a message in its own queue only, whichever further queues it stands in."""
        self._arrived([run for run in runs if not run.topic.startswith(LMQ_PREFIX)])

    def _sample(self) -> Deferred[Any]:
        self.statistics.sample()
        return self._in_slices(self.traffic.sample())
