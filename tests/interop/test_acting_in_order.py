"""A group whose master dies under an orderly consumer of stock, and how soon its route changes."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.namesrv import GetRouteInfoRequestHeader
from rocketmq_tw.wire.headers.offsets import (
    UpdateConsumerOffsetRequestHeader,
)
from tests.support.cluster import OURS, make_broker, make_name_server
from tests.support.java_client import JavaClients, PushConsumer
from tests.support.load import send_until_accepted
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.remoting import ask, committed_offset
from tests.support.replicas import log_end
from tests.support.wait import wait_until

NOT_ACTIVE_MS, SCAN_MS = 5000, 1000
NAMES = {"supportActingMaster": "true", "scanNotActiveBrokerInterval": str(SCAN_MS)}
KEYS = {
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "brokerNotActiveTimeoutMillis": str(NOT_ACTIVE_MS),
    "compatibleWithOldNameSrv": "false",
    "totalReplicas": "2",
}
TOPIC, QUEUES, COUNT, WORK_MS = "Orders", 4, 100, 20
#: A group without members.
GONE = "Gone"


def start_group(
    kind: str, home: Path, names: NameServerProcess, stack: ExitStack
) -> tuple[BrokerProcess, BrokerProcess]:
    """A master and its slave, with the topic."""
    master, slave = (
        make_broker(
            kind,
            "a",
            home / str(number),
            [names],
            settings=KEYS
            | {"brokerId": str(number), "brokerRole": "SLAVE" if number else "ASYNC_MASTER"},
        )
        for number in range(2)
    )
    for broker in (master, slave):
        stack.callback(broker.close)
        broker.start()
    send_until_accepted(master.address, TOPIC, b"first")
    wait_until(lambda: names.routes(TOPIC, [master]), "the route")
    return master, slave


def shown(names: NameServerProcess) -> dict[int, str]:
    """The brokers of the topic in the route."""
    header = GetRouteInfoRequestHeader(topic=TOPIC, accept_standard_json_only=True)
    request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
    answer = ask(names.address, request)
    if not answer.body:
        return {}
    return dict(decode_body(TopicRouteData, answer.body).broker_datas[0].broker_addrs)


def numbers(consumer: PushConsumer) -> dict[int, list[int]]:
    """What came from each queue, in the order in which it came."""
    found: dict[int, list[int]] = defaultdict(list)
    for message in sorted(consumer.received(), key=lambda one: one["received"]):
        if message["body"] != "first":
            found[message["queue"]].append(int(message["body"]))
    return found


def offsets(broker: BrokerProcess, group: str) -> list[int | None]:
    """How far a broker has a group in each queue; None where it consumed nothing."""
    return [committed_offset(broker.address, group, TOPIC, queue) for queue in range(QUEUES)]


def told(java: JavaClients, names: NameServerProcess, group: str) -> list[list[str]]:
    """What mqadmin tells of each queue of the topic, and of how far a group has come."""
    commands = f"topicStatus -t {TOPIC}", f"consumerProgress -g {group}"
    printed = [java.mqadmin_done(*each.split(), "-n", names.address) for each in commands]
    rows = [line.split() for text in printed for line in text.splitlines()]
    return [row for row in rows if "a" in row[:2]]


def leave_a_group(
    java: JavaClients, names: NameServerProcess, master: BrokerProcess, slave: BrokerProcess
) -> None:
    """A group consumes what is there and goes; returns once the slave has what is left of it."""
    with java.consumer(names.address, GONE, {TOPIC: "*"}) as member:
        member.received(1)
        member.stop()
    wait_until(lambda: names.routes(f"%RETRY%{GONE}", [slave]), "the copy of the topic")
    wait_until(
        lambda: 1 in offsets(slave, GONE) and offsets(slave, GONE) == offsets(master, GONE),
        "the copy of the offsets",
    )


def test_an_orderly_consumer_goes_on_nothing_is_skipped_and_tools_say_so(
    jvms: dict[str, JavaClients], tmp_path: Path
) -> None:
    with ExitStack() as stack:
        names = stack.enter_context(make_name_server(OURS, tmp_path / "names", NAMES))
        master, slave = start_group(OURS, tmp_path, names, stack)
        leave_a_group(jvms["5.3.3"], names, master, slave)
        producer = stack.enter_context(jvms["5.3.3"].producer(names.address))
        for number in range(COUNT):
            for queue in range(QUEUES):
                producer.send({"topic": TOPIC, "body": str(number)}, queue=queue)
        wait_until(lambda: log_end(slave) == log_end(master), "the copy")
        before = {version: told(java, names, GONE) for version, java in jvms.items()}
        for rows in before.values():
            assert len(rows) == 2 * QUEUES, rows
        consumer = stack.enter_context(
            jvms["5.3.3"].consumer(names.address, "G", {TOPIC: "*"}, orderly=True, workMs=WORK_MS)
        )
        wait_until(lambda: any(len(its) > 20 for its in numbers(consumer).values()), "some")
        master.kill()
        wait_until(
            lambda: all(
                set(numbers(consumer)[queue]) == set(range(COUNT)) for queue in range(QUEUES)
            ),
            "all messages",
            limit=180,
        )
        for queue, came in numbers(consumer).items():
            steps = [(one, other) for one, other in itertools.pairwise(came) if other > one + 1]
            assert not steps, f"queue {queue} skips: {steps}"
        for version, java in jvms.items():
            assert told(java, names, GONE) == before[version]
        wait_until(
            lambda: offsets(slave, "G") == [COUNT + 1, *[COUNT] * (QUEUES - 1)], "the commits"
        )
        for java in jvms.values():
            left = java.mqadmin_done("consumerProgress", "-g", "G", "-n", names.address)
            assert "Diff Total: 0" in left, left


def commit(broker: BrokerProcess, offset: int) -> None:
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group="G", topic=TOPIC, queue_id=0, commit_offset=offset
    )
    request = RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    assert ask(broker.address, request).code == ResponseCode.SUCCESS


def committed(broker: BrokerProcess) -> int | None:
    return committed_offset(broker.address, "G", TOPIC, 0)


def test_a_master_that_was_paused_has_its_slave_s_offsets_when_it_is_found_again(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        names = stack.enter_context(make_name_server(OURS, tmp_path / "names", NAMES))
        master, slave = start_group(OURS, tmp_path, names, stack)
        for number in range(50):
            send_until_accepted(master.address, TOPIC, b"%d" % number)
        commit(master, 1)
        wait_until(lambda: committed(slave) == 1, "the copy of the offset")
        wait_until(lambda: log_end(slave) == log_end(master), "the copy of the log")
        master.pause()
        wait_until(lambda: shown(names) == {0: slave.address}, "the route")
        # A moment later than name servers say so: what it takes before counts for its master less
        # than the master's own.
        wait_until(lambda: "it acts for the master" in slave.log_text(), "the slave to act")
        commit(slave, 5)
        master.resume()
        wait_until(lambda: shown(names).get(0) == master.address, "the master")
        assert committed(master) == 5


@pytest.mark.more
@pytest.mark.parametrize("lose", [BrokerProcess.kill, BrokerProcess.pause], ids=["kill", "pause"])
@pytest.mark.parametrize("kind", [OURS, "5.3.3"])
def test_the_route_is_the_acting_one_within_a_time_out_and_a_scan(
    kind: str, lose: Callable[[BrokerProcess], None], tmp_path: Path
) -> None:
    with ExitStack() as stack:
        names = stack.enter_context(make_name_server(kind, tmp_path / "names", NAMES))
        master, slave = start_group(kind, tmp_path, names, stack)
        wait_until(lambda: shown(names) == {0: master.address, 1: slave.address}, "both")
        lose(master)
        began = time.monotonic()
        wait_until(lambda: shown(names) == {0: slave.address}, "the route", limit=60)
        took = time.monotonic() - began
        print(f"{kind}, {lose.__name__}: {took:.1f} s")
        # Half a second for the question itself.
        assert took < (NOT_ACTIVE_MS + SCAN_MS) / 1000 + 0.5
        if master.away:
            master.resume()
