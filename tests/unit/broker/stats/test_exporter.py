"""What stock's exporter asks for beside the counts of topics and groups."""

from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.kv import KVTable
from rocketmq_tw.wire.bodies.stats import BrokerStatsData
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.headers.broker_admin import ViewBrokerStatsDataRequestHeader
from tests.support.broker import BrokerInMemory, ok


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
