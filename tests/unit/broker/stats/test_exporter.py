"""What stock's exporter asks for beside the counts of topics and groups."""

import json
import re

import pytest

from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.stats import BrokerStatsData, KVTable
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.broker import ViewBrokerStatsDataRequestHeader
from rocketmq_tw.wire.headers.send import ConsumerSendMsgBackRequestHeader
from tests.support.broker import BrokerInMemory, ok
from tests.unit.broker.writing.test_commit import Replicas


def shown(broker: BrokerInMemory) -> dict[str, str]:
    return decode_body(KVTable, broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table


def counted(broker: BrokerInMemory, name: str, key: str) -> int:
    header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
    data = decode_body(BrokerStatsData, broker.ask(RequestCode.VIEW_BROKER_STATS_DATA, header).body)
    assert data.stats_minute is not None
    return data.stats_minute.sum


def test_the_whole_broker_and_the_bytes_of_a_group_are_counted() -> None:
    broker = BrokerInMemory()
    for _ in range(3):
        ok(broker.send())
    answer = broker.pull(0)
    assert answer is not None
    cluster = broker.config.broker_cluster_name
    assert counted(broker, "BROKER_PUT_NUMS", cluster) == 3
    assert counted(broker, "BROKER_GET_NUMS", cluster) == 3
    assert counted(broker, "GROUP_GET_SIZE", "Topic@G") == len(answer.body)


def test_reads_that_find_nothing_are_counted_apart() -> None:
    broker = BrokerInMemory()
    ok(broker.send())
    ok(broker.pull(0))
    for _ in range(2):
        broker.pull(1)
    for _ in range(101):
        broker.clock.advance(0.1)
    table = shown(broker)
    rates = [table[f"get{kind}Tps"].split()[0] for kind in ("Found", "Miss", "Total")]
    assert rates == ["0.10", "0.20", "0.30"]


def test_the_progress_of_delay_levels() -> None:
    broker = BrokerInMemory()
    ok(broker.send(properties={"DELAY": "1"}))
    for _ in range(40):
        broker.clock.advance(0.1)
    assert shown(broker)["scheduleMessageOffset_1"] == "1,1"


def words_of(text: str) -> list[str]:
    return text.split()


#: What the exporter makes a long, a double and three doubles of; it breaks off at the first key
#: that it misses or cannot read.
LONGS = words_of(
    """
    msgPutTotalTodayNow msgGetTotalTodayNow msgPutTotalTodayMorning msgGetTotalTodayMorning
    msgPutTotalYesterdayMorning msgGetTotalYesterdayMorning sendThreadPoolQueueHeadWaitTimeMills
    queryThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueHeadWaitTimeMills
    sendThreadPoolQueueSize queryThreadPoolQueueSize pullThreadPoolQueueSize
    sendThreadPoolQueueCapacity pullThreadPoolQueueCapacity queryThreadPoolQueueCapacity
    bootTimestamp commitLogMinOffset commitLogMaxOffset dispatchMaxBuffer brokerVersion
    pageCacheLockTimeMills getMessageEntireTimeMax putMessageTimesTotal putMessageEntireTimeMax
    startAcceptSendRequestTimeStamp earliestMessageTimeStamp remainTransientStoreBufferNumbs
    dispatchBehindBytes putMessageSizeTotal
    """
)
DOUBLES = words_of(
    """
    consumeQueueDiskRatio commitLogDiskRatio putMessageAverageSize putLatency99 putLatency999
    """
)
RATES = ["putTps", "getMissTps", "getTransferredTps", "getTotalTps", "getFoundTps"]


def distribution(table: dict[str, str]) -> dict[str, int]:
    """As the exporter reads it, at colons and spaces."""
    pairs = [each.split(":") for each in table["putMessageDistributeTime"].split(" ") if each]
    return {name.replace("[", "").replace("]", ""): int(count) for name, count in pairs}


def test_the_exporter_can_read_all_that_it_looks_for() -> None:
    broker = BrokerInMemory()
    ok(broker.send(properties={"DELAY": "1"}))
    for _ in range(40):
        broker.clock.advance(0.1)
    for table in (shown(broker), shown(BrokerInMemory())):
        for key in LONGS:
            assert int(table[key]) >= (1 if key.endswith("Capacity") else -1), key
        for key in DOUBLES:
            assert float(table[key]) >= 0, key
        for key in RATES:
            assert len([float(rate) for rate in table[key].split(" ")]) == 3, key
        assert float(table["remainHowManyDataToFlush"].split(" ")[0]) >= 0
        assert re.fullmatch(r"Total : \S+ \S+, Free : \S+ \S+\.", table["commitLogDirCapacity"])
        assert len(distribution(table)) == 13
        assert table["runtime"] and table["brokerVersionDesc"] == "V5_3_3"
    levels = [value for key, value in shown(broker).items() if key.startswith("scheduleMessageO")]
    assert [[int(offset) for offset in level.split(",")] for level in levels] == [[1, 1]]


#: The other questions of the exporter's tasks to a broker: code, fields, and what it reads of the
#: answer's body.
QUESTIONS = [
    (
        RequestCode.GET_TOPIC_STATS_INFO,
        {"topic": "Topic"},
        "offsetTable maxOffset lastUpdateTimestamp",
    ),
    (RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "Topic"}, "groupList"),
    (
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        {"consumerGroup": "G"},
        "connectionSet clientId clientAddr language version consumeType messageModel",
    ),
    (
        RequestCode.GET_CONSUME_STATS,
        {"consumerGroup": "G", "topic": "Topic"},
        "offsetTable brokerOffset consumerOffset lastTimestamp consumeTps",
    ),
    (
        RequestCode.GET_ALL_PRODUCER_INFO,
        {},
        "data clientId language version lastUpdateTimestamp remoteIP",
    ),
]


@pytest.mark.parametrize(("code", "fields", "read"), QUESTIONS, ids=lambda value: str(value)[:30])
def test_the_exporters_questions_are_answered(
    code: RequestCode, fields: dict[str, str], read: str
) -> None:
    broker = BrokerInMemory()
    broker.heartbeat("client", broker.peer, topics=("Topic",), producer="P")
    ok(broker.send())
    broker.offsets.commit("G", "Topic", 0, 1)
    answer = broker.request(RemotingCommand(code, ext_fields=fields))
    assert answer is not None and answer.code == 0
    for name in read.split():
        assert f'"{name}"'.encode() in answer.body, answer.body


@pytest.mark.parametrize(
    ("name", "key"),
    [
        *(("TOPIC_PUT_NUMS", "Topic"), ("TOPIC_PUT_SIZE", "Topic")),
        *(("GROUP_GET_NUMS", "Topic@G"), ("GROUP_GET_SIZE", "Topic@G")),
        *(("SNDBCK_PUT_NUMS", "Topic@G"), ("BROKER_PUT_NUMS", ""), ("BROKER_GET_NUMS", "")),
    ],
)
def test_the_exporters_statistics_have_three_windows_with_tps(name: str, key: str) -> None:
    broker = BrokerInMemory()
    ok(broker.send())
    ok(broker.pull(0))
    back = ConsumerSendMsgBackRequestHeader(offset=0, group="G", delay_level=1)
    ok(broker.request(RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, back)))
    broker.clock.advance(1)
    header = ViewBrokerStatsDataRequestHeader(
        stats_name=name, stats_key=key or broker.config.broker_cluster_name
    )
    body = json.loads(broker.ask(RequestCode.VIEW_BROKER_STATS_DATA, header).body)
    for window in ("statsMinute", "statsHour", "statsDay"):
        assert body[window]["tps"] > 0 and body[window].keys() >= {"sum", "avgpt"}


def test_the_runtime_info_has_every_key_that_stock_5_3_3_has() -> None:
    stocks = words_of(
        """
        EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity
        ackThreadPoolQueueCapacity ackThreadPoolQueueHeadWaitTimeMills
        ackThreadPoolQueueSize brokerActive commitLogDiskRatio
        commitLogDiskRatio_/store/commitlog litePullThreadPoolQueueCapacity
        litePullThreadPoolQueueHeadWaitTimeMills litePullThreadPoolQueueSize
        putMessageFailedTimes putMessageDistributeTime runtime timerCongestNum
        timerDequeueTps timerEnqueueTps timerOffsetBehind timerReadBehind
        remainHowManyDataToFlush commitLogDirCapacity brokerVersionDesc
        """
    )
    # Ours beside them: 4.9.7's spelling of getTransferredTps, half messages in wait, why none can
    # be stored, and the Python.
    assert shown(BrokerInMemory()).keys() == {
        *stocks,
        *LONGS,
        *DOUBLES,
        *RATES,
        "getTransferedTps",
        "halfMessagesWaiting",
        "pythonVersion",
        "storageFailure",
    }


def test_sizes_are_those_of_the_records() -> None:
    broker = BrokerInMemory()
    for body in (b"x", b"y" * 100):
        ok(broker.send(body))
    table = shown(broker)
    size = broker.store.end_offset
    assert int(table["putMessageSizeTotal"]) == size > 100
    assert float(table["putMessageAverageSize"]) == size / 2
    assert size > int(table["dispatchMaxBuffer"]) > size / 2
    assert counted(broker, "TOPIC_PUT_SIZE", "Topic") == size


@pytest.mark.parametrize("milliseconds", [0, 30])
def test_appends_are_timed_from_their_turn_to_their_answer(milliseconds: int) -> None:
    broker = BrokerInMemory()
    replicas = Replicas()
    broker.commit.replicator = replicas
    broker.send()
    broker.send(b"waits as long")
    broker.clock.advance(milliseconds / 1000 + 1e-9)
    for _, answer in replicas.waits:
        answer.callback(0)
    table = shown(broker)
    assert int(table["putMessageEntireTimeMax"]) == milliseconds
    assert distribution(table)["10~50ms" if milliseconds else "<=0ms"] == 2
    assert float(table["putLatency99"]) == pytest.approx(milliseconds, abs=2)
    assert float(table["putLatency999"]) >= float(table["putLatency99"])


def test_latencies_are_of_the_last_minute_and_maxima_for_good() -> None:
    broker = BrokerInMemory()
    replicas = Replicas()
    broker.commit.replicator = replicas
    broker.send()
    broker.clock.advance(0.5)
    replicas.waits[0][1].callback(0)
    broker.commit.replicator = None
    for _ in range(61):
        broker.clock.advance(1)
    assert float(shown(broker)["putLatency99"]) > 400
    for _ in range(60):
        broker.clock.advance(1)
    table = shown(broker)
    assert table["putLatency99"] == table["putLatency999"] == "0.00"
    assert table["putMessageEntireTimeMax"] == "500"


def test_appends_that_store_nothing_are_counted() -> None:
    files = FaultyFiles(MemoryFiles())
    broker = BrokerInMemory(files)
    ok(broker.send())
    files.faults.append(Fault("pwrite", "commitlog", times=1))
    for refused_at in ("the write", "the log"):
        answer = broker.send()
        assert answer is not None and answer.code != 0, refused_at
    table = shown(broker)
    assert (table["putMessageFailedTimes"], table["putMessageTimesTotal"]) == ("2", "1")


def test_what_is_given_back_counts_for_the_topic_that_it_came_from() -> None:
    broker = BrokerInMemory()
    ok(broker.send())
    for level in (1, -1):
        header = ConsumerSendMsgBackRequestHeader(offset=0, group="G", delay_level=level)
        ok(broker.request(RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)))
    assert counted(broker, "SNDBCK_PUT_NUMS", "Topic@G") == 2
