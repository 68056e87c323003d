"""Commands that move and show the progress of groups, on brokers in memory."""

from __future__ import annotations

import pytest

from rocketmq_tw.structs import force_setattr
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig


def start(world):
    """A group `billing` that has consumed both messages of a topic of two queues."""
    world.rmqadmin("updateTopic -t T -c DefaultCluster -r 2 -w 2")
    for queue in ("0", "1"):
        world.rmqadmin(f"sendMessage -t T -p body{queue} -b broker-a -i {queue}")
    consumer = world.consume("billing", "T")
    wait_offsets(world, [1, 1])
    return consumer


def offsets_of(world, group: str) -> list[int]:
    offsets = world.brokers["broker-a"].offsets
    return [offsets.query(group, "T", queue) for queue in (0, 1)]


def wait_offsets(world, wanted: list[int], group: str = "billing") -> None:
    world.wait_for(lambda: offsets_of(world, group) == wanted)


def rows(*offsets: int) -> list[dict[str, object]]:
    return [
        {"brokerName": "broker-a", "queueId": queue, "offset": offset}
        for queue, offset in enumerate(offsets)
    ]


def test_a_group_goes_back_in_time(world) -> None:
    world.result(start(world).stop())
    outcome = world.rmqadmin("resetOffsetByTime -y -g billing -t T -s 0 --output json")
    assert outcome.json == {"group": "billing", "topic": "T", "queues": rows(0, 0)}
    assert offsets_of(world, "billing") == [0, 0]


def test_one_queue_goes_to_an_offset(world) -> None:
    world.result(start(world).stop())
    at = "-b 10.0.0.2:10911 -q 1"
    outcome = world.rmqadmin(f"resetOffsetByTime -y -g billing -t T -s now {at} -o 0 --output json")
    assert outcome.json["queues"] == rows(1, 0)[1:]
    assert offsets_of(world, "billing") == [1, 0]
    outcome = world.rmqadmin(f"resetOffsetByTime -y -g billing -t T -s now {at} -o 9")
    assert outcome.status == 1
    assert "offset 9 is not in queue 1" in outcome.err


def test_what_has_piled_up_is_passed_over(world) -> None:
    world.result(start(world).stop())
    for _ in range(3):
        world.rmqadmin("sendMessage -t T -p more -b broker-a -i 0")
    outcome = world.rmqadmin("skipAccumulatedMessage -g billing -t T --yes --output json")
    assert outcome.json["queues"] == rows(4, 1)
    assert offsets_of(world, "billing") == [4, 1]


@pytest.mark.parametrize(
    ("command", "after"),
    [
        ("resetOffsetByTime -y -g billing -t T -s 0", [0, 0]),
        ("skipAccumulatedMessage -g billing -t T --yes", [2, 1]),
        ("skipAccumulatedMessage -g billing -t T -f false -y", [1, 1]),
        ("resetOffsetByTime -y -g billing -t T -s now -b 10.0.0.2:10911 -q 0 -o 0", [0, 1]),
    ],
)
def test_where_the_broker_leaves_it_to_consumers_and_there_are_none(
    world, command: str, after: list[int]
) -> None:
    """As brokers of 4.9 do."""
    world.result(start(world).stop())
    world.rmqadmin("sendMessage -t T -p more -b broker-a -i 0")
    force_setattr(world.brokers["broker-a"].config, "use_server_side_reset_offset", False)
    assert world.rmqadmin(command).status == 0
    assert offsets_of(world, "billing") == after


@pytest.mark.parametrize("has_consumers_reset", [False, True])
@pytest.mark.parametrize(
    "command",
    ["resetOffsetByTime -s now", "resetOffsetByTimeOld -s 0", "skipAccumulatedMessage"],
)
def test_a_mistyped_group_is_told_with_one_like_it(
    world, command: str, has_consumers_reset: bool
) -> None:
    world.result(start(world).stop())
    config = world.brokers["broker-a"].config
    force_setattr(config, "use_server_side_reset_offset", not has_consumers_reset)
    outcome = world.rmqadmin(f"{command} -y -g biling -t T")
    assert outcome.status == 1
    assert outcome.err == (
        "rmqadmin: broker 10.0.0.2:10911 has no group biling: did you mean billing?\n"
    )
    outcome = world.rmqadmin(f"{command} -y -g nogroup -t T")
    assert outcome.err == (
        "rmqadmin: broker 10.0.0.2:10911 has no group nogroup: rmqadmin updateSubGroup"
        " -b 10.0.0.2:10911 -g nogroup creates it\n"
    )
    assert world.brokers["broker-a"].offsets.topics_of("nogroup") == set()


def test_a_reset_that_ends_half_way_says_where_it_was_done(world) -> None:
    world.result(start(world).stop())
    world.add_broker("broker-b", "10.0.0.3")
    world.rmqadmin("updateTopic -t T -b 10.0.0.3:10911 -r 2 -w 2")
    outcome = world.rmqadmin("resetOffsetByTime -y -g billing -t T -s 0")
    assert outcome.status == 1
    assert outcome.err.startswith("rmqadmin: broker 10.0.0.3:10911 has no group billing: ")
    assert outcome.err.endswith("; done on 10.0.0.2:10911\n")
    assert offsets_of(world, "billing") == [0, 0]


@pytest.mark.parametrize("command", ["resetOffsetByTime", "resetOffsetByTimeOld"])
def test_minus_one_is_the_end_of_each_queue(world, command: str, at_terminal) -> None:
    world.result(start(world).stop())
    for _ in range(3):
        world.rmqadmin("sendMessage -t T -p more -b broker-a -i 0")
    at_terminal("y\n")
    outcome = world.rmqadmin(f"{command} -g billing -t T -s -1 --output json")
    assert outcome.json["queues"] == rows(4, 1)
    assert "go on in T at the end of each queue?" in outcome.err
    outcome = world.rmqadmin(f"{command} -y -g billing -t T -s -2")
    assert outcome.status == 2
    assert (
        "'-2' is not between 1970 and 9223372036854775807 ms later: give milliseconds since 1970 or"
        " yyyy-MM-dd#HH:mm:ss:SSS, or now, or -1 for each queue's end" in outcome.err
    )


def start_in_two_clusters(world) -> None:
    """As `start`; the cluster Other has topic and group too, and a topic of its own."""
    world.result(start(world).stop())
    world.add_broker("broker-z", "10.0.0.9", broker_cluster_name="Other")
    world.rmqadmin("updateTopic -t T -c Other -r 2 -w 2")
    world.rmqadmin("updateTopic -t Else -c Other -r 2 -w 2")
    world.rmqadmin("updateSubGroup -g billing -c Other")
    world.rmqadmin("sendMessage -t T -p more -b broker-a -i 0")
    world.rmqadmin("sendMessage -t T -p more -b broker-z -i 0")


@pytest.mark.parametrize(
    "command", ["resetOffsetByTime -s now", "resetOffsetByTimeOld -s now", "skipAccumulatedMessage"]
)
def test_a_group_is_moved_in_the_cluster_that_is_named_alone(world, command: str) -> None:
    start_in_two_clusters(world)
    outcome = world.rmqadmin(f"{command} -y -g billing -t T -c Other --output json")
    assert [(row["brokerName"], row["offset"]) for row in outcome.json["queues"]] == [
        ("broker-z", 1),
        ("broker-z", 0),
    ]
    assert offsets_of(world, "billing") == [1, 1]
    outcome = world.rmqadmin(f"{command} -y -g billing -t T -c Nix")
    assert outcome.err == "rmqadmin: there is no cluster Nix; there are: DefaultCluster, Other\n"
    outcome = world.rmqadmin(f"{command} -y -g billing -t Else -c DefaultCluster")
    assert outcome.err == "rmqadmin: topic Else is not in cluster DefaultCluster but in Other\n"
    assert offsets_of(world, "billing") == [1, 1]
    world.rmqadmin(f"{command} -y -g billing -t T")
    assert offsets_of(world, "billing") == [2, 1]


@pytest.mark.parametrize(
    "options",
    [
        "-q 1",
        "-b 10.0.0.2:10911 -c DefaultCluster",
        "-b 10.0.0.2:10911 -o 1",
        "-b nix -q 1",
        "-s never",
        "-s 9223372036854775808",
    ],
)
def test_a_wrong_call_resets_nothing(world, options: str) -> None:
    world.result(start(world).stop())
    given = options if "-s" in options else f"-s 0 {options}"
    assert world.rmqadmin(f"resetOffsetByTime -y -g billing -t T {given}").status == 2
    assert offsets_of(world, "billing") == [1, 1]


@pytest.mark.parametrize("command", ["resetOffsetByTime", "resetOffsetByTimeOld"])
def test_a_time_to_come_is_the_end_of_each_queue(world, command: str) -> None:
    world.result(start(world).stop())
    for _ in range(3):
        world.rmqadmin("sendMessage -t T -p more -b broker-a -i 0")
    for time in ("99999999999999", str(2**63 - 1)):
        world.rmqadmin("resetOffsetByTime -y -g billing -t T -s 0")
        outcome = world.rmqadmin(f"{command} -y -g billing -t T -s {time}")
        assert outcome.status == 0, outcome.err
        assert offsets_of(world, "billing") == [4, 1]


def test_a_group_gets_the_offsets_of_another(world) -> None:
    world.result(start(world).stop())
    world.brokers["broker-a"].groups.update(SubscriptionGroupConfig(group_name="audit"))
    outcome = world.rmqadmin("cloneGroupOffset -y -s billing -d audit -t T --output json")
    assert outcome.json["brokers"] == ["10.0.0.2:10911"]
    assert offsets_of(world, "audit") == [1, 1]
    outcome = world.rmqadmin("cloneGroupOffset -y -s billing -d audit -t nix")
    assert outcome.status == 1
    assert "no name server knows the topic nix" in outcome.err
    outcome = world.rmqadmin("cloneGroupOffset -y -s biling -d audit -t T")
    assert outcome.status == 1
    assert outcome.err == (
        "rmqadmin: group biling has consumed nothing of topic T: did you mean billing?\n"
    )


def test_a_mistyped_group_gets_no_offsets(world) -> None:
    world.result(start(world).stop())
    outcome = world.rmqadmin("cloneGroupOffset -y -s billing -d bilings -t T")
    assert outcome.status == 1
    assert outcome.err == (
        "rmqadmin: broker 10.0.0.2:10911 has no group bilings: did you mean billing?\n"
    )
    outcome = world.rmqadmin("cloneGroupOffset -y -s billing -d nogroup -t T")
    assert outcome.err == (
        "rmqadmin: broker 10.0.0.2:10911 has no group nogroup: rmqadmin updateSubGroup"
        " -b 10.0.0.2:10911 -g nogroup creates it\n"
    )
    broker = world.brokers["broker-a"]
    assert "nogroup" not in broker.groups.table().subscription_group_table
    assert "nogroup" not in broker.offsets.groups_of("T")


def test_what_members_say_of_themselves(world) -> None:
    consumer = start(world)
    (member,) = world.rmqadmin("consumerStatus -g billing --output json").json["members"]
    assert (member["clientId"], member["type"]) == ("10.0.1.9@1", "PUSH")
    assert member["subscriptions"]["T"] == "*"
    queues = [queue["queueId"] for queue in member["queues"] if queue["topic"] == "T"]
    assert queues == [0, 1]
    shown = world.rmqadmin("consumerStatus -g billing -i 10.0.1.9@1").lines
    assert shown[2][0] == "10.0.1.9@1"
    outcome = world.rmqadmin("consumerStatus -g billing -i other")
    assert outcome.status == 1
    assert "billing has no member other" in outcome.err
    world.result(consumer.stop())
    assert world.rmqadmin("consumerStatus -g billing").status == 1


def test_a_member_consumes_one_message_once_more(world) -> None:
    consumer = start(world)
    sent = world.rmqadmin("sendMessage -t T -p again -b broker-a -i 0 --output json").json
    wait_offsets(world, [2, 1])
    message_id = sent["offsetMessageId"]
    shown = world.rmqadmin(f"queryMsgById -t T -i {message_id} --output json").json["messages"]
    assert [(one["body"], one["queueOffset"]) for one in shown] == [("again", 1)]
    outcome = world.rmqadmin(
        f"queryMsgById -t T -i {message_id} -g billing -d 10.0.1.9@1 --output json"
    )
    assert outcome.json["result"] == "CR_SUCCESS"
    for options in ("-g billing", "-d 10.0.1.9@1"):
        assert world.rmqadmin(f"queryMsgById -t T -i {message_id} {options}").status == 2
    outcome = world.rmqadmin("queryMsgById -t T -i nix")
    assert outcome.status == 2
    assert "'nix' is no message id: give the 32 hex digits" in outcome.err
    world.result(consumer.stop())


def test_the_settings_of_a_group(world) -> None:
    world.add_broker("broker-b", "10.0.0.3")
    world.rmqadmin("updateSubGroup -g billing -b 10.0.0.3:10911 -r 3 -d true")
    (row,) = world.rmqadmin("getConsumerConfig -g billing --output json").json["brokers"]
    assert (row["brokerName"], row["retries"], row["broadcast"]) == ("broker-b", 3, True)
    world.rmqadmin("updateSubGroup -g billing -c DefaultCluster -s false")
    lines = world.rmqadmin("getConsumerConfig -g billing").lines
    assert [line[:3] for line in lines[2:]] == [
        ["DefaultCluster", "broker-a", "false"],
        ["DefaultCluster", "broker-b", "false"],
    ]
    outcome = world.rmqadmin("getConsumerConfig -g nix")
    assert outcome.status == 1
