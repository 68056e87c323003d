"""Brokers that share the log of a DLedger group, stock's and ours in one: stock's clients find the
master, nothing acknowledged is lost, whichever member leads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster import OURS, make_name_server
from tests.support.dledger_group import DLedgerGroupProcesses
from tests.support.elected_brokers import SteadyLoad
from tests.support.java_client import JavaClients
from tests.support.wait import wait_until

V4, V5 = "4.9.7", "5.3.3"
#: Stock refuses what no quorum has only after this.
PRODUCER = {"retries": 0, "timeoutMs": 5000}


@pytest.mark.parametrize(
    ("kinds", "client", "killed"),
    [
        ([OURS, OURS, OURS], V4, 0),
        ([OURS, V4, V5], V4, 1),
        pytest.param([OURS, V5, OURS], V5, 1, marks=pytest.mark.more),
    ],
    ids=["ours", "ours-4.9-5.3", "ours-5.3-ours"],
)
def test_nothing_acknowledged_is_lost_when_leaders_are_killed(
    kinds: list[str],
    client: str,
    killed: int,
    jvms: dict[str, JavaClients],
    tmp_path: Path,
    names,
) -> None:
    """Each leads once under load, and one that does is killed."""
    name, topic, java = names.new("dledger"), names.topic, jvms[client]
    with (
        make_name_server(OURS, tmp_path / "names") as name_server,
        DLedgerGroupProcesses(name, tmp_path, name_server, kinds) as group,
    ):
        master = group.wait_master(3)
        java.create_topic(name_server.address, master.address, topic, 4)
        with (
            java.producer(name_server.address, names.group, **PRODUCER) as producer,
            SteadyLoad(producer, topic) as load,
        ):
            for leader in (*(number for number in range(3) if number != killed), killed):
                group.hand_over(leader)
                load.wait_more(50)
            dead = group.fail_master()
            load.wait_more(50)
            dead.start()
            group.wait_master(3)
            load.wait_more(50)
            acknowledged = load.stop()
        group.wait_equal()
        try:
            with java.consumer(name_server.address, names.group, {topic: "*"}) as consumer:
                consumer.wait_bodies({body.decode() for body in acknowledged})
        finally:
            # Where a consumer misses something: is it in the logs, and in the queues?
            for member in group.members:
                member.stop()
            group.check_all(topic, acknowledged)


@pytest.mark.parametrize("leader", [0, *(pytest.param(n, marks=pytest.mark.more) for n in (1, 2))])
def test_whoever_is_preferred_leads_stock_and_ours(
    leader: int, jvms: dict[str, JavaClients], tmp_path: Path, names
) -> None:
    """All of one log have the same bytes of messages and the same queues, of whichever kind the
    leader is: batches, keys and tags as well."""
    name, topic, java = names.new("dledger"), names.topic, jvms[V5]
    settings = {"preferredLeaderId": f"n{leader}"}
    with (
        make_name_server(V5, tmp_path / "names") as name_server,
        DLedgerGroupProcesses(name, tmp_path, name_server, [OURS, V4, V5], settings) as group,
    ):
        group.wait_leader(leader)
        java.create_topic(name_server.address, group.members[leader].address, topic, 4)
        with java.producer(name_server.address, names.group) as producer:
            sent = producer.send(
                *(
                    {"topic": topic, "body": f"b{n}", "tags": "t", "keys": f"k{n}"}
                    for n in range(40)
                )
            )
            assert all(one["status"] == "SEND_OK" for one in sent)
        group.wait_equal()
        with java.puller(name_server.address, names.group) as puller:
            # Stock fills its index behind the back of who was answered.
            found = wait_until(lambda: puller.query(topic, "k7"), "the message of a key")
            assert [one["body"] for one in found] == ["b7"]
            viewed = puller.view(topic, sent[3]["offsetMsgId"])
            assert viewed["body"] == "b3"
        for member in group.members:
            member.stop()
        wanted = {f"b{number}".encode() for number in range(40)}
        assert group.check_all(topic, wanted) == 40
        bodies = [
            [entry.body for entry in group.entries(one) if entry.body] for one in group.members
        ]
        assert bodies[0] == bodies[1] == bodies[2]
