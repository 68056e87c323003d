"""What a broker does about the news of its group."""

from __future__ import annotations

import pytest

from rocketmq_tw.broker.election.decisions import Step, next_step
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.wire.group_state import GroupState, SyncStateSet

ME, OTHER = 2, 1
ISOLATED = RoleState(Role.ISOLATED, ME)


def address_of(number: int) -> str:
    return f"10.0.0.{number}:10911"


def group(
    master: int | None, epoch: int, members_epoch: int = 5, host: int | None = None
) -> GroupState:
    address = "" if master is None else address_of(host or master)
    return GroupState(master, address, epoch, SyncStateSet(frozenset({ME, OTHER}), members_epoch))


MASTER_3 = RoleState(Role.MASTER, 0, group=group(ME, 3))
SLAVE_3 = RoleState(Role.SLAVE, ME, group=group(OTHER, 3))


@pytest.mark.parametrize(
    ("state", "news", "expected"),
    [
        # A broker that has no role yet takes the one that it is given, whatever the epoch.
        (ISOLATED, group(ME, 3), Step.MASTER),
        (ISOLATED, group(OTHER, 3), Step.SLAVE),
        (ISOLATED, group(None, 3), Step.ELECT),
        # Nothing new.
        (MASTER_3, group(ME, 3), Step.NOTHING),
        (SLAVE_3, group(OTHER, 3), Step.NOTHING),
        # Another master, or the same one once more.
        (MASTER_3, group(OTHER, 4), Step.SLAVE),
        (SLAVE_3, group(ME, 4), Step.MASTER),
        (SLAVE_3, group(OTHER, 4), Step.SLAVE),
        (MASTER_3, group(ME, 4), Step.MASTER),
        # A master of stock's that was started again somewhere else, and goes on in its epoch.
        (SLAVE_3, group(OTHER, 3, host=9), Step.SLAVE),
        (SLAVE_3, group(OTHER, 2, host=9), Step.NOTHING),
        # A copy of this broker's store, somewhere else.
        (ISOLATED, group(ME, 3, host=9), Step.SLAVE),
        (SLAVE_3, group(ME, 4, host=9), Step.SLAVE),
        (MASTER_3, group(ME, 4, host=9), Step.SLAVE),
        # The master is gone and none was found.
        (SLAVE_3, group(None, 4), Step.ELECT),
        (MASTER_3, group(None, 4), Step.ELECT),
        # The set changed: only its master cares.
        (MASTER_3, group(ME, 3, 6), Step.SYNC_STATE_SET),
        (SLAVE_3, group(OTHER, 3, 6), Step.NOTHING),
        (MASTER_3, group(ME, 3, 4), Step.NOTHING),
        # News that were overtaken.
        (MASTER_3, group(OTHER, 2), Step.NOTHING),
        (SLAVE_3, group(None, 2), Step.NOTHING),
        (ISOLATED, group(OTHER, 2), Step.NOTHING),
    ],
)
def test_news_of_the_group(state: RoleState, news: GroupState, expected: Step) -> None:
    assert next_step(state, ME, address_of(ME), 3, 5, news) is expected
