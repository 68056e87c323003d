"""kill -9 of our broker while stock's 5.3 clients pop from it: nothing is lost, and what comes
twice was in work, or acknowledged after the broker had last written how far the group is."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.cluster import OURS, Cluster
from tests.support.java_client import JavaClients, JavaError, Json, PopConsumer
from tests.support.wait import wait_until

KILLS = 3
QUEUES = 4
EACH_ROUND = 150


@pytest.fixture
def own(servers: str, tmp_path: Path) -> Iterator[Cluster]:
    settings = {"flushConsumerOffsetInterval": "1000"}
    with Cluster.of(tmp_path, name_servers=[OURS], brokers=[servers], settings=settings) as made:
        yield made


class Popping:
    """Pops and acknowledges in a thread until it is stopped, whatever becomes of the broker."""

    def __init__(self, popper: PopConsumer, topic: str) -> None:
        #: Bodies in the order in which they came, and those whose acknowledgement was answered.
        self.came: list[str] = []
        self.acknowledged: list[str] = []
        #: Those whose acknowledgement the broker may have stored before it was killed.
        self.unanswered: list[str] = []
        self._popper = popper
        self._topic = topic
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                for message in self._popper.pop(self._topic, max=8, invisible=10_000, poll=1_000)[
                    "messages"
                ]:
                    self.came.append(message["body"])
                    self._acknowledge(message)
            except JavaError:
                # The broker is away.
                self._stopped.wait(0.2)

    def _acknowledge(self, message: Json) -> None:
        try:
            answer = self._popper.ack(message)
        except JavaError:
            self.unanswered.append(message["body"])
            raise
        if answer["status"] == "OK":
            self.acknowledged.append(message["body"])

    def has_acknowledged(self, count: int) -> bool:
        return len(set(self.acknowledged)) >= count

    def has_dealt_with(self, bodies: set[str]) -> bool:
        """Whether each was acknowledged, as far as anybody can know."""
        return bodies <= {*self.acknowledged, *self.unanswered}

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(120)
        assert not self._thread.is_alive()


def test_nothing_is_lost(jvms: dict[str, JavaClients], own: Cluster, names) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    java, broker = jvms["5.3.3"], own.broker
    topic = own.create_topic(java, names.topic, queues=QUEUES)
    group, pushed = names.group, names.group
    namesrv = own.namesrv
    for name in (group, pushed):
        java.mqadmin("updateSubGroup", "-n", namesrv, "-b", broker.address, "-g", name)
    java.mqadmin(
        *("setConsumeMode", "-n", namesrv, "-b", broker.address),
        *("-t", topic, "-g", pushed, "-m", "POP", "-q", "8"),
    )
    options = {"clientRebalance": False, "popInvisibleTime": 15_000}
    sent: set[str] = set()
    #: What must not come again, with the number of times that it had come by then.
    settled: dict[str, int] = {}
    #: What nobody knew to be acknowledged when the broker was killed. Pops of it may have been
    #: stored: it comes again once they are due, although it was popped once more before that.
    in_work: set[str] = set()
    with (
        java.producer(namesrv) as producer,
        java.popper(namesrv, group, broker.name, broker.address) as popper,
        java.consumer(namesrv, pushed, {topic: "*"}, **options) as consumer,
    ):
        popping = Popping(popper, topic)
        try:
            for round_ in range(KILLS):
                bodies = [f"{round_}-{number}" for number in range(EACH_ROUND)]
                first = EACH_ROUND // 2
                producer.send(*({"topic": topic, "body": body} for body in bodies[:first]))
                sent.update(bodies[:first])
                wait_until(lambda: popping.has_dealt_with(sent), "all acknowledged")
                done = Counter(popping.came)
                wait_until(
                    lambda: sum(broker.stored_offsets(topic, group).values()) >= len(sent),
                    "the group's offsets in the file",
                )
                settled.update({body: done[body] for body in sent - in_work})
                enough = len(set(popping.acknowledged)) + dice.randrange(EACH_ROUND // 2)
                producer.send(*({"topic": topic, "body": body} for body in bodies[first:]))
                sent.update(bodies[first:])
                wait_until(partial(popping.has_acknowledged, enough), f"{enough} of all")
                broker.kill()
                in_work |= sent - set(popping.acknowledged)
                broker.start()
            wait_until(lambda: popping.has_dealt_with(sent), "all acknowledged")
            consumer.wait_bodies(sent)
        finally:
            popping.stop()
    came = Counter(popping.came)
    again = {body: came[body] for body, count in settled.items() if came[body] > count}
    assert not again, f"acknowledged and in the file, and came again: {json.dumps(again)}"


def test_push_consumers_that_leave_queues_to_the_broker_lose_nothing(
    jvms: dict[str, JavaClients], own: Cluster, names
) -> None:
    """The broker is killed and the group reset while two of them work; what a reset that was told
    to be done brings back comes again."""
    java, broker, namesrv = jvms["5.3.3"], own.broker, own.namesrv
    topic, group = own.create_topic(java, names.topic, queues=QUEUES), names.group
    java.mqadmin("updateSubGroup", "-n", namesrv, "-b", broker.address, "-g", group)
    java.mqadmin(
        *("setConsumeMode", "-n", namesrv, "-b", broker.address),
        *("-t", topic, "-g", group, "-m", "POP", "-q", "8"),
    )
    # What was answered about the mode (401) holds.
    broker.kill()
    broker.start()
    wait_until(lambda: own.name_servers[0].routes(topic, [broker]), "the route")
    options = {"clientRebalance": False, "popInvisibleTime": 15_000}
    sent: set[str] = set()
    with (
        java.producer(namesrv) as producer,
        java.consumer(namesrv, group, {topic: "*"}, **options) as one,
        java.consumer(namesrv, group, {topic: "*"}, **options) as other,
    ):

        def came() -> Counter[str]:
            return Counter(message["body"] for each in (one, other) for message in each.received())

        def send(name: str) -> None:
            bodies = [f"{name}-{number}" for number in range(EACH_ROUND)]
            producer.send(*({"topic": topic, "body": body} for body in bodies))
            sent.update(bodies)

        def have_come(count: int) -> bool:
            return len(came()) >= count

        def reset() -> bool:
            """Whether it was told to be done: stock's tool gives up after five seconds."""
            options = ("-n", namesrv, "-g", group, "-t", topic, "-s", "0")
            return "Exception:" not in java.mqadmin("resetOffsetByTime", *options)

        def kill() -> None:
            broker.kill()
            broker.start()

        def all_came_beyond(before: Counter[str]) -> bool:
            after = came()
            return all(after[body] > before[body] for body in sent)

        for round_ in range(2):
            send(f"{round_}-reset")
            wait_until(partial(have_come, len(sent) - EACH_ROUND // 2), "half of them")
            before = came()
            wait_until(reset, "a reset to be done")
            wait_until(partial(all_came_beyond, before), "all again")
            send(f"{round_}-killed")
            wait_until(partial(have_come, len(sent) - EACH_ROUND // 2), "half of them")
            kill()
            wait_until(partial(have_come, len(sent)), "all")
            # The reset itself may be lost with the broker, its messages may not.
            send(f"{round_}-both")
            reset()
            kill()
            wait_until(partial(have_come, len(sent)), "all")
