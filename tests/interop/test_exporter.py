"""Each metric that stock's rocketmq-exporter makes of stock's servers comes from ours too."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.cluster import OURS, make_broker, make_name_server
from tests.support.downloads import DownloadFailed
from tests.support.exporter import (
    NAMES,
    OF_CLIENT,
    RETRY,
    WITHOUT_VALUE,
    Exporter,
    Sample,
    names_in_source,
)
from tests.support.java_client import JavaClients
from tests.support.mqadmin_cases import NEW, OLD
from tests.support.wait import PeerFailed, wait_until

TOPIC = "Orders"
MESSAGES = 4
#: Group to how often it tries a message again before it gives it up.
GROUPS = {"billing": 16, "audit": 0}
#: What comes for each group, of which one may come later than the other.
_OF_GROUPS = {
    sample
    for group in GROUPS
    for topic in (TOPIC, f"{RETRY}{group}")
    for sample in (
        *((name, group, topic) for name in OF_CLIENT),
        ("rocketmq_consumer_offset", "broker-a", topic, group),
        ("rocketmq_group_count", group, "1"),
    )
}
#: Ours has timers always.
TIMERS = {"timerWheelEnable": "true"}


def samples(java: JavaClients, kind: str, home: Path, wanted: set[Sample]) -> set[Sample]:
    """What the exporter tells of a master and its slave of this kind, with a producer, a group that
    gives messages back and one that gives them up: once each of its metrics has a value, what is
    wanted is there, and nothing more comes."""
    with ExitStack() as ends:
        names = make_name_server(kind, home / "namesrv")
        ends.enter_context(names)
        master = make_broker(kind, "broker-a", home / "master", [names], settings=TIMERS)
        as_slave = {"brokerId": "1", "brokerRole": "SLAVE", **TIMERS}
        slave = make_broker(kind, "broker-a", home / "slave", [names], settings=as_slave)
        for broker in (master, slave):
            ends.enter_context(broker)
        java.create_topic(names.address, master.address, TOPIC, 2)
        wait_until(lambda: names.routes(TOPIC, [master]), "the route")
        for group, tries in GROUPS.items():
            ends.enter_context(
                java.consumer(
                    names.address, group, {TOPIC: "*"}, failTimes=1, maxReconsumeTimes=tries
                )
            )
        producer = ends.enter_context(java.producer(names.address, "shop"))
        for number in range(MESSAGES):
            producer.send({"topic": TOPIC, "body": f"order {number}"}, queue=number % 2)
        exporter = Exporter(
            java, names.address, ends.enter_context(java.puller(names.address, "exporter"))
        )

        before: set[Sample] = set()

        def complete() -> set[Sample]:
            found = exporter.collect()
            missing = sorted(NAMES - {name for name, *_ in found}), sorted(wanted - found)
            more = found - before
            before.update(found)
            if any(missing) or more:
                raise PeerFailed(f"no value of {missing}, new in this round: {more}")
            return found

        return wait_until(complete, "a value of each metric", interval=1)


@pytest.mark.parametrize("version", [NEW, pytest.param(OLD, marks=pytest.mark.more)])
def test_the_exporter_tells_the_same_of_ours_as_of_stocks(
    version: str, jvms: dict[str, JavaClients], tmp_path: Path
) -> None:
    java = jvms[version]
    told = samples(java, NEW, tmp_path / "stock", _OF_GROUPS)
    # Stock lists a connected group under the name of its topic too.
    stock = {sample for sample in told if not _is_of_topic_as_group(sample)}
    assert samples(java, OURS, tmp_path / "ours", stock) == stock


@pytest.mark.more
def test_the_names_are_those_of_its_source() -> None:
    try:
        registered = names_in_source()
    except DownloadFailed as error:
        pytest.skip(str(error))
    assert registered == NAMES | WITHOUT_VALUE
    assert not NAMES & WITHOUT_VALUE


def _is_of_topic_as_group(sample: Sample) -> bool:
    name, *labels = sample
    topics = (TOPIC, *(f"{RETRY}{group}" for group in GROUPS))
    if name == "rocketmq_group_count":
        return labels[0] in topics
    return any(labels.count(topic) == 2 for topic in topics)
