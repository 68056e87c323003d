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
from tests.support.java_client import JavaClients, JavaError, PopConsumer
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
                    if self._popper.ack(message)["status"] == "OK":
                        self.acknowledged.append(message["body"])
            except JavaError:
                # The broker is away.
                self._stopped.wait(0.2)

    def has_acknowledged(self, count: int) -> bool:
        return len(set(self.acknowledged)) >= count

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
                wait_until(lambda: sent <= set(popping.acknowledged), "all acknowledged")
                done = Counter(popping.came)
                wait_until(
                    lambda: sum(broker.stored_offsets(topic, group).values()) >= len(sent),
                    "the group's offsets in the file",
                )
                settled.update({body: done[body] for body in sent})
                producer.send(*({"topic": topic, "body": body} for body in bodies[first:]))
                sent.update(bodies[first:])
                enough = len(settled) + dice.randrange(EACH_ROUND // 2)
                wait_until(partial(popping.has_acknowledged, enough), f"{enough} of all")
                broker.kill()
                broker.start()
            wait_until(lambda: sent <= set(popping.acknowledged), "all acknowledged")
            consumer.wait_bodies(sent)
        finally:
            popping.stop()
    came = Counter(popping.came)
    again = {body: came[body] for body, count in settled.items() if came[body] > count}
    assert not again, f"acknowledged and in the file, and came again: {json.dumps(again)}"
