"""Groups whose slaves act for their masters, beside stock's name servers and brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocketmq_tw.client.blocking import BlockingClient
from rocketmq_tw.client.message import Message
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.namesrv import GetRouteInfoRequestHeader
from rocketmq_tw.wire.headers.pull import PULL_SUBSCRIPTION, PullMessageRequestHeader
from tests.support.cluster import OURS, make_broker, make_name_server
from tests.support.load import send_until_accepted
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.remoting import ask
from tests.support.replicas import wait_equal
from tests.support.wait import wait_until

#: ms of silence after which a broker is gone.
NOT_ACTIVE_MS = 3000
KEYS = {
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "slaveReadEnable": "true",
    "brokerNotActiveTimeoutMillis": str(NOT_ACTIVE_MS),
}
TOPIC = "Orders"
#: The delay level of 3 s in tests.
THREE_SECONDS = 6


@contextmanager
def group(
    name: str, kinds: tuple[str, ...], home: Path, names: NameServerProcess, **keys: str
) -> Iterator[list[BrokerProcess]]:
    """A master and its slaves, started, with the topic on the master."""
    brokers = [
        make_broker(
            kind,
            name,
            home / f"{name}-{number}",
            [names],
            settings=KEYS
            | {"brokerId": str(number), "brokerRole": "SLAVE" if number else "ASYNC_MASTER"}
            | keys,
        )
        for number, kind in enumerate(kinds)
    ]
    try:
        for broker in brokers:
            broker.start()
        send_until_accepted(brokers[0].address, TOPIC, b"first of " + name.encode())
        wait_until(lambda: names.routes(TOPIC, brokers[:1]), "the route")
        yield brokers
    finally:
        for broker in brokers:
            broker.close()


def shown(names: NameServerProcess, name: str) -> tuple[dict[int, str], int]:
    """Brokers and permission of a group in the route; none and 0 where it has nothing of it."""
    header = GetRouteInfoRequestHeader(topic=TOPIC, accept_standard_json_only=True)
    request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
    route = decode_body(TopicRouteData, ask(names.address, request).body)
    brokers = [each.broker_addrs for each in route.broker_datas if each.broker_name == name]
    perms = [each.perm for each in route.queue_datas if each.broker_name == name]
    return (dict(brokers[0]), perms[0]) if brokers and perms else ({}, 0)


def copied(slave: BrokerProcess) -> bool:
    """Whether a slave gives consumers the message of the topic."""
    header = PullMessageRequestHeader(
        consumer_group="tests",
        topic=TOPIC,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=1,
        sys_flag=PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription="*",
    )
    answer = ask(slave.address, RemotingCommand.request(RequestCode.PULL_MESSAGE, header))
    return answer.code == ResponseCode.SUCCESS


def bodies(client: BlockingClient, name: str) -> list[bytes]:
    """What consumers see in all queues of a group."""
    return [
        message.body
        for queue in client.queues(TOPIC)
        if queue.broker_name == name
        for message in client.pull(queue, client.min_offset(queue), 32).messages
    ]


def test_beside_a_name_server_of_4_9_all_but_the_route_works(tmp_path: Path) -> None:
    with (
        make_name_server("4.9.7", tmp_path / "names") as names,
        group("b", (OURS,), tmp_path, names),
        group("a", (OURS, OURS), tmp_path, names) as (master, slave),
        BlockingClient([names.address], timeout=60) as client,
    ):
        queue = next(each for each in client.queues(TOPIC) if each.broker_name == "a")
        client.send(Message(TOPIC, b"later", delay_level=THREE_SECONDS), queue=queue)
        wait_equal(master, slave)
        master.kill()
        wait_until(lambda: "it acts for the master" in slave.log_text(), "the slave to act")
        wait_until(lambda: shown(names, "a") == ({1: slave.address}, 6), "the slave alone")
        wait_until(lambda: b"later" in bodies(client, "b"), "the delayed message")
        master.start()
        wait_until(lambda: "acts for the master no more" in slave.log_text(), "it to end that")
        both = ({0: master.address, 1: slave.address}, 6)
        wait_until(lambda: shown(names, "a") == both, "both of them")


@pytest.mark.parametrize(
    ("name_server", "kinds"),
    [(OURS, ("5.3.3", OURS)), (OURS, (OURS, "5.3.3")), ("5.3.3", (OURS, OURS))],
)
def test_the_slave_is_shown_in_place_of_the_master_beside_stock(
    name_server: str, kinds: tuple[str, str], tmp_path: Path
) -> None:
    often = {"supportActingMaster": "true", "scanNotActiveBrokerInterval": "1000"}
    with (
        make_name_server(name_server, tmp_path / "names", often) as names,
        group("a", kinds, tmp_path, names, compatibleWithOldNameSrv="false") as (master, slave),
        BlockingClient([names.address]) as client,
    ):
        wait_until(lambda: copied(slave), "the copy")
        master.kill()
        wait_until(lambda: shown(names, "a") == ({0: slave.address}, 4), "the route")
        wait_until(lambda: bodies(client, "a") == [b"first of a"], "the acting master's answer")
