"""rmqadmin's static topics: made, grown and moved on brokers in memory."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.client.static_topics import nothing_hosted
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.structs import structs
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.topics import LogicQueueMappingItem, TopicRemappingDetailWrapper
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.send import SendMessageResponseHeader
from tests.support.broker import ok


@pytest.fixture
def three(world) -> Any:
    """Three brokers: broker-a, broker-b and broker-c."""
    world.add_broker("broker-b", "10.0.0.3")
    world.add_broker("broker-c", "10.0.0.4")
    return world


def made(world, total: int = 2, brokers: str = "broker-a") -> list[dict[str, Any]]:
    command = f"updateStaticTopic -t S -b {brokers} -qn {total} --output json"
    queues: list[dict[str, Any]] = world.rmqadmin(command).json["queues"]
    return queues


def moved(world, brokers: str) -> list[dict[str, Any]]:
    command = f"remappingStaticTopic -t S -b {brokers} --output json"
    queues: list[dict[str, Any]] = world.rmqadmin(command).json["queues"]
    return queues


def leaders(queues: list[dict[str, Any]]) -> list[str]:
    return [queue["brokerName"] for queue in queues]


def test_it_is_made_on_all_brokers_that_are_named(three) -> None:
    queues = made(three, 5, "broker-a,broker-b")
    assert leaders(queues) == ["broker-a", "broker-b", "broker-a", "broker-b", "broker-a"]
    assert [queue["physicalQueueId"] for queue in queues] == [0, 0, 1, 1, 2]
    for name, count in (("broker-a", 3), ("broker-b", 2), ("broker-c", 0)):
        detail = three.brokers[name].broker[Tables].mappings.get("S")
        assert (len(detail.hosted_queues), detail.total_queues) == (count, 5)


def test_it_grows_where_least_is(three) -> None:
    made(three, 2, "broker-a")
    assert leaders(made(three, 4, "broker-b")) == ["broker-a", "broker-a", "broker-b", "broker-b"]


def test_it_does_not_shrink(three) -> None:
    made(three, 2)
    outcome = three.rmqadmin("updateStaticTopic -t S -b broker-a -qn 2")
    assert outcome.status == 1
    assert "it has 2 queues already: a static topic can only grow" in outcome.err


def test_it_moves_with_its_offsets(three) -> None:
    made(three, 2)
    broker = three.brokers["broker-a"]
    for number in range(3):
        request = broker.send_request(b"%d" % number, topic="S", queue_id=1)
        ok(broker.request(request))
    three.reactor.advance(1)
    queues = moved(three, "broker-b")
    assert leaders(queues) == ["broker-b", "broker-b"]
    assert [queue["logicOffset"] for queue in queues] == [10_000, 10_000]
    assert [queue["gen"] for queue in queues] == [1, 1]
    for name in ("broker-a", "broker-b"):
        detail = three.brokers[name].broker[Tables].mappings.get("S")
        assert [item.logic_offset for item in detail.hosted_queues[1]] == [0, 10_000]


def test_messages_are_sent_and_shown_across_a_move(three) -> None:
    made(three, 2)
    sent = [sent_by_tool(three, number) for number in range(2)]
    moved(three, "broker-b")
    sent += [sent_by_tool(three, number) for number in range(2, 6)]
    logic = "__syslo__global__"
    assert {each["brokerName"] for each in sent} == {logic}
    for command in ("consumeMessage -t S", "printMsg -t S -d false"):
        assert three.rmqadmin(command).status == 0
    shown = three.rmqadmin("consumeMessage -t S --output json").json["messages"]
    assert {(each["queueId"], each["queueOffset"]) for each in shown} == {
        (each["queueId"], each["queueOffset"]) for each in sent
    }
    assert len(shown) == 6
    one = three.rmqadmin(f"consumeMessage -t S -b {logic} -i 1 -o 10000 --output json")
    assert all(each["queueOffset"] >= 10_000 for each in one.json["messages"])


def test_a_leader_that_fails_hides_only_its_queues(three) -> None:
    made(three, 2, "broker-a,broker-b")
    for queue_id, broker in enumerate(("broker-a", "broker-b")):
        sent(three, broker, queue_id)

    def refuse(request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        return request.response(ResponseCode.SYSTEM_BUSY, "no")

    three.let_answer("10.0.0.3:10911", RequestCode.GET_MIN_OFFSET, refuse)
    shown = three.rmqadmin("consumeMessage -t S --output json")
    messages = shown.partial["messages"]
    assert messages and {each["queueId"] for each in messages} == {0}
    assert "broker-b" in shown.err


def test_offsets_and_progress_are_of_logic_queues(three) -> None:
    made(three, 2)
    for number in range(3):
        sent_by_tool(three, number)
    three.consume("G", "S")
    before = {number: end for number, (_, end) in ends(three).items()}
    assert sum(before.values()) == 3
    three.wait_for(lambda: consumed(three) == before)
    moved(three, "broker-b")
    sent = [sent_by_tool(three, number) for number in range(4)]
    counts = [sum(each["queueId"] == number for each in sent) for number in (0, 1)]
    behind = {number: 10_000 + count for number, count in enumerate(counts)}
    assert ends(three) == {number: (0, end) for number, end in behind.items()}
    # It has not read on yet.
    assert consumed(three) == before
    three.wait_for(lambda: consumed(three) == behind)
    progress = three.rmqadmin("consumerProgress -g G --output json").json
    assert progress["diffTotal"] == progress["inflightTotal"] == 0


def test_offsets_that_the_tool_commits_are_of_physical_queues(three) -> None:
    """Where a broker leaves a reset to consumers and there are none, as stock's may."""
    made(three, 1)
    for number in range(3):
        sent_by_tool(three, number)
    three.consume("G", "S")
    three.wait_for(lambda: consumed(three) == {0: 3})
    moved(three, "broker-b")
    three.wait_for(lambda: consumed(three) == {0: 10_000})
    sent_by_tool(three, 3)
    three.wait_for(lambda: consumed(three) == {0: 10_001})

    def leave(request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        return request.response(ResponseCode.CONSUMER_NOT_ONLINE, "nobody")

    for address in ("10.0.0.2:10911", "10.0.0.3:10911", "10.0.0.4:10911"):
        three.let_answer(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, leave)
    assert three.rmqadmin("resetOffsetByTime -g G -t S -s -1 --yes").status == 0
    offsets = [three.brokers[f"broker-{name}"].broker[Tables].offsets for name in "ab"]
    assert [table.query("G", "S", 0) for table in offsets] == [3, 1]


def ends(world) -> dict[int, tuple[int, int]]:
    """Where the logic queues begin and end."""
    rows = world.rmqadmin("topicStatus -t S --output json").json["queues"]
    return {
        each["queueId"]: (each["minOffset"], each["maxOffset"])
        for each in rows
        if each["brokerName"] == "__syslo__global__"
    }


def consumed(world) -> dict[int, int]:
    """How far the group is in the logic queues; there is nothing of others."""
    rows = world.rmqadmin("consumerProgress -g G --output json").json["queues"]
    of_topic = [each for each in rows if each["topic"] == "S"]
    assert {each["brokerName"] for each in of_topic} <= {"__syslo__global__"}
    return {each["queueId"]: each["consumerOffset"] for each in of_topic}


def sent_by_tool(world, number: int) -> dict[str, Any]:
    sent: dict[str, Any] = world.rmqadmin(f"sendMessage -t S -p {number} --output json").json
    return sent


def test_as_few_as_possible_move(three) -> None:
    made(three, 4, "broker-a")
    queues = moved(three, "broker-a,broker-b")
    assert leaders(queues) == ["broker-a", "broker-a", "broker-b", "broker-b"]
    assert [queue["gen"] for queue in queues] == [0, 0, 1, 1]
    assert leaders(moved(three, "broker-c")) == ["broker-c"] * 4
    # And back to where it was: its physical queues are not used again.
    queues = moved(three, "broker-a")
    assert leaders(queues) == ["broker-a"] * 4
    assert [queue["physicalQueueId"] for queue in queues] == [4, 5, 6, 7]


class Former:
    """What a broker has of a topic, to give it back to it: as its next master does that had not
    heard of a change yet."""

    def __init__(self, world, broker: str) -> None:
        self._tables = world.brokers[broker].broker[Tables]
        self._config = self._tables.topics.get("S")
        self._detail = deepcopy(self._tables.mappings.get("S"))

    def restore(self) -> None:
        self._tables.topics.update(self._config)
        self._tables.mappings.update(self._detail, force=True)


def sent(world, broker: str, queue_id: int) -> int:
    """The logic offset at which a message is stored."""
    response = world.brokers[broker].request(
        world.brokers[broker].send_request(b"m", topic="S", queue_id=queue_id)
    )
    ok(response)
    world.reactor.advance(1)
    return response.header(SendMessageResponseHeader).queue_offset


@pytest.mark.parametrize("broker", ["broker-a", "broker-b"])
def test_a_move_that_a_broker_has_forgotten_goes_on(three, broker: str) -> None:
    made(three, 2)
    moved(three, "broker-b")
    moved(three, "broker-a")
    assert sent(three, "broker-a", 1) == 20_000
    former = Former(three, broker)
    moved(three, "broker-b")
    former.restore()
    outcome = three.rmqadmin("updateStaticTopic -t S -b broker-b -qn 4")
    assert outcome.status == 1 and "rmqadmin remappingStaticTopic" in outcome.err
    queues = moved(three, "broker-b")
    assert leaders(queues) == ["broker-b", "broker-b"]
    assert [queue["gen"] for queue in queues] == [3, 3]
    assert [queue["logicOffset"] for queue in queues] == [30_000, 30_000]
    assert sent(three, "broker-b", 1) == 30_000
    # Nothing is left of it: the next change finds them of one mind.
    assert leaders(made(three, 3, "broker-c"))[2] == "broker-c"


def test_where_moved_queues_begin_is_decided_later_where_it_was_not(three) -> None:
    made(three, 1)
    assert sent(three, "broker-a", 0) == 0
    details = [three.brokers[name].broker[Tables].mappings for name in ("broker-a", "broker-b")]
    moved(three, "broker-b")
    for mappings in details:
        detail = deepcopy(mappings.get("S"))
        detail.hosted_queues[0][-1].logic_offset = -1
        mappings.update(detail, force=True)
    (queue,) = moved(three, "broker-b")
    assert (queue["gen"], queue["logicOffset"]) == (1, 10_000)
    assert sent(three, "broker-b", 0) == 10_000


def busy(request: RemotingCommand, peer: IPeer) -> RemotingCommand:
    return request.response(ResponseCode.SYSTEM_BUSY, "later")


def silent(request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
    return Deferred()


@pytest.mark.parametrize("answer", [busy, silent])
@pytest.mark.parametrize(
    ("broker", "code"),
    [
        ("10.0.0.2:10911", RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC),
        ("10.0.0.2:10911", RequestCode.GET_TOPIC_STATS_INFO),
        ("10.0.0.4:10911", RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC),
    ],
)
def test_a_move_that_ends_half_way_says_so(three, broker: str, code: int, answer: Handler) -> None:
    made(three, 2)
    three.let_answer(broker, code, answer)
    outcome = three.rmqadmin("remappingStaticTopic -t S -b broker-b")
    assert (outcome.out, outcome.status, outcome.err.count("\n")) == ("", 1, 1)
    assert outcome.err.startswith(f"rmqadmin: the move of S is half done: {broker}")
    assert outcome.err.endswith("; move it again\n")
    three.network.serve(broker, three.hosts[broker].handlers)
    queues = moved(three, "broker-b")
    assert leaders(queues) == ["broker-b", "broker-b"]
    assert [queue["logicOffset"] for queue in queues] == [10_000, 10_000]


def test_a_move_that_nobody_was_told_of_is_not_half_done(three) -> None:
    made(three, 2)
    three.let_answer("10.0.0.3:10911", RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, busy)
    outcome = three.rmqadmin("remappingStaticTopic -t S -b broker-b")
    assert outcome.err == f"rmqadmin: 10.0.0.3:10911 answered {ResponseCode.SYSTEM_BUSY}: later\n"


@pytest.mark.parametrize(
    "command", ["remappingStaticTopic -t S -b broker-b", "updateStaticTopic -t S -b broker-a -qn 4"]
)
def test_who_is_overtaken_by_another_change_is_told_to_call_again(three, command: str) -> None:
    """A second operator changes the topic after this one has looked at it."""
    made(three, 2)
    told = RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC

    def overtake(host: Any, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        for table in (one.broker[Tables].mappings for one in three.brokers.values()):
            table.update(structs.replace(table.get("S"), epoch=10**13), force=True)
        return host.handlers[told](request, peer)

    for address, host in three.hosts.items():
        three.let_answer(address, told, partial(overtake, host))
    outcome = three.rmqadmin(command)
    assert outcome.status == 1
    assert outcome.err.startswith(
        "rmqadmin: another change of the static topic S came between, call again: 10.0.0."
    )
    for address, host in three.hosts.items():
        three.network.serve(address, host.handlers)
    assert three.rmqadmin(command).status == 0


def test_queues_that_a_broker_has_forgotten_are_made_where_they_are_wanted(three) -> None:
    made(three, 1)
    made(three, 2, "broker-b")
    former = Former(three, "broker-b")
    made(three, 4, "broker-b")
    former.restore()
    queues = moved(three, "broker-b")
    assert leaders(queues) == ["broker-b"] * 4
    assert [sent(three, "broker-b", number) >= 0 for number in range(4)] == [True] * 4


def test_brokers_that_contradict_each_other_are_told_of(three) -> None:
    made(three, 1, "broker-a")
    mappings = three.brokers["broker-b"].broker[Tables].mappings
    detail = deepcopy(mappings.get("S"))
    detail.hosted_queues = {0: [LogicQueueMappingItem(bname="broker-b", queue_id=0)]}
    mappings.update(detail, force=True)
    outcome = three.rmqadmin("remappingStaticTopic -t S -b broker-c")
    assert outcome.err == (
        "rmqadmin: the static topic S stays where it is: broker-b and another broker contradict"
        " each other about queue 0: the item of generation 0 would be another queue\n"
    )


def test_a_file_is_carried_out(three, tmp_path) -> None:
    """What mqadmin wrote: its maps have bare numbers as keys."""
    config = nothing_hosted("S", "broker-b", 2, 7)
    config.read_queue_nums = config.write_queue_nums = 2
    config.mapping_detail.hosted_queues = {
        number: [LogicQueueMappingItem(bname="broker-b", queue_id=number)] for number in (0, 1)
    }
    written = TopicRemappingDetailWrapper(topic="S", broker_config_map={"broker-b": config})
    text = encode_body(written)
    assert b'"hostedQueues":{0:[' in text
    path = tmp_path / "S-7.after"
    path.write_bytes(text)
    queues = three.rmqadmin(
        f"updateStaticTopic -t S -b broker-b -qn 2 -mf {path} --output json"
    ).json["queues"]
    assert leaders(queues) == ["broker-b", "broker-b"]
    wrong = three.rmqadmin(f"updateStaticTopic -t T -b broker-b -qn 2 -mf {path}")
    assert wrong.status == 2 and "not about the topic T" in wrong.err


def test_clusters_stand_for_their_brokers(three) -> None:
    command = "updateStaticTopic -t S -c DefaultCluster -qn 3 --output json"
    assert leaders(three.rmqadmin(command).json["queues"]) == ["broker-a", "broker-b", "broker-c"]


#: Each needs to know who has queues of S.
CHANGES = ["updateStaticTopic -t S -b broker-b -qn 4", "remappingStaticTopic -t S -b broker-b"]


@pytest.fixture
def two_clusters(world) -> Any:
    """broker-a and broker-b of the default cluster, and one of another cluster."""
    world.add_broker("broker-b", "10.0.0.3")
    world.add_broker("other", "10.0.0.9", broker_cluster_name="OtherCluster")
    return world


@pytest.mark.parametrize("command", CHANGES)
def test_a_dead_broker_of_another_cluster_hinders_nothing(two_clusters, command: str) -> None:
    made(two_clusters)
    two_clusters.network.stop("10.0.0.9:10911")
    outcome = two_clusters.rmqadmin(f"{command} --output json")
    assert leaders(json.loads(outcome.out)["queues"])[-1] == "broker-b"
    assert outcome.err.startswith("rmqadmin: 10.0.0.9:10911: ")
    assert (outcome.err.count("\n"), outcome.status) == (1, 1)


@pytest.mark.parametrize("command", CHANGES)
def test_nothing_changes_while_a_dead_broker_may_have_queues(two_clusters, command: str) -> None:
    made(two_clusters, 2, "broker-a,other")
    two_clusters.network.stop("10.0.0.9:10911")
    mappings = two_clusters.brokers["broker-a"].broker[Tables].mappings
    before = deepcopy(mappings.get("S"))
    outcome = two_clusters.rmqadmin(command)
    assert (outcome.out, outcome.status) == ("", 1)
    assert "10.0.0.9:10911" in outcome.err
    assert mappings.get("S") == before


@pytest.mark.parametrize("command", CHANGES)
def test_nothing_changes_while_a_group_with_queues_has_no_master(three, command: str) -> None:
    made(three, 3, "broker-b,broker-c")
    mappings = three.brokers["broker-b"].broker[Tables].mappings
    before = deepcopy(mappings.get("S"))
    three.lose_master("broker-c", "10.0.0.5")
    outcome = three.rmqadmin(command)
    assert (outcome.out, outcome.status) == ("", 1)
    assert outcome.err == "rmqadmin: broker-c has no master now, only slaves are registered\n"
    assert mappings.get("S") == before


@pytest.mark.parametrize("command", CHANGES)
def test_a_group_of_another_cluster_that_has_no_master_hinders_nothing(
    two_clusters, command: str
) -> None:
    made(two_clusters)
    two_clusters.lose_master("other", "10.0.0.5")
    outcome = two_clusters.rmqadmin(f"{command} --output json")
    assert leaders(outcome.partial["queues"])[-1] == "broker-b"
    assert outcome.err.startswith("rmqadmin: other has no master")


@pytest.mark.parametrize("command", CHANGES)
def test_nothing_changes_while_a_broker_with_queues_is_not_registered(three, command: str) -> None:
    made(three, 3, "broker-b,broker-c")
    mappings = three.brokers["broker-b"].broker[Tables].mappings
    before = deepcopy(mappings.get("S"))
    gone(three, "broker-c")
    outcome = three.rmqadmin(command)
    assert (outcome.out, outcome.status) == ("", 1)
    reasons = ("a broker that has others may be away", "no broker that is there has queue 1")
    assert any(reason in outcome.err for reason in reasons), outcome.err
    assert mappings.get("S") == before


def ended_half_way(world, command: str) -> None:
    """Carries out a change that broker-b, which has not heard of the topic, refuses once."""
    address = world.brokers["broker-b"].address
    world.let_answer(address, RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, busy)
    outcome = world.rmqadmin(command)
    assert outcome.status == 1
    assert outcome.err.endswith(
        "; done before that: broker-a; to finish it: rmqadmin remappingStaticTopic -t S -b"
        " broker-a,broker-b\n"
    )
    world.network.serve(address, world.hosts[address].handlers)


def check_that_it_can_be_finished(world, first: int) -> None:
    """Two of four queues, of which `first` is one, were never made: that is said before they are
    made where they were to be."""
    again = world.rmqadmin("updateStaticTopic -t S -b broker-a,broker-b -qn 6")
    assert again.status == 1 and "rmqadmin remappingStaticTopic" in again.err
    command = "remappingStaticTopic -t S -b broker-a,broker-b"
    outcome = world.rmqadmin(command)
    assert (outcome.out, outcome.status) == ("", 1)
    assert f"no broker that is there has queue {first}: start the one that has" in outcome.err
    assert "before broker-b" in outcome.err and "repeat this with -fr true" in outcome.err
    queues = world.rmqadmin(f"{command} -fr true --output json").json["queues"]
    assert [queue["gen"] for queue in queues] == [0] * 4
    assert sorted(leaders(queues)) == ["broker-a"] * 2 + ["broker-b"] * 2
    assert [sent(world, each["brokerName"], each["queueId"]) for each in queues] == [0] * 4
    assert len(made(world, 6, "broker-a,broker-b")) == 6


def test_a_topic_that_was_made_half_way_is_finished(three) -> None:
    ended_half_way(three, "updateStaticTopic -t S -b broker-a,broker-b -qn 4")
    check_that_it_can_be_finished(three, first=1)


def test_growth_onto_a_new_broker_that_ended_half_way_is_finished(world) -> None:
    made(world, 2, "broker-a")
    world.add_broker("broker-b", "10.0.0.3")
    ended_half_way(world, "updateStaticTopic -t S -b broker-b -qn 4")
    check_that_it_can_be_finished(world, first=2)


@pytest.mark.parametrize("command", CHANGES)
def test_a_broker_that_joined_does_not_get_the_queues_of_one_that_is_away(
    three, command: str
) -> None:
    """It has not heard of the topic, and all queues were made: the one that is away has them."""
    made(three, 3, "broker-b,broker-c")
    mappings = three.brokers["broker-b"].broker[Tables].mappings
    before = deepcopy(mappings.get("S"))
    three.add_broker("broker-d", "10.0.0.5")
    gone(three, "broker-c")
    outcome = three.rmqadmin(command.replace("broker-b", "broker-d"))
    assert (outcome.out, outcome.status) == ("", 1)
    assert mappings.get("S") == before
    assert three.brokers["broker-d"].broker[Tables].mappings.get("S") is None


@pytest.mark.parametrize("is_registered", [False, True])
def test_nothing_is_made_anew_of_which_all_have_heard(three, is_registered: bool) -> None:
    """Even if one asks for it: a broker that is away must have it."""
    made(three, 3, "broker-b,broker-c")
    mappings = three.brokers["broker-b"].broker[Tables].mappings
    before = deepcopy(mappings.get("S"))
    if is_registered:
        three.lose_master("broker-c", "10.0.0.5")
    else:
        gone(three, "broker-c")
    outcome = three.rmqadmin("remappingStaticTopic -t S -b broker-b -fr true")
    assert (outcome.out, outcome.status) == ("", 1)
    assert "repeat this" not in outcome.err
    assert mappings.get("S") == before


@pytest.mark.parametrize("command", CHANGES)
def test_nothing_changes_while_a_broker_that_took_queues_is_not_registered(
    three, command: str
) -> None:
    made(three, 2, "broker-a")
    moved(three, "broker-a,broker-c")
    mappings = three.brokers["broker-a"].broker[Tables].mappings
    before = deepcopy(mappings.get("S"))
    gone(three, "broker-c")
    outcome = three.rmqadmin(command)
    assert (outcome.out, outcome.status) == ("", 1)
    assert mappings.get("S") == before


def test_queues_move_on_though_a_former_broker_is_gone(three) -> None:
    made(three, 2, "broker-c")
    moved(three, "broker-a")
    gone(three, "broker-c")
    outcome = three.rmqadmin("remappingStaticTopic -t S -b broker-b --output json")
    assert leaders(outcome.partial["queues"]) == ["broker-b", "broker-b"]
    assert outcome.err == (
        "rmqadmin: there is no broker broker-c with a master; there are: broker-a, broker-b\n"
    )
    assert sent(three, "broker-b", 1) == 20_000


def gone(world, broker: str) -> None:
    """Stops a broker; no name server knows it any more."""
    world.brokers[broker].stop()
    world.wait_for(lambda: broker not in world.rmqadmin("clusterList").out)


def test_a_dead_broker_of_another_cluster_is_not_asked_for_the_status(two_clusters) -> None:
    made(two_clusters, 2, "broker-a,other")
    two_clusters.network.stop("10.0.0.9:10911")
    outcome = two_clusters.rmqadmin("topicStatus -t S -c DefaultCluster --output json")
    assert (outcome.err, outcome.status) == ("", 0)
    assert [(row["brokerName"], row["queueId"]) for row in outcome.json["queues"]] == [
        ("__syslo__global__", 0),
        ("broker-a", 0),
    ]


def test_nothing_is_made_while_a_broker_of_the_cluster_is_dead(two_clusters) -> None:
    two_clusters.network.stop("10.0.0.3:10911")
    outcome = two_clusters.rmqadmin("updateStaticTopic -t S -b broker-a -qn 2")
    assert outcome.status == 1 and "10.0.0.3:10911" in outcome.err
    assert two_clusters.brokers["broker-a"].broker[Tables].mappings.get("S") is None


@pytest.mark.parametrize(
    ("command", "status", "why"),
    [
        ("updateStaticTopic -t S -qn 1", 2, "either --brokers or --clusters"),
        ("updateStaticTopic -t S -qn 1 -b nix", 1, "there is no broker nix"),
        ("remappingStaticTopic -t S -b broker-a", 1, "there is no static topic S"),
        ("remappingStaticTopic -t S!! -b broker-a", 2, "illegal character"),
    ],
)
def test_what_cannot_be(world, command: str, status: int, why: str) -> None:
    outcome = world.rmqadmin(command)
    assert outcome.status == status
    assert why in outcome.err


def test_an_ordinary_topic_is_none(world) -> None:
    world.rmqadmin("updateTopic -t S -c DefaultCluster")
    outcome = world.rmqadmin("updateStaticTopic -t S -b broker-a -qn 9")
    assert outcome.status == 1
    assert "as an ordinary topic" in outcome.err


def backlogs(world) -> dict[str, int]:
    """How many messages group G has before it in S, by each command that tells."""
    one = world.rmqadmin("consumerProgress -g G --output json")
    named = world.rmqadmin("consumerProgress -g G -t S --output json")
    groups = world.rmqadmin("consumerProgress --output json")
    watched = world.rmqadmin("startMonitoring --rounds 1 --output json")
    topics = world.rmqadmin("statsAll -t S --output json")
    return {
        "one": json.loads(one.out)["diffTotal"],
        "named": json.loads(named.out)["diffTotal"],
        "groups": sum(row["diffTotal"] for row in json.loads(groups.out)["groups"]),
        "watched": sum(row["diffTotal"] for row in json.loads(watched.out)["groups"]),
        "topics": sum(row["diffTotal"] for row in json.loads(topics.out)["topics"]),
    }


def send(world, broker: str, count: int, queue_id: int = 0) -> None:
    """Sends to a logic queue that the broker leads."""
    there = world.brokers[broker]
    for number in range(count):
        ok(there.request(there.send_request(b"%d" % number, topic="S", queue_id=queue_id)))
    world.reactor.advance(1)


@pytest.fixture
def half_read(three) -> Any:
    """S has one queue: 3 messages, which G has read, on broker-a; then it moved to broker-b and
    got 5 more."""
    made(three, 1)
    three.rmqadmin("updateSubGroup -g G -c DefaultCluster")
    send(three, "broker-a", 3)
    consumer = three.consume("G", "S")
    three.wait_for(lambda: consumed(three) == {0: 3})
    three.result(consumer.stop())
    moved(three, "broker-b")
    send(three, "broker-b", 5)
    return three


def test_all_commands_count_the_same_backlog_without_the_gap(half_read) -> None:
    assert set(backlogs(half_read).values()) == {5}
    half_read.consume("G", "S")
    half_read.wait_for(lambda: consumed(half_read) == {0: 10_005})
    assert set(backlogs(half_read).values()) == {0}


def test_a_queue_that_is_idle_since_it_moved_has_no_backlog(three) -> None:
    made(three, 1)
    send(three, "broker-a", 3)
    consumer = three.consume("G", "S")
    three.wait_for(lambda: consumed(three) == {0: 3})
    three.result(consumer.stop())
    moved(three, "broker-b")
    assert set(backlogs(three).values()) == {0}


def test_a_queue_without_an_offset_is_counted_from_its_begin(three) -> None:
    made(three, 2)
    three.rmqadmin("updateSubGroup -g G -c DefaultCluster")
    send(three, "broker-a", 3, queue_id=0)
    send(three, "broker-a", 40, queue_id=1)
    three.brokers["broker-a"].offsets.commit("G", "S", 0, 3)
    rows = three.rmqadmin("consumerProgress -g G -t S --output json").json["queues"]
    assert [(row["queueId"], row["consumerOffset"], row["diff"]) for row in rows] == [
        (0, 3, 0),
        (1, 0, 40),
    ]


@pytest.mark.parametrize("is_registered", [True, False])
def test_the_backlog_is_shown_without_the_former_broker(half_read, is_registered: bool) -> None:
    half_read.brokers["broker-b"].offsets.commit("G", "S", 0, 1)
    if is_registered:
        half_read.network.stop("10.0.0.2:10911")
    else:
        half_read.brokers["broker-a"].stop()
        half_read.reactor.advance(30)
    outcome = half_read.rmqadmin("consumerProgress -g G -t S --output json")
    assert outcome.status == is_registered
    assert json.loads(outcome.out)["diffTotal"] == 4
    status = half_read.rmqadmin("topicStatus -t S --output json")
    assert [
        (row["minOffset"], row["maxOffset"])
        for row in json.loads(status.out)["queues"]
        if row["brokerName"] == "__syslo__global__"
    ] == [(10_000, 10_005)]


def test_the_backlog_at_the_leader_is_shown_where_nothing_is_committed_there(half_read) -> None:
    half_read.brokers["broker-a"].stop()
    half_read.reactor.advance(30)
    progress = half_read.rmqadmin("consumerProgress -g G -t S --output json").json
    assert progress["diffTotal"] == 5


def test_a_broker_counts_a_physical_queue_without_an_offset_from_its_begin(half_read) -> None:
    half_read.brokers["broker-b"].offsets.commit("G", "S", 1, 0)
    told = half_read.rmqadmin("brokerConsumeStats -b 10.0.0.3:10911 --output json").json
    assert told["diffTotal"] == sum(row["diff"] for row in told["queues"]) == 5


@pytest.mark.parametrize("is_connected", [True, False])
def test_a_reset_replays_what_is_on_the_former_broker_too(half_read, is_connected: bool) -> None:
    got: list[Any] = []
    consumer = half_read.consume("G", "S", got.append)
    half_read.wait_for(lambda: consumed(half_read) == {0: 10_005})
    if not is_connected:
        half_read.result(consumer.stop())
    got.clear()
    assert half_read.rmqadmin("resetOffsetByTime -g G -t S -s 1600000000000 --yes").status == 0
    progress = half_read.rmqadmin("consumerProgress -g G -t S --output json").json
    assert progress["diffTotal"] == 8
    if not is_connected:
        half_read.consume("G", "S", got.append)
    half_read.wait_for(lambda: len(got) >= 8)
    assert [message.queue_offset for message in got] == [*range(3), *range(10_000, 10_005)]
    half_read.wait_for(lambda: consumed(half_read) == {0: 10_005})
