"""The runbooks of docs/replication.md, followed: a planned switch, and one after a loss."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.fastjson import loads
from rocketmq_tw.wire.headers.topics import GetTopicConfigRequestHeader
from tests.support.cluster import make_name_server
from tests.support.load import Acked, Load, read_topic, send_request, send_until_accepted
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.remoting import ask, create_topic
from tests.support.replicas import (
    Replicas,
    log_digest,
    log_end,
    slaves_in_sync,
    wait_equal,
    wait_topic,
)
from tests.support.storecheck import read_log
from tests.support.wait import wait_until

TOPIC = "load"
#: Of `TEST_SETTINGS`: six seconds, by when another broker is the master.
LATE_LEVEL = 9


@pytest.fixture
def name_server(servers: str, tmp_path: Path) -> Iterator[NameServerProcess]:
    with make_name_server(servers, tmp_path / "namesrv") as started:
        assert isinstance(started, NameServerProcess)
        yield started


@pytest.fixture
def pair(servers: str, name_server: NameServerProcess, tmp_path: Path) -> Iterator[Replicas]:
    with Replicas("pair", tmp_path, [name_server], master=servers, slaves=[servers]) as replicas:
        replicas.master.start()
        send_until_accepted(replicas.master.address, TOPIC, b"first")
        replicas.slave.start()
        wait_topic(replicas.slave, TOPIC)
        yield replicas


def write(broker: BrokerProcess, prefix: str, count: int) -> list[Acked]:
    load = Load(broker.address, TOPIC, prefix, threads=2)
    wait_until(lambda: len(load.acked) >= count, "acks")
    return load.stop()


def turn(broker: BrokerProcess, role: str, broker_id: int) -> None:
    """What the runbook changes in the broker's file."""
    broker.settings |= {"brokerRole": role, "brokerId": str(broker_id)}


def missing(broker: BrokerProcess, acked: list[Acked]) -> list[Acked]:
    served = {(r.queue, r.offset): r.body for r in read_topic(broker.address, TOPIC)}
    return [a for a in acked if served.get((a.queue, a.offset)) != a.body]


def test_a_planned_switch_loses_nothing_and_moves_no_store(
    name_server: NameServerProcess, pair: Replicas
) -> None:
    former, new = pair.master, pair.slave
    acked = write(former, "before", 300)
    late = send_request(TOPIC, 0, b"late")
    late.ext_fields["i"] = f"DELAY\x01{LATE_LEVEL}\x02"
    assert ask(former.address, late).code == ResponseCode.SUCCESS
    former.stop()
    *_, last = read_log(former.store)
    assert log_end(new) == last.position + last.size, "a stop hands the whole log over"
    new.stop()
    turn(new, "ASYNC_MASTER", 0)
    new.start()
    wait_until(lambda: name_server.routes(TOPIC, [new]), "the route to the new master")
    acked += write(new, "after", 300)
    assert not missing(new, acked)

    turn(former, "SLAVE", 1)
    former.start()
    wait_until(lambda: slaves_in_sync(new) == 1, "the former master to follow")
    end = wait_equal(new, former)
    assert log_digest(former, 0, end) == log_digest(new, 0, end)

    def delivered() -> bool:
        return b"late" in [record.body for record in read_topic(new.address, TOPIC)]

    wait_until(delivered, "the new master to deliver what is due")


@pytest.mark.parametrize(("end", "queues"), [("stop", {7}), ("kill", {7, 8})])
def test_a_topic_of_the_last_moment_is_at_the_new_master(
    name_server: NameServerProcess, pair: Replicas, end: str, queues: set[int]
) -> None:
    """A stop lets the slave copy it as it is; behind a kill its message shows that it is there, and
    the topic may have as many queues as new ones get."""
    former, new = pair.master, pair.slave
    # Meanwhile the slave has made its first copy, and is told of a stop from then on.
    write(former, "before", 300)
    create_topic(former.address, "late", queues=7)
    assert ask(former.address, send_request("late", 6, b"m")).code == ResponseCode.SUCCESS
    if end == "kill":
        pair.wait_equal(new)
    getattr(former, end)()
    new.stop()
    turn(new, "ASYNC_MASTER", 0)
    new.start()
    wait_until(lambda: name_server.routes("late", [new]), "the route to the new master")
    asked = RemotingCommand.request(
        RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic="late")
    )
    assert loads(ask(new.address, asked).body)["readQueueNums"] in queues
    assert [record.body for record in read_topic(new.address, "late", 7)] == [b"m"]


def test_a_master_that_was_lost_comes_back_empty(
    name_server: NameServerProcess, pair: Replicas
) -> None:
    former, new = pair.master, pair.slave
    acked = write(former, "before", 300)
    pair.wait_equal(new)
    # The slave stops first, so the master has messages that nobody else has.
    new.stop()
    write(former, "not copied", 50)
    former.kill()

    turn(new, "ASYNC_MASTER", 0)
    new.start()
    assert not missing(new, acked)
    acked += write(new, "after", 300)

    # With its old store it is told what to do, and changes nothing.
    turn(former, "SLAVE", 1)
    turn_log = former.log_text()
    former.start()
    wait_until(
        lambda: "move its store away" in former.log_text().removeprefix(turn_log), "the advice"
    )
    assert slaves_in_sync(new) == 0
    former.stop()
    former.store.rename(former.store.with_name("store-of-the-former-master"))
    former.start()
    wait_until(lambda: slaves_in_sync(new) == 1, "the former master to follow")
    end = wait_equal(new, former)
    assert log_digest(former, 0, end) == log_digest(new, 0, end)
    response = ask(former.address, send_request(TOPIC, 0, b"to the slave"))
    assert response.code == ResponseCode.SYSTEM_BUSY
