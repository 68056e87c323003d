from __future__ import annotations

import pytest

from rocketmq_tw.wire.bodies.groups import CustomizedRetryPolicy, GroupRetryPolicy


def test_a_group_gets_the_defaults_of_mqadmin(world) -> None:
    outcome = world.rmqadmin("updateSubGroup -g billing -c DefaultCluster")
    assert outcome.out.splitlines()[0] == "group billing is on 10.0.0.2:10911"
    assert "broadcast=false orderly=false retryQueues=1 retries=16" in outcome.out
    group = world.brokers["broker-a"].groups.all()["billing"]
    assert (group.consume_enable, group.consume_from_min_enable) == (True, False)
    assert (group.consume_broadcast_enable, group.consume_message_orderly) == (False, False)
    assert (group.retry_queue_nums, group.retry_max_times) == (1, 16)
    assert (group.broker_id, group.which_broker_when_consume_slowly) == (0, 1)
    assert group.notify_consumer_ids_changed_enable


def test_a_group_gets_all_its_settings(world) -> None:
    outcome = world.rmqadmin(
        "updateSubGroup -g billing -b 10.0.0.2:10911 -s false -m true -d true -o true -q 3 -r 5"
        " -i 2 -w 3 -a false --output json",
        "-p", '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000]}}',
    )  # fmt: skip
    assert outcome.json == {
        "group": "billing",
        "consume": False,
        "fromMin": True,
        "broadcast": True,
        "orderly": True,
        "retryQueues": 3,
        "retries": 5,
        "retryPolicy": {
            "type": "CUSTOMIZED",
            "exponentialRetryPolicy": None,
            "customizedRetryPolicy": {"next": [1000, 5000]},
        },
        "brokerId": 2,
        "whenSlow": 3,
        "notify": False,
        "attributes": {},
        "brokers": ["10.0.0.2:10911"],
    }
    group = world.brokers["broker-a"].groups.all()["billing"]
    assert (group.consume_enable, group.consume_from_min_enable) == (False, True)
    assert (group.consume_broadcast_enable, group.consume_message_orderly) == (True, True)
    assert (group.retry_queue_nums, group.retry_max_times) == (3, 5)
    assert (group.broker_id, group.which_broker_when_consume_slowly) == (2, 3)
    assert not group.notify_consumer_ids_changed_enable
    assert group.group_retry_policy == GroupRetryPolicy(
        customized_retry_policy=CustomizedRetryPolicy(next=[1000, 5000])
    )


def test_an_attribute_that_groups_do_not_have_is_refused_by_the_broker(world) -> None:
    outcome = world.rmqadmin("updateSubGroup -g G -c DefaultCluster --attributes +x=1")
    assert (outcome.status, outcome.out) == (1, "")
    assert "the attribute 'x'" in outcome.err
    assert "G" not in world.brokers["broker-a"].groups


def test_a_cluster_that_is_done_by_half_says_so(world) -> None:
    world.add_broker("broker-b", "10.0.0.3")
    world.network.stop("10.0.0.3:10911")
    outcome = world.rmqadmin("updateSubGroup -c DefaultCluster -g G")
    assert outcome.status == 1
    assert outcome.err.endswith("; done on 10.0.0.2:10911\n")


@pytest.mark.parametrize("remove", [False, True])
def test_a_group_is_deleted_with_its_topics(world, remove: bool) -> None:
    world.rmqadmin("updateTopic -t Orders -c DefaultCluster")
    consumer = world.consume("billing", "Orders")
    world.rmqadmin("sendMessage -t Orders -p x")
    broker = world.brokers["broker-a"]
    world.wait_for(lambda: bool(broker.offsets.topics_of("billing")))
    world.result(consumer.stop())
    assert broker.topics.get("%RETRY%billing") is not None
    option = "-r true" if remove else ""
    outcome = world.rmqadmin(f"deleteSubGroup -y -g billing -c DefaultCluster {option}")
    assert outcome.out.splitlines() == [
        "group billing is deleted from 10.0.0.2:10911",
        "topic %RETRY%billing is deleted from the cluster",
        "topic %DLQ%billing is deleted from the cluster",
    ]
    assert "billing" not in broker.groups
    assert broker.topics.get("%RETRY%billing") is None
    assert "%RETRY%billing" not in world.rmqadmin("topicList").out
    assert (broker.offsets.topics_of("billing") & {"Orders"} == set()) == remove


def test_from_one_broker_a_group_is_deleted_without_its_topics(world) -> None:
    world.rmqadmin("updateSubGroup -g billing -c DefaultCluster")
    outcome = world.rmqadmin("deleteSubGroup -y -g billing -b 10.0.0.2:10911 --output json")
    assert outcome.json == {
        "group": "billing",
        "cluster": None,
        "brokers": ["10.0.0.2:10911"],
        "topics": [],
    }
    assert "billing" not in world.brokers["broker-a"].groups


@pytest.mark.parametrize(
    ("answer", "options", "deleted"), [("n\n", "", False), ("y\n", "", True), ("", "-y", True)]
)
def test_at_a_terminal_it_asks_before_it_deletes(
    world, at_terminal, answer: str, options: str, deleted: bool
) -> None:
    world.rmqadmin("updateSubGroup -c DefaultCluster -g G")
    at_terminal(answer)
    outcome = world.rmqadmin(f"deleteSubGroup -c DefaultCluster -g G {options}")
    assert outcome.status == (0 if deleted else 1)
    assert ("G" in world.brokers["broker-a"].groups) != deleted


def test_a_group_that_is_nowhere_is_not_said_to_be_deleted(world) -> None:
    for target in ("-c DefaultCluster", "-b 10.0.0.2:10911"):
        outcome = world.rmqadmin(f"deleteSubGroup -y -g nix {target}")
        assert (outcome.status, outcome.out) == (1, "")
        assert "there is no group nix at " in outcome.err


def test_its_hint_tells_nothing_of_a_dead_broker_of_another_cluster(world) -> None:
    other = world.add_broker("broker-z", "10.0.0.9", broker_cluster_name="Other")
    world.network.stop(other)
    outcome = world.rmqadmin("deleteSubGroup -y -g nix -c DefaultCluster")
    assert outcome.status == 1
    assert outcome.err.startswith("rmqadmin: there is no group nix at cluster DefaultCluster: ")


def test_a_group_of_another_cluster_is_not_said_to_be_deleted(world) -> None:
    """Whether it has consumed, and so has a retry topic, or not."""
    other = world.add_broker("broker-z", "10.0.0.9", broker_cluster_name="Other")
    world.rmqadmin("updateSubGroup -g billing -c DefaultCluster")
    for _ in range(2):
        for target, where in (("-c Other", "cluster Other"), (f"-b {other}", other)):
            outcome = world.rmqadmin(f"deleteSubGroup -y -g billing {target}")
            assert (outcome.status, outcome.out) == (1, "")
            assert outcome.err == (
                f"rmqadmin: there is no group billing at {where}: it is at broker-a of"
                " DefaultCluster\n"
            )
        world.rmqadmin("updateTopic -t %RETRY%billing -c DefaultCluster")
    assert "billing" in world.brokers["broker-a"].groups


@pytest.mark.parametrize("dead", ["10.0.0.2:10911", "10.0.0.3:10911"])
def test_a_group_is_deleted_where_another_broker_is_down(world, dead: str) -> None:
    world.add_broker("broker-b", "10.0.0.3")
    world.rmqadmin("updateSubGroup -g billing -c DefaultCluster")
    world.network.stop(dead)
    living = ({*world.hosts} - {dead}).pop()
    outcome = world.rmqadmin("deleteSubGroup -y -g billing -c DefaultCluster")
    assert outcome.status == 1
    assert outcome.err.startswith(f"rmqadmin: {dead}: ")
    assert outcome.err.endswith(f"; done on {living}\n")
    assert "billing" not in world.hosts[living].groups
    # Nobody who answers knows of it now.
    outcome = world.rmqadmin("deleteSubGroup -y -g billing -c DefaultCluster")
    assert outcome.status == 1
    assert outcome.err.startswith(f"rmqadmin: {dead}: ") and "done" not in outcome.err


def test_a_deletion_that_broke_off_can_be_ended(world) -> None:
    world.rmqadmin("updateTopic -t %DLQ%billing -c DefaultCluster")
    outcome = world.rmqadmin("deleteSubGroup -y -g billing -c DefaultCluster")
    assert outcome.status == 0, outcome.err
    assert "%DLQ%billing" not in world.rmqadmin("topicList").out
