"""Looking for messages with stock's clients and tools: by key through many files of the index, by
unique id, by offset id, within times; and what a queue's units say beside a group's filter. The
same is asked of stock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.cluster import OURS, Cluster
from tests.support.java_client import JavaClients, JavaError, Json
from tests.support.stock import run_mqadmin
from tests.support.wait import wait_past, wait_until

#: A file of the index has room for so many keys.
KEYS = 40
SETTINGS = {
    "maxIndexNum": str(KEYS),
    "maxHashSlotNum": "16",
    "enablePropertyFilter": "true",
}


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("query")
    with Cluster.of(home, name_servers=[OURS], brokers=[OURS], settings=SETTINGS) as started:
        yield started


@pytest.fixture
def mqadmin(java: JavaClients, tmp_path: Path) -> Callable[..., str]:
    """The tools of the clients' version."""
    return partial(run_mqadmin, java.version, tmp_path)


def files_of_index(cluster: Cluster) -> int:
    return len(list((cluster.broker.store / "index").iterdir()))


@pytest.mark.parametrize(
    "java", [pytest.param("4.9.7", marks=pytest.mark.more), "5.3.3"], indirect=True
)
def test_by_key_through_many_files(
    java: JavaClients, mqadmin: Callable[..., str], indexed: Cluster, names
) -> None:
    topic = indexed.create_topic(java, names.topic, queues=1)
    files = files_of_index(indexed) if (indexed.broker.store / "index").exists() else 0
    with (
        java.producer(indexed.namesrv, names.group) as producer,
        java.puller(indexed.namesrv) as puller,
    ):
        sent: list[Json] = []
        times: list[int] = []
        (queue,) = wait_until(lambda: puller.queues(topic), "the queue")
        for number in range(4):
            # A unique id and two keys each: 60 keys a round, one and a half files.
            keys = [f"k{number}-{n} shared" for n in range(20)]
            sent += producer.send(
                *({"topic": topic, "body": key.split()[0], "keys": key} for key in keys)
            )
            (last,) = puller.pull(queue, puller.max_offset(queue) - 1)["messages"]
            times.append(last["stored"])
            # Times of the index are whole seconds.
            wait_past(last["stored"] + 2_100)
        wait_until(lambda: puller.query(topic, "k3-19"), "the last key in the index")
        assert files_of_index(indexed) - files >= 240 // KEYS - 1
        for number in range(4):
            for n in (0, 7, 19):
                (found,) = puller.query(topic, f"k{number}-{n}")
                assert found["body"] == f"k{number}-{n}"
        # 32 at most, the newest ones.
        assert len(puller.query(topic, "shared")) == 32

        def within(begin: int, end: int) -> set[str]:
            return {
                each["body"].split("-")[0] for each in puller.query(topic, "shared", begin, end)
            }

        assert within(0, times[0]) == {"k0"}
        assert within(times[0] + 1_100, times[1]) == {"k1"}
        assert within(times[2] + 1_100, times[3]) == {"k3"}
        with pytest.raises(JavaError, match="no message"):
            within(times[3] + 60_000, times[3] + 120_000)
        first, last = sent[0], sent[-1]
        for one in (first, last):
            assert puller.view(topic, one["msgId"])["offset"] == one["offset"]
            assert puller.view(topic, one["offsetMsgId"])["offset"] == one["offset"]
    by_key = mqadmin("queryMsgByKey", "-n", indexed.namesrv, "-t", topic, "-k", "k2-5")
    assert sent[45]["msgId"] in by_key, by_key
    by_unique_id = mqadmin(
        "queryMsgByUniqueKey", "-n", indexed.namesrv, "-t", topic, "-i", first["msgId"]
    )
    assert "k0-0" in by_unique_id, by_unique_id
    # 4.9.7's knows no topic there.
    more = () if java.version == "4.9.7" else ("-t", topic)
    by_offset_id = mqadmin("queryMsgById", "-n", indexed.namesrv, "-i", last["offsetMsgId"], *more)
    assert "k3-19" in by_offset_id, by_offset_id


def test_a_queue_beside_the_filter_of_a_group(
    java: JavaClients, mqadmin: Callable[..., str], indexed: Cluster, names
) -> None:
    topic, group = indexed.create_topic(java, names.topic, queues=1), names.group
    arguments = ["-n", indexed.namesrv, "-b", indexed.broker.address, "-t", topic, "-q", "0"]
    with (
        java.producer(indexed.namesrv, names.group) as producer,
        java.consumer(indexed.namesrv, group, {topic: "a > 5"}, sql=True) as consumer,
    ):
        producer.send(
            *({"topic": topic, "body": str(n), "properties": {"a": str(n)}} for n in range(10))
        )
        consumer.wait_bodies({"6", "7", "8", "9"})
        units = mqadmin("queryCq", *arguments, "-i", "2", "-c", "5", "-g", group)
        assert "Filter data" in units and '"expression":"a > 5"' in units.replace('": "', '":"')
        assert '"subString":"a > 5"' in units.replace('": "', '":"'), units
        numbered = [line for line in units.splitlines() if line.lstrip().startswith("idx")]
        assert len(numbered) == 5, units
        stranger = mqadmin("queryCq", *arguments, "-i", "0", "-g", names.group)
        assert "expression" not in stranger, stranger
