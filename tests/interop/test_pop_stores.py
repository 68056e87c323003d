"""Popping with stock 5.3's clients: a store with what was popped and not acknowledged, handed from
one broker to the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.test_pop import PATIENT, SETTINGS, STOCK, popper_of, wait_readable
from tests.support.cluster import OURS, Cluster, make_brokers_of_one_store
from tests.support.java_client import JavaClients, Json
from tests.support.wait import wait_until


@pytest.mark.parametrize(("first", "second"), [(OURS, STOCK), (STOCK, OURS)])
def test_a_store_with_check_points_that_wait(
    first: str,
    second: str,
    jvms: dict[str, JavaClients],
    cluster: Cluster,
    tmp_path: Path,
    names,
) -> None:
    java, name_server = jvms[STOCK], cluster.name_servers[0]
    name, topic, group = names.new("popped"), names.topic, names.group
    brokers = make_brokers_of_one_store((first, second), name, tmp_path, name_server, SETTINGS)
    writer, reader = brokers
    try:
        writer.start()
        java.create_topic(name_server.address, writer.address, topic, 1)
        wait_until(lambda: name_server.routes(topic, [writer]), "the route")
        with (
            java.producer(name_server.address) as producer,
            popper_of(java, writer, group) as popper,
        ):
            for number in range(4):
                producer.send({"topic": topic, "body": f"m{number}"})
            wait_readable(java, name_server.address, topic, 4)
            # Longer than the second broker takes to start on a busy machine.
            popped = popper.pop(topic, max=3, invisible=90_000, poll=PATIENT)["messages"]
            assert [message["body"] for message in popped] == ["m0", "m1", "m2"]
            assert popper.ack(popped[1])["status"] == "OK"
            writer.stop()
            reader.start()
            assert popper.ack(popped[2])["status"] == "OK"
            (last,) = popper.pop(topic, poll=PATIENT)["messages"]
            assert last["body"] == "m3"
            popper.ack(last)

            def again() -> list[Json]:
                messages: list[Json] = popper.pop(topic, poll=5_000)["messages"]
                return messages

            revived = wait_until(again, "what nobody acknowledged", limit=180)
            assert [message["body"] for message in revived] == ["m0"]
            assert revived[0]["reconsumeTimes"] == 1
            popper.ack(revived[0])
            assert not popper.pop(topic, poll=8_000)["messages"]
    finally:
        for broker in brokers:
            broker.close()
