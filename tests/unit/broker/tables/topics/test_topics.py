import pytest
from twisted.python.failure import Failure

from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.broker.tables.versioned import TableContext
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.errors import RequestError
from tests.support.broker import Threads
from tests.support.roles import a_master
from tests.support.state import MemoryStateFile

PEER = "127.0.0.1:50000"
#: What stock 5.3.3 wrote for one topic.
STOCK_FILE = b"""{
\t"dataVersion":{
\t\t"counter":2,
\t\t"stateVersion":0,
\t\t"timestamp":1700000000000
\t},
\t"topicConfigTable":{
\t\t"FromStock":{
\t\t\t"attributes":{
\t\t\t\t"message.type":"FIFO"
\t\t\t},
\t\t\t"order":true,
\t\t\t"perm":6,
\t\t\t"readQueueNums":4,
\t\t\t"topicFilterType":"SINGLE_TAG",
\t\t\t"topicName":"FromStock",
\t\t\t"topicSysFlag":0,
\t\t\t"writeQueueNums":4
\t\t}
\t}
}"""


def make_table(file: MemoryStateFile | None = None, **config: object) -> TopicTable:
    settings = BrokerConfig(broker_name="broker-a", **config)  # type: ignore[arg-type]
    return TopicTable(file or MemoryStateFile(), TableContext(settings, a_master(), lambda: 1_000))


def test_a_send_makes_a_topic_after_the_default_one() -> None:
    file = MemoryStateFile()
    table = make_table(file)
    changes = []
    table.changed.add(lambda topics, kept: changes.append(topics))
    made = table.create_on_send("Orders", "TBW102", PEER, 4, 0)
    assert made == TopicConfig(topic_name="Orders", read_queue_nums=4, write_queue_nums=4, perm=6)
    assert changes == [[made]]
    assert table.data_version.counter == 1
    assert table.create_on_send("Orders", "TBW102", PEER, 16, 0) is made
    assert file.writes == 1


def test_a_send_gets_no_more_queues_than_the_default_topic_has() -> None:
    made = make_table().create_on_send("Orders", "TBW102", PEER, 1000, 0)
    assert made is not None
    assert made.write_queue_nums == 8


@pytest.mark.parametrize("default_topic", ["TBW102", "Missing", "SELF_TEST_TOPIC"])
def test_no_topic_is_made_after_one_that_is_not_inherited(default_topic: str) -> None:
    table = make_table(auto_create_topic_enable=False)
    assert table.create_on_send("Orders", default_topic, PEER, 4, 0) is None
    assert table.get("Orders") is None


@pytest.mark.parametrize("topic", ["../etc", "a b", "", "t" * 128, "tøpic"])
def test_an_illegal_name_is_refused(topic: str) -> None:
    table = make_table()
    with pytest.raises(RequestError):
        table.create_on_send(topic, "TBW102", PEER, 4, 0)
    with pytest.raises(RequestError):
        table.update(TopicConfig(topic_name=topic))
    assert topic not in table.all()


def test_what_was_made_survives_a_restart() -> None:
    file = MemoryStateFile()
    table = make_table(file)
    table.create_on_send_back("%RETRY%group", 1, 6)
    again = make_table(file)
    again.load()
    assert again.get("%RETRY%group") == table.get("%RETRY%group")
    assert again.data_version == table.data_version


def test_the_file_of_stock_is_read() -> None:
    table = make_table(MemoryStateFile(STOCK_FILE))
    table.load()
    topic = table.get("FromStock")
    assert topic is not None
    assert (topic.order, topic.write_queue_nums, topic.attributes) == (
        True, 4, {"message.type": "FIFO"},
    )  # fmt: skip
    assert table.data_version.timestamp == 1_700_000_000_000
    assert table.get("TBW102") is not None


def test_attributes_are_changed_by_sign() -> None:
    table = make_table()
    table.update(TopicConfig(topic_name="T", attributes={"+message.type": "FIFO"}))
    table.update(TopicConfig(topic_name="T", attributes={}))
    assert table.all()["T"].attributes == {"message.type": "FIFO"}
    table.update(TopicConfig(topic_name="T", attributes={"-message.type": ""}))
    assert table.all()["T"].attributes == {}


@pytest.mark.parametrize(
    "attributes",
    [
        {"message.type": "FIFO"},
        {"+message.type": "SOMETHING"},
        {"+no.such": "x"},
        {"-message.type": ""},
        {"+queue.type": "SimpleCQ"},
    ],
)
def test_a_wrong_attribute_changes_nothing(attributes: dict[str, str]) -> None:
    table = make_table()
    table.update(TopicConfig(topic_name="T"))
    version = table.data_version
    with pytest.raises(RequestError):
        table.update(TopicConfig(topic_name="T", attributes=attributes))
    assert table.all()["T"] == TopicConfig(topic_name="T")
    assert table.data_version == version


def test_a_deleted_topic_is_gone_after_a_restart() -> None:
    file = MemoryStateFile()
    table = make_table(file)
    table.create_on_send("T", "TBW102", PEER, 4, 0)
    table.delete("T")
    table.delete("T")
    assert file.writes == 2
    again = make_table(file)
    again.load()
    assert again.get("T") is None


def test_the_built_in_topics_are_stocks() -> None:
    assert make_table().all().keys() == {
        "SELF_TEST_TOPIC", "TBW102", "BenchmarkTest", "DefaultCluster", "broker-a",
        "OFFSET_MOVED_EVENT", "SCHEDULE_TOPIC_XXXX", "DefaultCluster_REPLY_TOPIC",
        "rmq_sys_REVIVE_LOG_DefaultCluster", "rmq_sys_SYNC_BROKER_MEMBER_broker-a",
        "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "rmq_sys_wheel_timer",
    }  # fmt: skip
    assert make_table().system_topics() == make_table().all().keys()


def test_ordered_topics_of_the_name_server_are_marked() -> None:
    table = make_table()
    table.update(TopicConfig(topic_name="T"))
    table.mark_ordered(["T", "NotHere"])
    assert table.all()["T"].order
    counter = table.data_version.counter
    table.mark_ordered(["T"])
    assert table.data_version.counter == counter


def test_a_topic_that_cannot_be_kept_is_none_and_the_next_send_tries_again() -> None:
    file = MemoryStateFile()
    table = make_table(file)
    changes = []
    table.changed.add(lambda topics, kept: kept.addCallback(lambda _: changes.append(topics)))
    version = table.data_version
    file.full = True
    table.create_on_send("Orders", "TBW102", PEER, 4, 0)
    assert table.get("Orders") is None
    assert not changes
    assert table.data_version == version
    file.full = False
    assert table.create_on_send("Orders", "TBW102", PEER, 4, 0) is not None
    again = make_table(file)
    again.load()
    assert again.get("Orders") is not None


def test_a_topic_whose_removal_cannot_be_kept_stays() -> None:
    file = MemoryStateFile()
    table = make_table(file)
    table.create_on_send("Orders", "TBW102", PEER, 4, 0)
    file.full = True
    failures: list[Failure] = []
    table.delete("Orders").addErrback(failures.append)
    assert "No space left" in failures[0].value.remark
    assert table.get("Orders") is not None


def test_changes_during_a_write_share_the_next_one() -> None:
    file, threads = MemoryStateFile(), Threads(eager=False)
    context = TableContext(BrokerConfig(), a_master(), lambda: 1_000, threads)
    table = TopicTable(file, context)
    kept = [table.update(TopicConfig(topic_name=f"T{number}")) for number in range(50)]
    assert table.get("T49") is not None
    assert threads.run() == 1
    assert [one.called for one in kept] == [True] + [False] * 49
    assert threads.run() == 1
    assert all(one.called for one in kept)
    assert file.writes == 2
    assert threads.run() == 0
    again = make_table(file)
    again.load()
    assert again.all().keys() >= {f"T{number}" for number in range(50)}
    assert again.data_version == table.data_version


def test_a_write_that_fails_takes_back_all_that_is_not_kept() -> None:
    file, threads = MemoryStateFile(), Threads(eager=False)
    context = TableContext(BrokerConfig(), a_master(), lambda: 1_000, threads)
    table = TopicTable(file, context)
    table.update(TopicConfig(topic_name="Kept"))
    threads.run()
    file.full = True
    refused: list[Failure] = []
    table.update(TopicConfig(topic_name="Kept", perm=4)).addErrback(refused.append)
    table.update(TopicConfig(topic_name="New")).addErrback(refused.append)
    idle = table.save()
    assert not idle.called
    threads.run()
    assert ["No space left" in one.value.remark for one in refused] == [True, True]
    assert table.get("New") is None
    kept = table.get("Kept")
    assert kept is not None and kept.perm == 6
    assert idle.called
    file.full = False
    table.update(TopicConfig(topic_name="New"))
    threads.run()
    assert table.get("New") is not None


@pytest.mark.parametrize("attribute", [("queue.type", "BatchCQ"), ("cleanup.policy", "COMPACTION")])
def test_queues_of_a_kind_that_is_not_here_are_refused(attribute: tuple[str, str]) -> None:
    key, value = attribute
    table = make_table()
    with pytest.raises(RequestError, match=value):
        table.update(TopicConfig(topic_name="T", attributes={f"+{key}": value}))
    assert table.get("T") is None
