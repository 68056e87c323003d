"""A topic or group that nobody has, as its name is mistyped: commands say which one was meant."""

from __future__ import annotations

from collections.abc import Mapping

import click
import pytest

from rocketmq_tw.admin.commands import MODULES, load
from tests.unit.admin.conftest import World

A = "10.0.0.2:10911"
#: Of an address that no broker has.
ID = "C0000202000006FF" + "0" * 16
#: Each command with -t, and what else is needed; `-t Orders` is there.
TOPICS: Mapping[str, tuple[str, ...]] = {
    "allocateMQ": ("-i a",),
    "cloneGroupOffset": ("-s billing -d billing -y",),
    "consumeMessage": ("", "--follow", "-b broker-a"),
    "consumerProgress": ("-g billing", "-g billing -c DefaultCluster"),
    "deleteTopic": ("-c DefaultCluster -y",),
    "getConsumerStatus": ("-g billing",),
    "printMsg": ("",),
    "printMsgByQueue": ("-a broker-a -i 0",),
    "producerConnection": ("-g billing",),
    "queryCq": ("-q 0 -i 0", f"-q 0 -i 0 -b {A}"),
    "queryMsgById": (f"-i {ID}", f"-i {ID} -c DefaultCluster"),
    "queryMsgByKey": ("-k k", "-k k -c DefaultCluster"),
    "queryMsgByOffset": ("-b broker-a -i 0 -o 0",),
    "queryMsgByUniqueKey": (f"-i {ID}", f"-i {ID} -c DefaultCluster"),
    "queryMsgTraceById": (f"-i {ID}",),
    "remappingStaticTopic": ("-c DefaultCluster",),
    "resetOffsetByTime": (
        "-g billing -s 0 -y",
        "-g billing -s 0 -y -c DefaultCluster",
        f"-g billing -s 0 -y -b {A}",
        f"-g billing -s 0 -y -b {A} -q 0 -o 0",
    ),
    "resetOffsetByTimeOld": ("-g billing -s 0 -y", "-g billing -s 0 -y -c DefaultCluster"),
    "setConsumeMode": ("-g billing -m POP -c DefaultCluster", f"-g billing -m POP -b {A}"),
    "skipAccumulatedMessage": ("-g billing -y", "-g billing -y -c DefaultCluster"),
    "statsAll": ("",),
    "topicClusterList": ("",),
    "topicRoute": ("",),
    "topicStatus": ("", "-c DefaultCluster"),
    "updateTopicPerm": ("-p 4 -c DefaultCluster", f"-p 4 -b {A}"),
}
#: With a name that nobody has these do what they are for.
NEW_TOPICS = {"updateTopic", "updateStaticTopic", "sendMessage", "checkMsgSendRT"}
#: The same of groups; `-g billing` is there, a message of Orders is `{message}`.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "consumeMessage": ("-t Orders", "-t Orders --follow"),
    "consumer": ("",),
    "consumerConnection": ("", f"-b {A}"),
    "consumerProgress": ("", "-c DefaultCluster"),
    "consumerStatus": ("", f"-b {A}"),
    "deleteSubGroup": ("-c DefaultCluster -y", f"-b {A} -y"),
    "getConsumerConfig": ("",),
    "getConsumerStatus": ("-t Orders",),
    "queryMsgById": ("-t Orders -d c -i {message}",),
    "queryMsgByUniqueKey": ("-t Orders -d c -i {message}",),
    "removeColdDataFlowCtrGroupConfig": (f"-b {A} -y", "-c DefaultCluster -y"),
    "resetOffsetByTime": ("-t Orders -s 0 -y", f"-t Orders -s 0 -y -b {A} -q 0 -o 0"),
    "resetOffsetByTimeOld": ("-t Orders -s 0 -y",),
    "setConsumeMode": ("-t Orders -m POP -c DefaultCluster", f"-t Orders -m POP -b {A}"),
    "skipAccumulatedMessage": ("-t Orders -y",),
    "updateColdDataFlowCtrGroupConfig": (f"-v 1 -b {A}", "-v 1 -c DefaultCluster"),
}
#: Nobody keeps names of producer groups; a filter is of what a group subscribes to, where it does.
NEW_GROUPS = {"updateSubGroup", "producerConnection", "queryCq"}


def with_name(option: str) -> set[str]:
    """The commands that have an option with a name."""
    return {
        name
        for names in MODULES.values()
        for name in names
        for each in load(name).params
        if isinstance(each, click.Option) and option in each.opts and each.metavar == "NAME"
    }


def test_every_command_with_a_topic_or_group_is_tried_here() -> None:
    assert with_name("-t") - {"updateOrderConf"} == TOPICS.keys() | NEW_TOPICS
    assert with_name("-g") == GROUPS.keys() | NEW_GROUPS


@pytest.fixture
def shop(world: World) -> World:
    world.rmqadmin("updateTopic -t Orders -c DefaultCluster")
    world.rmqadmin("updateSubGroup -g billing -c DefaultCluster")
    return world


def calls(table: Mapping[str, tuple[str, ...]]) -> list[str]:
    return [f"{name} {rest}".strip() for name, ways in table.items() for rest in ways]


@pytest.mark.parametrize("call", calls(TOPICS))
def test_the_topic_that_was_meant_is_told(shop: World, call: str) -> None:
    topics = shop.name_server_topics()
    outcome = shop.rmqadmin(f"{call} -t Ordrs")
    assert (outcome.status, outcome.out) == (1, "")
    assert ": did you mean Orders?" in outcome.err
    assert shop.name_server_topics() == topics


@pytest.mark.parametrize("call", calls(GROUPS))
def test_the_group_that_was_meant_is_told(shop: World, call: str) -> None:
    sent = shop.rmqadmin("sendMessage -t Orders -p x --output json").json
    groups = set(shop.brokers["broker-a"].groups.all())
    outcome = shop.rmqadmin(f"{call} -g biling".replace("{message}", sent["messageId"]))
    assert (outcome.status, outcome.out) == (1, "")
    assert ": did you mean billing?" in outcome.err
    assert set(shop.brokers["broker-a"].groups.all()) == groups


def test_a_light_topic_takes_the_route_of_its_parent_or_cluster(shop: World) -> None:
    for cluster in ("Orders", "DefaultCluster"):
        outcome = shop.rmqadmin(f"queryMsgByKey -t %LMQ%a -k k -c {cluster}")
        assert outcome.err == "rmqadmin: no message of %LMQ%a has the key k\n"


def test_a_group_that_nobody_has_is_told_beside_what_it_would_read(shop: World) -> None:
    outcome = shop.rmqadmin("consumerProgress -g biling -t Orders")
    assert outcome.status == 0 and "Diff total" in outcome.out
    assert outcome.err == "rmqadmin: no broker has a group biling: did you mean billing?\n"
    assert shop.rmqadmin("consumerProgress -g billing -t Orders").err == ""


def test_a_limit_of_a_group_that_is_gone_is_removed(shop: World) -> None:
    shop.rmqadmin(f"updateColdDataFlowCtrGroupConfig -b {A} -g billing -v 1")
    shop.rmqadmin("deleteSubGroup -g billing -c DefaultCluster -y")
    done = shop.rmqadmin(f"removeColdDataFlowCtrGroupConfig -b {A} -g billing -y")
    assert done.out == f"billing has no limit of its own on {A}\n"
