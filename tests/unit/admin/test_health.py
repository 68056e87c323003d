"""What `rmqadmin health` finds."""

from __future__ import annotations

import pytest

from rocketmq_tw.admin.health import judge, judge_slaves
from rocketmq_tw.wire.bodies.stats import HAConnectionInfo, HARuntimeInfo


def test_a_cluster_is_healthy(world) -> None:
    world.add_broker("broker-b", "10.0.0.3")
    outcome = world.rmqadmin("health")
    assert (outcome.status, outcome.out) == (0, "healthy\n")
    assert world.rmqadmin("health -c DefaultCluster --output json").json == {
        "healthy": True,
        "problems": [],
    }


def test_a_name_server_that_is_gone_is_an_error(world) -> None:
    outcome = world.rmqadmin("health", name_servers=f"{world.names};10.9.9.9:9876")
    assert outcome.status == 1
    assert "10.9.9.9:9876" in outcome.out
    assert outcome.out.endswith("not healthy\n")
    assert outcome.err == ""


def test_a_cluster_that_is_not_there_is_an_error(world) -> None:
    outcome = world.rmqadmin("health -c nix")
    assert outcome.status == 1
    assert "no broker of this cluster is registered" in outcome.out


@pytest.mark.parametrize(
    ("table", "level", "what"),
    [
        ({"brokerActive": "false"}, "error", "the master is not active"),
        ({"commitLogDiskRatio": "0.8"}, "warning", "the disk of the log is 80% full"),
        ({"consumeQueueDiskRatio": "0.9"}, "error", "the disk of the queues is 90% full"),
        ({"sendThreadPoolQueueHeadWaitTimeMills": "500"}, "warning", "sends wait for 500 ms"),
    ],
)
def test_what_a_broker_says_of_itself(table: dict[str, str], level: str, what: str) -> None:
    (problem,) = judge("broker-a", 0, table)
    assert (problem.level, problem.where) == (level, "broker-a")
    assert problem.what.startswith(what)


def test_what_is_no_problem() -> None:
    assert not list(judge("broker-a", 0, {"commitLogDiskRatio": "x", "brokerActive": "true"}))
    # Slaves are never active.
    assert not list(judge("broker-a", 1, {"brokerActive": "false"}))
    assert not list(judge_slaves("broker-a", 2, None))


def test_slaves_that_are_behind_or_away() -> None:
    slave = HAConnectionInfo(addr="10.0.0.9:1", diff=7, in_sync=False)
    problems = list(judge_slaves("broker-a", 2, HARuntimeInfo(ha_connection_info=[slave])))
    assert [problem.what for problem in problems] == [
        "2 slaves are registered, and 1 of them copy the log",
        "the slave 10.0.0.9:1 is 7 bytes behind",
    ]
