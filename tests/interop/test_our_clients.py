"""Our own clients on stock's servers and ours, beside stock clients on the same topics."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from rocketmq_tw.client.blocking import BlockingClient
from rocketmq_tw.client.message import Message
from tests.support.cluster import OURS, Cluster
from tests.support.jars import PROJECT, STOCK_VERSIONS
from tests.support.java_client import JavaClients
from tests.support.our_clients import PROPERTIES, REFUSED
from tests.support.wait import wait_until

KINDS = (OURS, *STOCK_VERSIONS)
#: The first delay level of the brokers under test.
DELAY_MS = 1000
#: Characters of a body that the Java driver shows.
SHOWN = 4096
#: Compressed, and with what: a client of 5.x clears the first bit when it decompresses, one of
#: 4.9 knows nothing of the others.
COMPRESSED_FLAGS = 0x701


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A name server and a broker of each kind."""
    home = tmp_path_factory.mktemp("clients")
    with Cluster.of(home, name_servers=list(KINDS), brokers=list(KINDS)) as started:
        yield started


def _run(name_server: str, topic: str, group: str, others: list[str]) -> dict[str, Any]:
    """What the program with our clients prints."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.support.our_clients",
            name_server,
            topic,
            group,
            *others,
        ],
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_our_clients_and_stocks_understand_each_other(
    kind: str, jvms: dict[str, JavaClients], mixed: Cluster, names
) -> None:
    namesrv = mixed.name_servers[KINDS.index(kind)].address
    java = jvms["4.9.7" if kind == "4.9.7" else "5.3.3"]
    topic, group = mixed.create_topic(java, names.topic, queues=2), names.group
    others = [f"java-{number}" for number in range(12)]
    compressed = "from java " * 1000
    with java.producer(namesrv) as producer:
        messages = [{"topic": topic, "body": body, "tags": "a"} for body in others]
        producer.send(*messages, {"topic": topic, "body": compressed, "tags": "b"})

    seen = _run(namesrv, topic, group, [*others, compressed])

    sent, late = seen["sent"], seen["late"]
    everything = {*sent, *others, compressed}
    attempts = defaultdict(list)
    for message in seen["consumed"]:
        attempts[message["body"]].append(message["times"])
        assert message["topic"] == topic
    assert attempts.keys() == everything
    assert {body: times for body, times in attempts.items() if times != [0]} == {
        body: [0, 1] for body in REFUSED
    }
    assert {m["broker"] for m in seen["consumed"]} == {broker.name for broker in mixed.brokers}
    (one,) = [m for m in seen["consumed"] if m["body"] == "own-5"]
    assert (one["tags"], one["keys"]) == ("b", ["key-5"])
    assert one["properties"] | PROPERTIES == one["properties"]
    delayed = [m["delay"] for m in seen["consumed"] if m["body"].startswith("delayed-")]
    assert len(delayed) == len(KINDS) and min(delayed) >= DELAY_MS - 10

    # A new member of the group goes on where the first one stopped.
    assert sorted(m["body"] for m in seen["again"]) == sorted(late)
    in_queues = defaultdict(list)
    for message in seen["ordered"]:
        in_queues[message["broker"], message["queue"]].append(message["offset"])
    assert all(offsets == sorted(set(offsets)) for offsets in in_queues.values()), in_queues
    assert {m["body"] for m in seen["ordered"]} == {*everything, *late}
    assert len(seen["pulled"]) == 2 * len(KINDS)
    for queue in seen["pulled"]:
        assert queue["offsets"] == list(range(queue["end"])), queue
        assert (queue["committed"], queue["found"]) == (queue["end"], 0), queue

    with java.puller(namesrv) as puller:
        drained = puller.drain(topic)
        small = {m["body"] for m in drained if "body" in m}
        large = [m for m in drained if "body" not in m]
        assert small - {"unwanted"} == {body for body in (*everything, *late) if len(body) <= SHOWN}
        assert sorted(m["size"] for m in large) == sorted(
            len(body) for body in everything if len(body) > SHOWN
        )
        assert all(m["sysFlag"] & COMPRESSED_FLAGS for m in large)
        (one,) = [m for m in drained if m.get("body") == "own-5"]
        assert (one["tags"], one["keys"]) == ("b", "key-5")
        assert one["properties"] | PROPERTIES == one["properties"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_blocking_client_sends_and_pulls(
    kind: str, jvms: dict[str, JavaClients], mixed: Cluster, names
) -> None:
    namesrv = mixed.name_servers[KINDS.index(kind)].address
    topic = mixed.create_topic(jvms["5.3.3"], names.topic, queues=2)
    bodies = [f"m{number}".encode() for number in range(12)]
    with BlockingClient([namesrv], timeout=60) as client:
        brokers = {client.send(Message(topic, body)).queue.broker_name for body in bodies}

        def pulled() -> list[bytes]:
            return [
                message.body
                for queue in client.queues(topic)
                for message in client.pull(queue, client.min_offset(queue), 32).messages
            ]

        # Stock puts what it has stored into its queues a little later.
        wait_until(lambda: len(pulled()) >= len(bodies), "all messages in their queues")
        assert sorted(pulled()) == sorted(bodies)
    assert brokers == {broker.name for broker in mixed.brokers}
