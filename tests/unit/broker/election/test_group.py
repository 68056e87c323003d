"""Whole brokers and controllers in memory: who is master, and what a group keeps."""

from __future__ import annotations

from rocketmq_tw.broker.role.state import Role
from tests.support.elected_group import ElectedGroup


def three(**keys: object) -> ElectedGroup:
    group = ElectedGroup(**keys)
    group.controllers.leader()
    group.start(1)
    group.run_until(lambda: group.masters() == [1])
    for number in (2, 3):
        group.start(number)
        group.run_until(lambda number=number: group.role(number) is Role.SLAVE)
    group.run_until(lambda: group.in_sync() == {1, 2, 3})
    return group


def test_the_first_one_is_master_and_the_others_join_it() -> None:
    group = three()
    assert [group.broker_id(number) for number in (1, 2, 3)] == [1, 2, 3]
    assert group.brokers[1].broker.role.state.broker_id == 0
    assert group.brokers[2].broker.role.state.broker_id == 2


def test_a_killed_masters_messages_are_all_at_the_next_one() -> None:
    group = three(all_ack_in_sync_state_set=True)
    bodies = [b"%d" % number for number in range(20)]
    for body in bodies:
        group.send(1, body)
    group.run_until(lambda: group.acknowledged == bodies)
    group.kill(1)
    began = group.clock.seconds()
    group.run_until(lambda: group.masters())
    assert group.clock.seconds() - began < 5
    group.run(1)
    (successor,) = group.masters()
    assert group.bodies(successor) == bodies
    group.start(1)
    group.run_until(lambda: group.in_sync() == {1, 2, 3})
    assert group.role(1) is Role.SLAVE
