"""Topics as tables: what is read and written in one go."""

import json
import time
from typing import Any

import pytest
from pyspark.errors import PySparkException

from rocketmq_tw.spark.columns import SCHEMA
from tests.support.jars import STOCK_VERSIONS
from tests.support.wait import wait_until


def bodies(frame: Any) -> list[str]:
    return [row.body for row in frame.selectExpr("string(body) as body").collect()]


def test_a_topic_is_a_table(topics: Any, spark: Any) -> None:
    topic = topics.filled(1000, tags="red", keys=["k1", "k2"], properties={"colour": "dark"})
    frame = topics.reader(spark.read, topic).load()
    assert frame.schema == SCHEMA
    assert sorted(bodies(frame)) == sorted(f"m{number}" for number in range(1000))
    row = frame.first()
    assert (row.topic, row.tags, row["keys"]) == (topic, "red", ["k1", "k2"])
    assert row.properties["colour"] == "dark"
    assert row.msgId == row.properties["UNIQ_KEY"]
    assert row.bornTimestamp <= row.storeTimestamp


def test_offsets_and_times_choose(topics: Any, spark: Any) -> None:
    topic = topics.filled(400)
    queue = topics.queues(topic)[1]
    whole = {q: topics.client.max_offset(q) for q in topics.queues(topic)}
    offsets = {topic: {queue.broker_name: {str(queue.queue_id): -1, "0": 10}}}
    frame = topics.reader(spark.read, topic, startingOffsets=json.dumps(offsets)).load()
    assert frame.count() == 400 - whole[queue] - 10

    border = max(row.storeTimestamp for row in topics.reader(spark.read, topic).load().collect())
    topics.fill(topic, ["late1", "late2"])
    after = int(border.timestamp() * 1000) + 1
    late = topics.reader(spark.read, topic, startingTimestamp=after).load()
    early = topics.reader(spark.read, topic, endingTimestamp=after).load()
    assert (sorted(bodies(late)), early.count()) == (["late1", "late2"], 400)


def test_the_broker_leaves_out_what_is_not_wanted(ours: Any, spark: Any) -> None:
    topic = ours.filled(100, tags="red")
    ours.fill(topic, [f"g{number}" for number in range(50)], tags="green")
    by_tag = ours.reader(spark.read, topic, subExpression="green || blue").load()
    assert sorted(bodies(by_tag)) == sorted(f"g{number}" for number in range(50))


@pytest.mark.parametrize("topics", STOCK_VERSIONS, indirect=True)
def test_sql92_where_the_broker_has_it(topics: Any, spark: Any) -> None:
    topic = topics.filled(60, properties={"price": "5"})
    topics.fill(topic, ["dear"], properties={"price": "9"})
    frame = topics.reader(spark.read, topic, expressionType="SQL92", expression="price > 7").load()
    assert bodies(frame) == ["dear"]


def test_large_ranges_are_split(ours: Any, spark: Any) -> None:
    topic = ours.filled(1000)
    frame = ours.reader(spark.read, topic, minPartitions=9).load()
    assert frame.rdd.getNumPartitions() >= 9
    assert len(set(bodies(frame))) == 1000


def test_a_pattern_chooses_topics(ours: Any, spark: Any) -> None:
    first, second = ours.filled(10), ours.filled(20)
    pattern = f"{first[: first.rindex('-')]}-.*"
    reader = spark.read.format("rocketmq").option("nameServers", ours.name_servers)
    counts = reader.option("topicPattern", pattern).load().groupBy("topic").count().collect()
    assert {row.topic: row["count"] for row in counts} == {first: 10, second: 20}


def test_a_pattern_takes_system_topics_where_asked(ours: Any, spark: Any) -> None:
    topic = f"RMQ_SYS_{ours.filled(1)}"
    ours.fill(topic, ["m"] * 5)

    def count(**options: Any) -> int:
        reader = spark.read.format("rocketmq").option("nameServers", ours.name_servers)
        return int(reader.option("topicPattern", topic).options(**options).load().count())

    assert (count(), count(includeSystem=True)) == (0, 5)


def test_names_of_topics_have_commas_between(ours: Any, spark: Any) -> None:
    first, second = ours.filled(10), ours.filled(20)
    assert ours.reader(spark.read, f"{first}, {second}").load().count() == 30


def test_offsets_that_are_gone_are_passed_over_where_allowed(ours: Any, spark: Any) -> None:
    topic = ours.filled(400)
    queue = ours.queues(topic)[0]
    offsets = json.dumps({topic: {queue.broker_name: {str(queue.queue_id): 99999}}})
    given = {"startingOffsets": offsets, "failOnDataLoss": False}
    there = 400 - ours.client.max_offset(queue)
    assert ours.reader(spark.read, topic, **given).load().count() == there


def test_filters_are_carried_out_by_the_source(ours: Any, spark: Any) -> None:
    topic = ours.filled(400)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:

        def frame(push: bool) -> Any:
            return ours.reader(spark.read, topic, pushFilters=push).load()

        filtered = frame(True).filter("queueId = 1 and queueOffset >= 40")
        plan = filtered._jdf.queryExecution().toString()
        assert filtered.rdd.getNumPartitions() == 1
        assert filtered.count() == 60
        assert " Filter " not in plan.split("== Physical Plan ==")[1]
        plain = frame(False)
        border = plain.agg({"storeTimestamp": "max"}).first()[0]
        assert plain.filter(plain.queueId == 1).count() == 100
        assert plain.count() == 400
        late = frame(True)
        assert late.filter(late.storeTimestamp > border).count() == 0
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_schema_chooses_columns(ours: Any, spark: Any) -> None:
    topic = ours.filled(10)
    frame = ours.reader(spark.read, topic).schema("queueOffset bigint, body binary").load()
    assert frame.columns == ["queueOffset", "body"]
    assert frame.count() == 10


def test_what_was_read_is_written(topics: Any, spark: Any) -> None:
    topic, copy = topics.filled(500, tags="a", keys=["k"]), topics.name()
    frame = topics.reader(spark.read, topic).load()
    topics.reader(frame.write, copy).mode("append").save()
    wait_until(lambda: len(topics.bodies(copy)) == 500, "all that was written")
    again = topics.reader(spark.read, copy).load()
    assert sorted(bodies(again)) == sorted(bodies(frame))
    ids = frame.select("msgId", "tags", "keys")
    assert again.select("msgId", "tags", "keys").exceptAll(ids).count() == 0


def test_columns_become_what_a_message_has(ours: Any, spark: Any) -> None:
    topic = ours.name()
    rows = [(f"b{number}", "s" + str(number % 2), {"n": str(number)}) for number in range(40)]
    schema = "body string, shardingKey string, properties map<string,string>"
    frame = spark.createDataFrame(rows, schema)
    ours.reader(frame.coalesce(1).write, topic).mode("append").save()
    found = ours.reader(spark.read, topic).load().orderBy("queueId", "queueOffset").collect()
    assert len(found) == 40
    for key in ("s0", "s1"):
        mine = [row for row in found if row.properties["__SHARDINGKEY"] == key]
        assert len({row.queueId for row in mine}) == 1
        numbers = [int(row.properties["n"]) for row in mine]
        assert numbers == sorted(numbers)


def test_a_delayed_message_comes_later(ours: Any, spark: Any) -> None:
    topic = ours.name()
    frame = spark.createDataFrame([("soon", 1)], "body string, delayLevel int")
    ours.reader(frame.write, topic).mode("append").save()
    wait_until(lambda: ours.bodies(topic) == ["soon"], "the delayed message")
    row = ours.reader(spark.read, topic).load().first()
    assert (row.storeTimestamp - row.bornTimestamp).total_seconds() >= 0.9


@pytest.mark.parametrize("topics", STOCK_VERSIONS[-1:], indirect=True)
def test_a_timer_keeps_a_message_back(topics: Any, spark: Any) -> None:
    topic, due = topics.name(), int(time.time() * 1000) + 3000
    frame = spark.createDataFrame([("soon", due)], "body string, deliverTimestamp bigint")
    topics.reader(frame.write, topic).mode("append").save()
    wait_until(lambda: topics.bodies(topic) == ["soon"], "the message with a timer")
    # The timer wheel rounds to seconds.
    row = topics.reader(spark.read, topic).load().first()
    assert row.storeTimestamp.timestamp() * 1000 >= due - 1000


def test_a_bad_row_fails_its_task_and_says_why(ours: Any, spark: Any) -> None:
    frame = spark.createDataFrame([("good",), (None,)], "body string").coalesce(1)
    with pytest.raises(PySparkException, match="row 1 of the task: body is null"):
        ours.reader(frame.write, ours.name()).mode("append").save()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"nameServers": "127.0.0.1:1"}, "check the option nameServers"),
        ({"topic": "no-such-topic"}, "check the option topic"),
        ({"startingOffsets": '{"TOPIC": {"broker-ours": {"0": 99999}}}'}, "give one of these"),
        ({"startingOffsets": '{"TOPIC": {"broker-ours": {"77": 0}}}'}, "which is not there"),
        ({"group": object()}, "cannot travel"),
        ({"maxOfsetsPerTrigger": 5}, "did you mean maxOffsetsPerTrigger"),
        ({"expressionType": "SQL92", "expression": "price >"}, "SQL92 expression"),
    ],
)
def test_mistakes_are_said_while_planning(
    ours: Any, spark: Any, options: dict[str, Any], said: str
) -> None:
    topic = ours.filled(1)
    given = {
        name: value.replace("TOPIC", topic) if isinstance(value, str) else value
        for name, value in options.items()
    }
    given = {"nameServers": ours.name_servers, "topic": topic, **given}
    tracker = spark.sparkContext.statusTracker()
    before = len(tracker.getJobIdsForGroup())
    with pytest.raises(PySparkException, match=said):
        spark.read.format("rocketmq").options(**given).load().collect()
    assert len(tracker.getJobIdsForGroup()) == before


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ("'b' as body", {"nameServers": "127.0.0.1:1"}, "check the option nameServers"),
        ("'b' as text", {}, "there is no column body"),
        ("'b' as body, 1 as price", {}, "the column price means nothing"),
        ("'b' as body", {"sendTimeoutMs": "soon"}, "give a whole number"),
    ],
)
def test_mistakes_in_a_write_are_said_while_planning(
    ours: Any, spark: Any, rows: str, options: dict[str, Any], said: str
) -> None:
    given = {"nameServers": ours.name_servers, "topic": ours.name(), **options}
    frame = spark.range(1).selectExpr(*rows.split(", "))
    tracker = spark.sparkContext.statusTracker()
    before = len(tracker.getJobIdsForGroup())
    with pytest.raises(PySparkException, match=said):
        frame.write.format("rocketmq").options(**given).mode("append").save()
    assert len(tracker.getJobIdsForGroup()) == before


def test_a_topic_cannot_be_overwritten(ours: Any, spark: Any) -> None:
    frame = spark.createDataFrame([("x",)], "body string")
    with pytest.raises(PySparkException, match="mode append"):
        ours.reader(frame.write, ours.name()).mode("overwrite").save()
