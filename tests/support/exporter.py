"""The calls of stock's rocketmq-exporter, made with stock's admin client, and which of its metrics
get a value from the answers. Calls, names and labels as in its source at `COMMIT`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.support.downloads import check_out, only_one
from tests.support.jars import BUILD
from tests.support.java_client import JavaClients, JavaError, PullConsumer
from tests.support.wait import PeerFailed

Json = dict[str, Any]
#: The name of a metric, and the values of its labels that are the same in every run.
Sample = tuple[str, ...]

REPOSITORY = "https://github.com/apache/rocketmq-exporter.git"
#: Its newest one, of October 2024.
COMMIT = "e1ab2dd569d431c88c9eb599a9284aedc7abeb7c"
_COLLECTOR = "src/main/java/org/apache/rocketmq/exporter/collector/RMQMetricsCollector.java"
_REGISTERED = re.compile(r'new (?:Gauge|Counter)MetricFamily\(\s*"([^"]+)"')

RETRY, DEAD = "%RETRY%", "%DLQ%"
_QUEUE = re.compile(r"topic=(.*), brokerName=(.*), queueId=(\d+)")
#: What a broker answers that has not counted anything under a name: the exporter expects that.
_NOT_COUNTED = re.compile(r"CODE: 1 ")
#: What it expects of a group that is not connected, or of a topic without brokers.
_NOT_THERE = re.compile(r"CODE: (17|206) ")

#: Metric of a broker to the statistic that it is of.
_OF_BROKER = {"rocketmq_broker_tps": "BROKER_PUT_NUMS", "rocketmq_broker_qps": "BROKER_GET_NUMS"}
_OF_TOPIC = {
    "rocketmq_producer_tps": "TOPIC_PUT_NUMS",
    "rocketmq_producer_message_size": "TOPIC_PUT_SIZE",
}
_OF_GROUP = {
    "rocketmq_consumer_tps": "GROUP_GET_NUMS",
    "rocketmq_consumer_message_size": "GROUP_GET_SIZE",
    "rocketmq_send_back_nums": "SNDBCK_PUT_NUMS",
}
#: Metric of a member of a group to what it says of itself about a topic.
OF_CLIENT = {
    "rocketmq_client_consume_fail_msg_count": "consumeFailedMsgs",
    "rocketmq_client_consume_fail_msg_tps": "consumeFailedTPS",
    "rocketmq_client_consume_ok_msg_tps": "consumeOKTPS",
    "rocketmq_client_consume_rt": "consumeRT",
    "rocketmq_client_consumer_pull_rt": "pullRT",
    "rocketmq_client_consumer_pull_tps": "pullTPS",
}


def _capacity(place: int) -> Callable[[str], object]:
    """Reads one of the sizes in `Total : 1.2 TiB, Free : 3 GiB.`"""

    def read(text: str) -> object:
        words = text.split(" ")
        return float(words[place]), words[place + 1][:-1]

    return read


def _rate(place: int) -> Callable[[str], object]:
    """Reads one of three rates; a young broker of stock's has fewer, which stay 0 there."""
    return lambda text: [float(rate) for rate in text.split()][place : place + 1]


def _share(name: str) -> Callable[[str], object]:
    """Reads how many appends took so long; a broker of stock's says null in its first minute."""

    def read(text: str) -> object:
        if text == "null":
            return None
        pairs = (each.split(":") for each in text.split(" ") if each)
        shares = {key.strip("[]"): int(value) for key, value in pairs}
        return shares[name]

    return read


_TIMES = {
    "0ms": "<=0ms",
    "0to10ms": "0~10ms",
    "10to50ms": "10~50ms",
    "50to100ms": "50~100ms",
    "100to200ms": "100~200ms",
    "200to500ms": "200~500ms",
    "500to1s": "500ms~1s",
    "1to2s": "1~2s",
    "2to3s": "2~3s",
    "3to4s": "3~4s",
    "4to5s": "4~5s",
    "5to10s": "5~10s",
    "10stomore": "10s~",
}
_RATES = {
    "getfound": "getFoundTps",
    "gettotal": "getTotalTps",
    "gettransfered": "getTransferredTps",
    "getmiss": "getMissTps",
    "put": "putTps",
}
_INTEGERS = {
    "msg_put_total_today_now": "msgPutTotalTodayNow",
    "msg_gettotal_today_now": "msgGetTotalTodayNow",
    "msg_gettotal_yesterdaymorning": "msgGetTotalYesterdayMorning",
    "msg_puttotal_yesterdaymorning": "msgPutTotalYesterdayMorning",
    "msg_gettotal_todaymorning": "msgGetTotalTodayMorning",
    "msg_puttotal_todaymorning": "msgPutTotalTodayMorning",
    "dispatch_behind_bytes": "dispatchBehindBytes",
    "dispatch_maxbuffer": "dispatchMaxBuffer",
    "put_message_size_total": "putMessageSizeTotal",
    "putmessage_times_total": "putMessageTimesTotal",
    "putmessage_entire_time_max": "putMessageEntireTimeMax",
    "getmessage_entire_time_max": "getMessageEntireTimeMax",
    "pagecache_lock_time_mills": "pageCacheLockTimeMills",
    "remain_transientstore_buffer_numbs": "remainTransientStoreBufferNumbs",
    "earliest_message_timestamp": "earliestMessageTimeStamp",
    "start_accept_sendrequest_time": "startAcceptSendRequestTimeStamp",
    "send_threadpool_queue_size": "sendThreadPoolQueueSize",
    "pull_threadpoolqueue_size": "pullThreadPoolQueueSize",
    "query_threadpoolqueue_size": "queryThreadPoolQueueSize",
    "send_threadpoolqueue_capacity": "sendThreadPoolQueueCapacity",
    "pull_threadpoolqueue_capacity": "pullThreadPoolQueueCapacity",
    "query_threadpool_queue_capacity": "queryThreadPoolQueueCapacity",
    "send_threadpoolqueue_headwait_timemills": "sendThreadPoolQueueHeadWaitTimeMills",
    "pull_threadpoolqueue_headwait_timemills": "pullThreadPoolQueueHeadWaitTimeMills",
    "query_threadpoolqueue_headwait_timemills": "queryThreadPoolQueueHeadWaitTimeMills",
    "commitlog_maxoffset": "commitLogMaxOffset",
    "commitlog_minoffset": "commitLogMinOffset",
}
_FLOATS = {
    "put_message_average_size": "putMessageAverageSize",
    "commitlog_disk_ratio": "commitLogDiskRatio",
    "consumequeue_disk_ratio": "consumeQueueDiskRatio",
    "put_latency_99": "putLatency99",
    "put_latency_999": "putLatency999",
}
#: Metric of a broker, behind `rocketmq_brokeruntime_`, to the key of its runtime info that it is
#: read from and how.
_RUNTIME: Mapping[str, tuple[str, Callable[[str], object]]] = {
    **{name: (key, int) for name, key in _INTEGERS.items()},
    **{name: (key, float) for name, key in _FLOATS.items()},
    **{
        f"{name}_tps{seconds}": (key, _rate(place))
        for name, key in _RATES.items()
        for place, seconds in enumerate((10, 60, 600))
    },
    **{
        f"pmdt_{name}": ("putMessageDistributeTime", _share(share))
        for name, share in _TIMES.items()
    },
    "commitlogdir_capacity_total": ("commitLogDirCapacity", _capacity(2)),
    "commitlogdir_capacity_free": ("commitLogDirCapacity", _capacity(6)),
    "remain_howmanydata_toflush": (
        "remainHowManyDataToFlush",
        lambda text: float(text.split(" ")[0]),
    ),
}
#: Labels of all of them.
_RUNTIME_LABELS = {"boottime": "bootTimestamp", "broker_version": "brokerVersion"}

#: What it registers and never gives a value: the call that would is not made, or not for such
#: topics.
WITHOUT_VALUE = frozenset(
    {
        "rocketmq_group_consume_tps",
        "rocketmq_group_consume_total_offset",
        "rocketmq_group_dlqdiff",
    }
)
#: All that the exporter can tell.
NAMES = frozenset(
    {
        "rocketmq_producer_offset",
        "rocketmq_topic_retry_offset",
        "rocketmq_topic_dlq_offset",
        "rocketmq_producer_count",
        "rocketmq_group_count",
        "rocketmq_group_diff",
        "rocketmq_group_retrydiff",
        "rocketmq_consumer_offset",
        "rocketmq_group_get_latency_by_storetime",
        "rocketmq_broker_commitlog_diff",
        *_OF_BROKER,
        *_OF_TOPIC,
        *_OF_GROUP,
        *OF_CLIENT,
        *(f"rocketmq_brokeruntime_{name}" for name in _RUNTIME),
    }
)


def names_in_source(repository: str = REPOSITORY) -> frozenset[str]:
    """All names that the exporter registers, by its source, which the first caller fetches from
    `repository`, an address or a directory. Raises `DownloadFailed`."""
    home = BUILD / "exporter"
    tree, done = home / "source", home / COMMIT
    with only_one(home):
        if not done.exists():
            check_out("the exporter's source", repository, COMMIT, tree)
            done.touch()
    return frozenset(_REGISTERED.findall((tree / _COLLECTOR).read_text()))


class Exporter:
    """Asks as the exporter does; `reader` is its own consumer."""

    def __init__(self, java: JavaClients, namesrv: str, reader: PullConsumer) -> None:
        self._java = java
        self._namesrv = namesrv
        self._reader = reader

    def collect(self) -> set[Sample]:
        """One round of all its tasks. Raises `PeerFailed` for what it would log as an error."""
        return {
            *self._topic_offsets(),
            *self._producers(),
            *self._consumers(),
            *self._statistics_of_topics(),
            *self._brokers(),
        }

    def _ask(self, method: str, *arguments: Any) -> Any:
        return self._java.admin(self._namesrv, method, *arguments)

    def _ask_unless(self, expected: re.Pattern[str], method: str, *arguments: Any) -> Any:
        """Returns the answer, or None where it is a refusal that the exporter expects."""
        try:
            return self._ask(method, *arguments)
        except JavaError as error:
            if not expected.search(str(error)):
                raise
            return None

    def _topics(self) -> list[str]:
        topics: list[str] = self._ask("fetchAllTopicList")["topicList"]
        return sorted(topics)

    def _masters(self) -> Iterator[tuple[str, str, Mapping[str, str]]]:
        """Yields cluster, name and addresses by id of each broker."""
        for name, data in self._ask("examineBrokerClusterInfo")["brokerAddrTable"].items():
            yield data["cluster"], name, data["brokerAddrs"]

    def _topic_offsets(self) -> Iterator[Sample]:
        for topic in self._topics():
            try:
                table = self._ask("examineTopicStats", topic)["offsetTable"]
            except JavaError:
                continue
            brokers = set()
            for queue, offset in table.items():
                assert offset["maxOffset"] >= 0 and offset["lastUpdateTimestamp"] >= 0
                brokers.add(_parts(queue)[1])
            name = "rocketmq_producer_offset"
            if topic.startswith(RETRY):
                name = "rocketmq_topic_retry_offset"
            elif topic.startswith(DEAD):
                name = "rocketmq_topic_dlq_offset"
            yield from ((name, broker, topic) for broker in brokers)

    def _producers(self) -> Iterator[Sample]:
        for cluster, broker, addresses in self._masters():
            for group in self._ask("getAllProducerInfo", addresses["0"])["data"]:
                yield "rocketmq_producer_count", cluster, broker, group

    def _consumers(self) -> Iterator[Sample]:
        asked = set()
        for topic in self._topics():
            for group in self._groups_of(topic):
                found = self._ask_unless(_NOT_THERE, "examineConsumerConnectionInfo", group)
                members = found["connectionSet"] if found else []
                yield "rocketmq_group_count", group, str(len(members))
                if group not in asked:
                    asked.add(group)
                    for member in members:
                        yield from self._member(group, member["clientId"])
                clustering = found is None or found["messageModel"] == "CLUSTERING"
                yield from self._progress(group, topic, len(members), clustering)

    def _groups_of(self, topic: str) -> list[str]:
        if topic.startswith(DEAD):
            return []
        try:
            groups: list[str] = self._ask("queryTopicConsumeByWho", topic)["groupList"]
        except JavaError:
            return []
        return sorted(groups)

    def _progress(self, group: str, topic: str, members: int, clustering: bool) -> Iterator[Sample]:
        stats = self._ask_unless(_NOT_THERE, "examineConsumeStats", group, topic)
        if stats is None:
            return
        for queue, offset in stats["offsetTable"].items():
            assert offset["brokerOffset"] >= offset["consumerOffset"] >= 0
            _, broker, number = _parts(queue)
            yield "rocketmq_consumer_offset", broker, topic, group
            if clustering:
                kind = "retrydiff" if topic.startswith(RETRY) else "diff"
                yield f"rocketmq_group_{kind}", group, topic, str(members)
                place = {"topic": topic, "broker": broker, "queue": number}
                answer = self._reader.pull(place, offset["consumerOffset"], 1)
                if answer["status"] == "OFFSET_ILLEGAL":
                    self._reader.pull(place, answer["min"], 1)
                yield "rocketmq_group_get_latency_by_storetime", broker, topic, group

    def _member(self, group: str, client_id: str) -> Iterator[Sample]:
        info = self._ask("getConsumerRunningInfo", group, client_id, False)
        for topic, status in info["statusTable"].items():
            for name, key in OF_CLIENT.items():
                assert status[key] >= 0
                yield name, group, topic

    def _statistics_of_topics(self) -> Iterator[Sample]:
        for topic in self._topics():
            if topic.startswith((RETRY, DEAD)):
                continue
            groups = self._groups_of(topic)
            for data in self._ask("examineTopicRouteInfo", topic)["brokerDatas"]:
                address, broker = data["brokerAddrs"]["0"], data["brokerName"]
                for name, statistic in _OF_TOPIC.items():
                    if self._is_counted(address, statistic, topic):
                        yield name, data["cluster"], broker, topic
                for group in groups:
                    for name, statistic in _OF_GROUP.items():
                        if self._is_counted(address, statistic, f"{topic}@{group}"):
                            yield name, data["cluster"], broker, topic, group

    def _is_counted(self, address: str, statistic: str, key: str) -> bool:
        data = self._ask_unless(_NOT_COUNTED, "viewBrokerStatsData", address, statistic, key)
        if data is None:
            return False
        assert data["statsMinute"]["tps"] >= 0 and data["statsMinute"]["sum"] >= 0
        return True

    def _brokers(self) -> Iterator[Sample]:
        for cluster, broker, addresses in self._masters():
            for name, statistic in _OF_BROKER.items():
                if self._is_counted(addresses["0"], statistic, cluster):
                    yield name, cluster, broker
            table = self._ask("fetchBrokerRuntimeStats", addresses["0"])["table"]
            for runtime_name in self._read(table):
                yield runtime_name, cluster, broker
            for number, address in addresses.items():
                if number != "0":
                    self._read(self._ask("fetchBrokerRuntimeStats", address)["table"])
                    yield "rocketmq_broker_commitlog_diff", cluster, broker

    def _read(self, table: Mapping[str, str]) -> list[str]:
        """The exporter reads all of it or nothing."""
        try:
            for key in _RUNTIME_LABELS.values():
                int(table[key])
            for key, read in _RUNTIME.values():
                read(table[key])
        except (KeyError, ValueError, IndexError) as error:
            raise PeerFailed(f"the runtime info cannot be read: {error!r} in {table}") from error
        return [f"rocketmq_brokeruntime_{name}" for name in _RUNTIME]


def _parts(queue: str) -> tuple[str, str, int]:
    found = _QUEUE.search(queue)
    assert found is not None, queue
    return found[1], found[2], int(found[3])
