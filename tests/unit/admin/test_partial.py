"""Commands that ask several brokers while one of them is down: what the others say is shown, the
one is named in a line on stderr, and the status is 1."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.client.message import Message
from rocketmq_tw.client.producer import Producer
from rocketmq_tw.client.session import Session
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.unit.admin.conftest import World

TRACES = "Traces"
#: As unique ids are, of a message that is nowhere; as an offset id it names no broker.
NO_ID = "0A000109000100000000000000000001"
A, B = "10.0.0.2:10911", "10.0.0.3:10911"
NAMES = {A: "broker-a", B: "broker-b"}


@pytest.fixture
def cluster(world: World) -> World:
    """Two brokers with a topic of a queue each, in which a group has read one of two messages; a
    traced one is on both."""
    world.add_broker("broker-b", "10.0.0.3")
    for topic in ("T", TRACES):
        world.rmqadmin(f"updateTopic -t {topic} -c DefaultCluster -r 1 -w 1")
    world.rmqadmin("updateSubGroup -g billing -c DefaultCluster")
    world.rmqadmin("updateSubGroup -g audit -c DefaultCluster")
    for name in NAMES.values():
        world.rmqadmin(f"sendMessage -t T -p from-{name} -k k -b {name} -i 0")
        event = ["Pub", "1700000000000", "r", "p", "T", "M1", "tag", "k", "h", "3", name]
        text = "\x01".join([*event[:10], "2", "0", "off", "true"]) + "\x02"
        world.rmqadmin("sendMessage", "-t", TRACES, "-p", text, "-k", "M1", "-b", name)
    consumer = world.consume("billing", "T")
    world.wait_for(lambda: all(offset(world, name) == 1 for name in NAMES.values()))
    world.result(consumer.stop())
    for name in NAMES.values():
        world.rmqadmin(f"sendMessage -t T -p more-from-{name} -b {name} -i 0")
    return world


def offset(world: World, name: str) -> int | None:
    return world.brokers[name].offsets.query("billing", "T", 0)


def other(address: str) -> str:
    return B if address == A else A


def only_told_of(dead: str, err: str, how: str = ": ") -> bool:
    return err.startswith(f"rmqadmin: {dead}{how}") and err.count("\n") == 1


def busy(request: RemotingCommand, peer: IPeer) -> RemotingCommand:
    return request.response(ResponseCode.SYSTEM_BUSY, "later")


#: What shows something of each broker.
LOOKS = (
    "clusterList",
    "clusterList -m",
    "consumerProgress",
    "consumerProgress -g billing",
    "consumerProgress -g billing -t T -s true",
    "startMonitoring --rounds 1",
    "statsAll",
    "statsAll -t T",
    "topicList -c",
    "topicStatus -t T",
    "queryMsgByKey -t T -k k",
    f"queryMsgTraceById -i M1 -t {TRACES}",
)


@pytest.mark.parametrize("dead", [A, B])
@pytest.mark.parametrize("command", LOOKS)
def test_what_the_living_say_is_shown(cluster: World, command: str, dead: str) -> None:
    cluster.network.stop(dead)
    outcome = cluster.rmqadmin(command)
    assert outcome.status == 1
    assert only_told_of(dead, outcome.err), outcome.err
    assert outcome.out
    cluster.network.stop(other(dead))
    assert cluster.rmqadmin(command).status == 1


@pytest.mark.parametrize("dead", [A, B])
def test_groups_are_behind_by_what_the_living_know(cluster: World, dead: str) -> None:
    def row():
        found = cluster.rmqadmin("consumerProgress --output json")
        return next(row for row in found.partial["groups"] if row["group"] == "billing")

    whole = cluster.rmqadmin("consumerProgress --output json").json["groups"]
    assert [row["diffTotal"] for row in whole if row["group"] == "billing"] == [2]
    assert "Without" not in cluster.rmqadmin("consumerProgress").out
    cluster.network.stop(dead)
    assert row()["diffTotal"] == 1 and row()["error"].startswith(f"{dead}: ")
    assert dead in cluster.rmqadmin("consumerProgress").out
    found = cluster.rmqadmin("consumerProgress -g billing -t T --output json").partial
    assert [queue["brokerName"] for queue in found["queues"]] == [NAMES[other(dead)]]
    found = cluster.rmqadmin("statsAll -t T --output json").partial
    assert [(row["group"], row["diffTotal"]) for row in found["topics"]] == [("billing", 1)]


#: What statsAll asks of each master.
COUNTS = (
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
    RequestCode.VIEW_BROKER_STATS_DATA,
    RequestCode.GET_CONSUME_STATS,
)


@pytest.mark.parametrize("code", COUNTS)
def test_what_a_busy_broker_has_counted_is_missing(cluster: World, code: int) -> None:
    cluster.let_answer(B, code, busy)
    outcome = cluster.rmqadmin("statsAll -t T --output json")
    assert [row["group"] for row in outcome.partial["topics"]] == ["billing"]
    assert only_told_of(B, outcome.err, " answered ")


@pytest.mark.parametrize("dead", [A, B])
def test_messages_are_found_at_the_living(cluster: World, dead: str) -> None:
    living = NAMES[other(dead)]
    (sent,) = [
        one
        for one in cluster.rmqadmin("queryMsgByKey -t T -k k --output json").json["messages"]
        if one["brokerName"] == living
    ]
    cluster.network.stop(dead)
    message_id = sent["messageId"]
    for command in (
        "queryMsgByKey -t T -k k",
        f"queryMsgByUniqueKey -t T -i {message_id}",
        f"queryMsgById -t T -i {message_id}",
    ):
        outcome = cluster.rmqadmin(f"{command} --output json")
        assert [one["brokerName"] for one in outcome.partial["messages"]] == [living]
        assert only_told_of(dead, outcome.err)


@pytest.mark.parametrize("dead", [A, B])
def test_messages_of_the_living_are_printed(cluster: World, dead: str) -> None:
    living = NAMES[other(dead)]
    cluster.network.stop(dead)
    for command in ("consumeMessage -t T", "printMsg -t T"):
        outcome = cluster.rmqadmin(command)
        assert outcome.status == 1
        assert f"from-{living}" in outcome.out and f"more-from-{living}" in outcome.out
        assert only_told_of(NAMES[dead], outcome.err) and dead in outcome.err
        # Nobody else is asked.
        outcome = cluster.rmqadmin(f"consumeMessage -t T -b {NAMES[dead]}")
        assert (outcome.status, outcome.out, outcome.err.count("\n")) == (1, "", 1)


@pytest.mark.parametrize("dead", [A, B])
def test_clients_that_the_living_know_are_shown(cluster: World, dead: str) -> None:
    session = Session(cluster.reactor, cluster.names, remoting=cluster.network.client("10.0.1.8"))
    producer = Producer(cluster.reactor, cluster.names, "makers", session=session)
    cluster.result(producer.start())
    cluster.result(producer.send(Message("T", b"x")))
    consumer = cluster.consume("billing", "T")
    cluster.wait_for(lambda: cluster.rmqadmin("producerConnection -g makers -t T").status == 0)
    commands = {
        "producerConnection -g makers -t T": "10.0.1.8",
        "consumerConnection -g billing": "10.0.1.9",
        "consumerStatus -g billing": "10.0.1.9",
        "consumer -g billing": "10.0.1.9",
        "getConsumerStatus -g billing -t T": "10.0.1.9",
    }
    for command in commands:
        assert cluster.rmqadmin(command).status == 0
    cluster.network.stop(dead)
    for command, client in commands.items():
        outcome = cluster.rmqadmin(command)
        assert outcome.status == 1 and client in outcome.out, command
        assert only_told_of(dead, outcome.err), command
    cluster.result(consumer.stop())
    cluster.result(producer.stop())


# Conclusions


def dead(cluster: World) -> None:
    cluster.network.stop(B)


def refusing(cluster: World) -> None:
    cluster.network.serve(B, dict.fromkeys(cluster.hosts[B].handlers, busy))


#: Commands that find nothing, to what they say of that.
CONCLUSIONS = {
    "queryMsgByKey -t T -k nix": "no message of T has the key nix",
    f"queryMsgByUniqueKey -t T -i {NO_ID}": "no message of T has the unique id",
    f"queryMsgById -t T -i {NO_ID}": "no message of T has the unique id",
    f"queryMsgTraceById -i nix -t {TRACES}": "nobody traced the message nix",
    "updateTopicPerm -c DefaultCluster -t OfB -p 4": "topic OfB is not on a broker of Def",
    "cloneGroupOffset -s audit -d billing -t T --yes": "group audit has consumed nothing of",
    "consumerProgress -g nix": "no broker has a group nix",
    "getConsumerConfig -g nix": "no broker has a group nix",
    "getConsumerStatus -g billing -t T": "",
    "consumerConnection -g billing": "no consumer of group billing is connected",
    "consumerConnection -g nix": "no consumer of group nix is connected",
    "consumerStatus -g billing": "no consumer of group billing is connected",
    "consumer -g billing": "no consumer of group billing is connected",
    "producerConnection -g nix -t T": "no producer of group nix is connected",
}


@pytest.mark.parametrize("fails", [dead, refusing])
@pytest.mark.parametrize("command", CONCLUSIONS)
def test_a_conclusion_names_the_broker_that_may_know_more(
    cluster: World, command: str, fails: Callable[[World], None]
) -> None:
    cluster.rmqadmin(f"updateTopic -t OfB -b {B} -r 1 -w 1")
    fails(cluster)
    outcome = cluster.rmqadmin(command)
    assert (outcome.status, outcome.out) == (1, "")
    told, failed = outcome.err.splitlines()
    assert told.startswith(f"rmqadmin: {B}")
    assert failed.startswith(
        f"rmqadmin: without {B}, which may know more: {CONCLUSIONS[command]}"
    ), failed


def test_a_member_may_be_at_a_broker_that_does_not_answer(cluster: World) -> None:
    consumer = cluster.consume("billing", "T")
    dead(cluster)
    outcome = cluster.rmqadmin("consumerStatus -g billing -i nix")
    assert outcome.err.splitlines()[1:] == [
        f"rmqadmin: without {B}, which may know more: the group billing has no member nix:"
        " consumerStatus without -i shows all"
    ]
    cluster.result(consumer.stop())


@pytest.mark.parametrize("command", ["consumerProgress", "startMonitoring --rounds 1"])
def test_no_group_is_found_where_no_broker_answers(world: World, command: str) -> None:
    world.network.stop(A)
    outcome = world.rmqadmin(command)
    told, nothing = outcome.err.splitlines()
    assert only_told_of(A, f"{told}\n")
    assert nothing.startswith(
        f"rmqadmin: without {A}, which may know more: there is no consumer group yet"
    )


# Changes


@pytest.mark.parametrize("dead", [A, B])
def test_the_living_are_changed(cluster: World, dead: str) -> None:
    living = other(dead)
    cluster.network.stop(dead)
    outcome = cluster.rmqadmin("updateTopicPerm -t T -c DefaultCluster -p 4 --output json")
    assert outcome.partial["brokers"] == [{"address": living, "permBefore": 6}]
    assert only_told_of(dead, outcome.err)
    topics = {address: cluster.hosts[address].topics.get("T") for address in (A, B)}
    assert {address: topic.perm for address, topic in topics.items() if topic} == {
        living: 4,
        dead: 6,
    }
    outcome = cluster.rmqadmin("cloneGroupOffset -s billing -d audit -t T --yes --output json")
    assert outcome.partial["brokers"] == [living]
    assert only_told_of(dead, outcome.err)
    assert cluster.hosts[living].offsets.query("audit", "T", 0) == 1


# Again and again


def test_each_look_is_taken_anew(cluster: World) -> None:
    cluster.network.stop(A)
    handlers = cluster.hosts[A].handlers
    cluster.reactor.callLater(1.5, cluster.network.serve, A, handlers)
    outcome = cluster.rmqadmin("startMonitoring --interval 1 --rounds 4")
    assert outcome.status == 0
    told = outcome.err.splitlines()
    assert len(told) == 2 and all(line.startswith(f"rmqadmin: {A}: ") for line in told)


def test_a_broker_that_hangs_is_waited_for_once(cluster: World) -> None:
    asked: list[int] = []

    def hang(request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        asked.append(request.code)
        return Deferred()

    cluster.network.serve(A, dict.fromkeys(cluster.hosts[A].handlers, hang))
    for command in (
        "consumerProgress",
        "statsAll",
        "topicList -c",
        "cloneGroupOffset -s nix -d audit -t T --yes",
        "consumerProgress -g nix",
        "consumerConnection -g billing",
        "consumerStatus -g nix",
        "getConsumerConfig -g nix",
    ):
        asked.clear()
        outcome = cluster.rmqadmin(command)
        assert (outcome.status, len(asked)) == (1, 1), command
        assert outcome.err.startswith(f"rmqadmin: {A}: ")


# What would stand for the whole


#: What exportMetrics asks of each master.
FIGURES = (
    RequestCode.VIEW_BROKER_STATS_DATA,
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
)


@pytest.mark.parametrize("code", FIGURES)
def test_an_export_is_not_written_while_a_broker_is_busy(
    cluster: World, tmp_path: Path, code: int
) -> None:
    cluster.let_answer(B, code, busy)
    outcome = cluster.rmqadmin(f"exportMetrics -c DefaultCluster -f {tmp_path}")
    assert (outcome.status, outcome.out) == (1, "")
    assert f"{B} answered {ResponseCode.SYSTEM_BUSY}: later" in outcome.err
    assert not list(tmp_path.iterdir())


def test_an_export_without_a_part_is_not_written(cluster: World, tmp_path: Path) -> None:
    def hang(request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        return Deferred()

    cluster.let_answer(A, RequestCode.VIEW_BROKER_STATS_DATA, hang)
    outcome = cluster.rmqadmin(f"exportMetrics -c DefaultCluster -f {tmp_path}")
    assert (outcome.status, outcome.out) == (1, "")
    told, failed = outcome.err.splitlines()
    assert only_told_of(A, f"{told}\n")
    assert failed == "rmqadmin: metrics.json is not written: a part of it is missing"
    cluster.network.stop(A)
    for command in ("exportMetadata", "exportConfigs", "exportMetrics"):
        outcome = cluster.rmqadmin(f"{command} -c DefaultCluster -f {tmp_path}")
        assert (outcome.status, outcome.out, outcome.err.count("\n")) == (1, "", 1)
    assert not list(tmp_path.iterdir())


def test_a_plan_without_a_part_says_so(cluster: World) -> None:
    cluster.network.stop(A)
    outcome = cluster.rmqadmin("updateTopicPerm -t T -c DefaultCluster -p 4 --dry-run")
    assert outcome.status == 1
    assert B in outcome.out
    assert only_told_of(A, outcome.err)


# A group whose master is gone: name servers know its slave alone


@pytest.fixture
def headless(cluster: World) -> World:
    """broker-b has no master, and alone has topic OfB and group ofB."""
    cluster.rmqadmin(f"updateTopic -t OfB -b {B} -r 1 -w 1")
    cluster.rmqadmin(f"updateSubGroup -g ofB -b {B}")
    cluster.lose_master("broker-b", "10.0.0.4")
    return cluster


HEADLESS = "broker-b has no master now, only slaves are registered"


@pytest.mark.parametrize(
    "command",
    [
        "consumerProgress",
        "startMonitoring --rounds 1",
        "statsAll",
        "statsAll -t T",
        "getConsumerConfig -g billing",
        "haStatus -c DefaultCluster",
        "updateTopic -t New -c DefaultCluster",
        "updateTopicPerm -t T -c DefaultCluster -p 4",
        "updateSubGroup -g new -c DefaultCluster",
        "deleteSubGroup -g billing -c DefaultCluster --yes",
        "deleteTopic -t T -c DefaultCluster --yes",
        "setConsumeMode -c DefaultCluster -t T -g billing -m POP",
        "updateBrokerConfig -c DefaultCluster -k traceOn -v false",
        "updateBrokerConfig -c DefaultCluster -k traceOn -v false -a true",
        "cleanExpiredCQ",
        "cleanExpiredCQ -c DefaultCluster",
        "setCommitLogReadAheadMode -c DefaultCluster -m 0",
        "updateTopic -t New -c DefaultCluster --dry-run",
    ],
)
def test_a_group_without_a_master_is_named(headless: World, command: str) -> None:
    outcome = headless.rmqadmin(command)
    assert (outcome.status, outcome.err) == (1, f"rmqadmin: {HEADLESS}\n")
    assert outcome.out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("updateTopicPerm -t OfB -c DefaultCluster -p 4", "topic OfB is not on a broker of"),
        ("getConsumerConfig -g ofB", "no broker has a group ofB"),
        ("consumerProgress -g ofB", "no broker has a group ofB"),
        ("deleteSubGroup -g ofB -c DefaultCluster --yes", "there is no group ofB at cluster Def"),
    ],
)
def test_a_conclusion_names_the_group_without_a_master(
    headless: World, command: str, said: str
) -> None:
    outcome = headless.rmqadmin(command)
    assert (outcome.status, outcome.out) == (1, "")
    told, failed = outcome.err.splitlines()
    assert told == f"rmqadmin: {HEADLESS}"
    assert failed.startswith(f"rmqadmin: without broker-b, which may know more: {said}"), failed


@pytest.mark.parametrize("command", ["exportMetadata", "exportConfigs", "exportMetrics"])
def test_an_export_without_a_group_is_not_written(
    headless: World, tmp_path: Path, command: str
) -> None:
    outcome = headless.rmqadmin(f"{command} -c DefaultCluster -f {tmp_path}")
    assert (outcome.status, outcome.out) == (1, "")
    told, failed = outcome.err.splitlines()
    assert told == f"rmqadmin: {HEADLESS}"
    assert failed.endswith(".json is not written: a part of it is missing")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("topic", ["OfB", "T"])
def test_a_topic_stays_with_the_name_servers_until_it_is_deleted_everywhere(
    headless: World, topic: str
) -> None:
    outcome = headless.rmqadmin(f"deleteTopic -t {topic} -c DefaultCluster --yes")
    assert outcome.out.endswith(f"\ntopic {topic} stays with the name servers: delete it again\n")
    assert outcome.status == 1
    assert headless.hosts[A].topics.get(topic) is None
    assert topic in headless.name_server_topics()


def test_the_order_of_a_group_without_a_master_is_kept(cluster: World) -> None:
    command = "updateTopic -t T -c DefaultCluster -r 1 -w {} -o true --output json"
    assert cluster.rmqadmin(command.format(1)).json["orderConf"] == "broker-a:1;broker-b:1"
    cluster.lose_master("broker-b", "10.0.0.4")
    assert cluster.rmqadmin(command.format(2)).partial["orderConf"] == "broker-a:2;broker-b:1"
