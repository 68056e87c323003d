"""Orderly consumers of stock: whatever becomes of them or of the broker, a queue is consumed by one
of them at a time, from its beginning to its end."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.support.cluster import OURS, Cluster
from tests.support.java_client import JavaClients, Producer, PushConsumer
from tests.support.wait import wait_until

QUEUES = 4
#: A consumer that has to be waited for, so that it has messages in hand when something happens.
WORK_MS = 40


@pytest.fixture
def own(servers: str, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that the test may stop; the clients of other tests would hang on it."""
    with Cluster.of(tmp_path, name_servers=[OURS], brokers=[servers]) as started:
        yield started


def send(producer: Producer, topic: str, numbers: Iterable[int]) -> None:
    """Each number to each queue."""
    for number in numbers:
        for queue in range(QUEUES):
            producer.send({"topic": topic, "body": f"{number:04}"}, queue=queue)


def check_order(consumers: list[PushConsumer], topic: str) -> None:
    """No message was consumed before all in front of it in its queue, and none while another one
    of the queue was in work; what comes again comes with all behind it."""
    queues: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for consumer in consumers:
        for message in consumer.received():
            assert message["topic"] == topic
            queues[message["queue"]].append(
                (message["received"], int(message["body"]), consumer.handle)
            )
    assert sorted(queues) == list(range(QUEUES))
    for queue, seen in queues.items():
        seen.sort(key=lambda one: one[0])
        for (came, number, who), (then, following, other) in itertools.pairwise(seen):
            what = f"queue {queue}: {who} {number} at {came}, {other} {following} at {then}"
            assert following <= number + 1, what
            # Both clocks are this machine's; a sleep may end a little early.
            assert then - came >= WORK_MS - 5, what


def numbers_seen(consumers: list[PushConsumer]) -> set[tuple[int, str]]:
    return {
        (message["queue"], message["body"])
        for consumer in consumers
        for message in consumer.received()
    }


def wait_seen(consumers: list[PushConsumer], count: int) -> None:
    wanted = {(queue, f"{number:04}") for queue in range(QUEUES) for number in range(count)}
    wait_until(lambda: wanted <= numbers_seen(consumers), f"{count} of each queue", interval=0.2)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_broker_that_starts_again(
    end: str, jvms: dict[str, JavaClients], own: Cluster, names
) -> None:
    topic, group = own.create_topic(jvms["5.3.3"], names.topic, queues=QUEUES), names.group
    with (
        jvms["5.3.3"].producer(own.namesrv) as producer,
        # As by default it says seldom that it is there, so that a broker that starts again does
        # not know of it for a while, and the other one takes itself for the only member.
        jvms["4.9.7"].consumer(
            own.namesrv, group, {topic: "*"}, orderly=True, workMs=WORK_MS, heartbeatMs=10_000
        ) as one,
        jvms["5.3.3"].consumer(
            own.namesrv, group, {topic: "*"}, orderly=True, workMs=WORK_MS
        ) as other,
    ):
        both = [one, other]

        def shared() -> bool:
            held = [[q for q in each.assigned() if q["topic"] == topic] for each in both]
            return [len(queues) for queues in held] == [2, 2]

        for round_ in range(3):
            wait_until(shared, "two queues for each", interval=0.2)
            send(producer, topic, range(round_ * 60, round_ * 60 + 60))
            wait_seen(both, round_ * 60 + 20)
            if end == "stop":
                own.broker.stop()
            else:
                own.broker.kill()
            own.broker.start()
        wait_seen(both, 180)
        check_order(both, topic)


def test_consumers_that_come_and_go(
    jvms: dict[str, JavaClients], cluster: Cluster, producers: dict[str, Producer], names
) -> None:
    topic, group = cluster.create_topic(jvms["5.3.3"], names.topic, queues=QUEUES), names.group

    def consumer(version: str) -> PushConsumer:
        return jvms[version].consumer(
            cluster.namesrv, group, {topic: "*"}, orderly=True, workMs=WORK_MS
        )

    send(producers["4.9.7"], topic, range(200))
    started = [consumer("4.9.7")]
    wait_seen(started, 20)
    started.append(consumer("5.3.3"))
    wait_seen(started, 60)
    started.append(consumer("4.9.7"))
    wait_seen(started, 100)
    started[0].stop()
    wait_seen(started, 140)
    started[1].stop()
    wait_seen(started, 200)
    check_order(started, topic)
    started[2].stop()
