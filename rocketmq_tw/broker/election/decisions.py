"""Decides what a broker does when it hears of its group: pure rules."""

from __future__ import annotations

from enum import Enum

from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.wire.group_state import GroupState


class Step(Enum):
    """What a broker does next.

    NOTHING: its role fits. ELECT: there is no master, so it asks the controller for one. MASTER,
    SLAVE: the role to take. SYNC_STATE_SET: it is the master, and the SyncStateSet has changed.
    """

    NOTHING = "nothing"
    ELECT = "elect"
    MASTER = "master"
    SLAVE = "slave"
    SYNC_STATE_SET = "sync state set"


def next_step(
    state: RoleState,
    broker_id: int,
    address: str,
    heard_epoch: int,
    sync_state_set_epoch: int,
    group: GroupState,
) -> Step:
    """Returns what the broker with the lasting id `broker_id`, reached at `address`, now in
    `state`, does when it hears of `group`. `heard_epoch` is the highest master epoch that it has
    heard of: a lower one is out of date, since an epoch has one master. `sync_state_set_epoch` is
    the epoch of the SyncStateSet that it works with."""
    if group.master_epoch < heard_epoch:
        return Step.NOTHING
    if group.master_id is None or not group.master_address:
        return Step.ELECT
    if state.role is Role.ISOLATED or group.master_epoch > (state.epoch or 0):
        return Step.MASTER if is_this_one(broker_id, address, group) else Step.SLAVE
    if state.role is Role.MASTER and group.in_sync.epoch > sync_state_set_epoch:
        return Step.SYNC_STATE_SET
    if state.role is Role.SLAVE and _has_moved(state, group):
        # Stock's master goes on in its epoch wherever it is started again.
        return Step.SLAVE
    return Step.NOTHING


def is_this_one(broker_id: int, address: str, group: GroupState) -> bool:
    """Returns whether the controllers take the broker with this lasting id, reached at `address`,
    for the master. Stock's take a copy of a store as well, which has the same id: only one of the
    two may be it."""
    return (group.master_id, group.master_address) == (broker_id, address)


def _has_moved(state: RoleState, group: GroupState) -> bool:
    """Returns whether the master that is copied is at another address."""
    return state.group is not None and state.group.master_address != group.master_address
