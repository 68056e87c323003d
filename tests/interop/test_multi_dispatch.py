"""Light queues (%LMQ%) with stock's clients of both versions, and stores that change hands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import OURS, Cluster, make_brokers_of_one_store, make_name_server
from tests.support.jars import STOCK_VERSIONS
from tests.support.java_client import JavaClients, Json, PullConsumer
from tests.support.wait import wait_until

SETTINGS = {"enableLmq": "true", "enableMultiDispatch": "true"}


@pytest.fixture(scope="module")
def light(servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("light")
    with Cluster.of(home, name_servers=[servers], brokers=[servers], settings=SETTINGS) as started:
        yield started


def message(topic: str, body: str, *queues: str) -> Json:
    return {"topic": topic, "body": body, "properties": {"INNER_MULTI_DISPATCH": ",".join(queues)}}


def bodies(puller: PullConsumer, topic: str, broker: str, count: int) -> list[str]:
    """What a light queue has, once there is so much."""
    queue = {"topic": topic, "broker": broker, "queue": 0}

    def pulled() -> list[str]:
        found: list[str] = []
        while (got := puller.pull(queue, len(found)))["messages"]:
            found += [each["body"] for each in got["messages"]]
        return found if len(found) >= count else []

    return wait_until(pulled, f"{count} messages of {topic}")


def test_light_queues(java: JavaClients, light: Cluster, names) -> None:
    topic = light.create_topic(java, names.topic, queues=2)
    first, second = f"%LMQ%{names.new('a')}", f"%LMQ%{names.new('b')}"
    broker = light.broker.name
    with (
        java.producer(light.namesrv, names.group) as producer,
        java.puller(light.namesrv, f"%LMQ%{names.group}") as puller,
    ):
        for number in range(6):
            producer.send(message(topic, str(number), first, *([second] if number % 2 else [])))
        # Each message stands in its own topic as well, which also tells the client of the broker.
        assert len(puller.wait_drained(topic, 6)) == 6
        assert bodies(puller, first, broker, 6) == [str(n) for n in range(6)]
        assert bodies(puller, second, broker, 3) == ["1", "3", "5"]
        queue = {"topic": first, "broker": broker, "queue": 0}
        assert puller.max_offset(queue) == 6
        puller.commit(queue, 4)
        wait_until(lambda: puller.committed(queue) == 4, "the offset in a light queue")


@pytest.mark.parametrize("stock", STOCK_VERSIONS)
@pytest.mark.parametrize("ours_first", [True, False], ids=["ours-first", "stock-first"])
def test_a_store_changes_hands(
    stock: str, ours_first: bool, jvms: dict[str, JavaClients], tmp_path: Path, names
) -> None:
    """The second broker shows the light queues, goes on with them and knows their offsets."""
    java = jvms[stock]
    topic, group = names.topic, f"%LMQ%{names.group}"
    lights = [f"%LMQ%{names.new(each)}" for each in "ab"]
    name_server = make_name_server(OURS, tmp_path / "namesrv")
    kinds = [OURS, stock] if ours_first else [stock, OURS]
    first, second = brokers = make_brokers_of_one_store(
        kinds, "handed-over", tmp_path, name_server, SETTINGS
    )
    queue = {"topic": lights[0], "broker": "handed-over", "queue": 0}
    try:
        name_server.start()
        first.start()
        cluster = Cluster([name_server], [first])
        cluster.create_topic(java, topic, queues=1)
        with (
            java.producer(name_server.address, names.group) as producer,
            java.puller(name_server.address, group) as puller,
        ):
            producer.send(*(message(topic, str(n), *lights) for n in range(3)))
            puller.wait_drained(topic, 3)
            assert bodies(puller, lights[0], "handed-over", 3) == ["0", "1", "2"]
            puller.commit(queue, 2)
            wait_until(lambda: puller.committed(queue) == 2, "the offset at the first broker")
            first.stop()
            second.start()
            wait_until(lambda: name_server.routes(topic, [second]), "the route")
            wait_until(
                lambda: producer.send(message(topic, "3", lights[0])), "a send to the second"
            )
            assert bodies(puller, lights[0], "handed-over", 4) == ["0", "1", "2", "3"]
            assert bodies(puller, lights[1], "handed-over", 3) == ["0", "1", "2"]
            assert puller.committed(queue) == 2
    finally:
        for broker in brokers:
            broker.close()
        name_server.close()
