"""Extensions of queues with the bits of filters: stores change hands between our brokers and
stock's while a group filters, and each goes on with what the other one wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import pytest

from rocketmq_tw.storecheck.findings import Remedy
from tests.support.cluster import OURS, Cluster, make_brokers_of_one_store, make_name_server
from tests.support.jars import STOCK_VERSIONS
from tests.support.java_client import JavaClients, Json
from tests.support.processes import BrokerProcess
from tests.support.storecheck import check_store, findings_of
from tests.support.wait import wait_until

NEWEST = STOCK_VERSIONS[-1]
FILE_SIZE = 4096
SETTINGS = {
    "enablePropertyFilter": "true",
    "enableConsumeQueueExt": "true",
    "enableCalcFilterBitMap": "true",
    "mappedFileSizeConsumeQueueExt": str(FILE_SIZE),
}
#: Five seconds: about what the second broker takes to start.
DELAY_LEVEL = 2
ROUND = 150
TAGS = "xyz"

_UNIT = Struct(">qiq")
_HEAD = Struct(">hqqh")


class Extra(NamedTuple):
    """What the extension of a queue has of one message."""

    tags_code: int
    stored: int
    bits: bytes


def extras(store: Path, topic: str) -> Iterator[tuple[int, Extra]]:
    """The numbers of the units of queue 0 and what each leads to, read as stock describes it."""
    queue = b"".join(
        path.read_bytes() for path in sorted((store / "consumequeue" / topic / "0").iterdir())
    )
    for number, (_, size, address) in enumerate(_UNIT.iter_unpack(queue)):
        if not size:
            return
        assert address < -(1 << 31), f"unit {number} has {address}"
        offset = address + (1 << 63)
        start = offset - offset % FILE_SIZE
        data = (store / "consumequeue_ext" / topic / "0" / f"{start:020d}").read_bytes()
        assert len(data) == FILE_SIZE
        at = offset - start
        size, tags_code, stored, bits_size = _HEAD.unpack_from(data, at)
        assert size == _HEAD.size + bits_size and at + size <= FILE_SIZE - 4
        yield number, Extra(tags_code, stored, data[at + _HEAD.size : at + size])


def check_extension(store: Path, topic: str, group: str, least: int) -> None:
    """The extension has the tag of each message, and the right bits of `least` at least."""
    found = dict(extras(store, topic))
    table: Json = json.loads((store / "config" / "consumerFilter.json").read_text())
    known = table["filterDataByTopic"][topic]["groupFilterData"][group]["bloomFilterData"]
    with_bits = 0
    for number, extra in found.items():
        assert extra.tags_code == ord(TAGS[number % len(TAGS)])
        if extra.bits:
            assert len(extra.bits) * 8 == known["bitNum"]
            bits = {n for n in range(known["bitNum"]) if extra.bits[n // 8] >> n % 8 & 1}
            assert bits == (set(known["bitPos"]) if number % 10 > 5 else set()), number
            with_bits += 1
    assert with_bits >= least, f"{with_bits} of {len(found)}"


@pytest.mark.parametrize(
    ("first", "second", "end"),
    [
        (OURS, NEWEST, BrokerProcess.stop),
        (NEWEST, OURS, BrokerProcess.kill),
        (OURS, STOCK_VERSIONS[0], BrokerProcess.kill),
        (STOCK_VERSIONS[0], OURS, BrokerProcess.stop),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_store_changes_hands(
    first: str, second: str, end, servers: str, jvms: dict[str, JavaClients], tmp_path: Path, names
) -> None:
    java, topic, group = jvms[NEWEST], names.topic, names.group
    name_server = make_name_server(OURS, tmp_path / "namesrv")
    kinds = [servers if kind == OURS else kind for kind in (first, second)]
    brokers = make_brokers_of_one_store(kinds, "handed-over", tmp_path, name_server, SETTINGS)
    writer, reader = brokers
    store = writer.store

    def messages(start: int) -> list[Json]:
        return [
            {
                "topic": topic,
                "body": str(number),
                "tags": TAGS[number % len(TAGS)],
                "properties": {"a": str(number % 10)},
            }
            for number in range(start, start + ROUND)
        ]

    def wanted(count: int) -> set[str]:
        return {str(number) for number in range(count) if number % 10 > 5}

    try:
        name_server.start()
        writer.start()
        cluster = Cluster([name_server], [writer])
        cluster.create_topic(java, topic, queues=1)
        later = names.topic
        with (
            java.producer(name_server.address, names.group) as producer,
            java.puller(name_server.address) as puller,
            java.consumer(name_server.address, group, {topic: "a > 5"}, sql=True) as consumer,
        ):
            wait_until(consumer.assigned, "the queue", interval=0.1)
            producer.send(*messages(0))
            consumer.wait_bodies(wanted(ROUND))
            producer.send({"topic": later, "body": "delayed", "delayLevel": DELAY_LEVEL})
            end(writer)
            # What a kill leaves unwritten is brought by the start.
            left = {found.remedy for found in findings_of(store)}
            assert left <= ({Remedy.START} if end is BrokerProcess.kill else set())
            if end is BrokerProcess.stop:
                check_extension(store, topic, group, ROUND - 20)

            reader.start()
            wait_until(lambda: name_server.routes(topic, [reader]), "the route")
            again = messages(ROUND)
            wait_until(lambda: producer.send(again[0]), "a send to the second", interval=0.2)
            producer.send(*again[1:10])
            # From here on the second one knows what the group asks.
            consumer.wait_bodies(wanted(ROUND + 10))
            producer.send(*again[10:])
            consumer.wait_bodies(wanted(2 * ROUND))
            # Due by now or soon: its time stands in the extension too.
            assert {m["body"] for m in puller.wait_drained(later, 1)} == {"delayed"}
            (queue,) = puller.queues(topic)
            tagged = puller.pull(queue, 0, 9, TAGS[1])["messages"]
            assert [each["body"] for each in tagged] == [str(3 * n + 1) for n in range(9)]
            shown = java.mqadmin(
                *("queryCq", "-n", name_server.address, "-b", reader.address, "-t", topic),
                *("-q", "0", "-i", str(2 * ROUND - 10), "-c", "10", "-g", group),
            )
            assert shown.count("eval=true") == 4 and shown.count("eval=false") == 6, shown
        reader.stop()
        check_store(store)
        assert findings_of(store) == []
        # A kill takes what the extension had in memory, or the file that says what a group asks.
        rounds = 2 if end is BrokerProcess.stop else 1
        check_extension(store, topic, group, rounds * (ROUND - 40))
    finally:
        for broker in brokers:
            broker.close()
        name_server.close()
