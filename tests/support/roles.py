"""Roles for tests of one room."""

from __future__ import annotations

from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState


def a_master() -> RoleHolder:
    """The role of a master that waits for no slave."""
    return RoleHolder(RoleState(Role.MASTER, 0))


def a_slave(broker_id: int = 1) -> RoleHolder:
    """The role of a slave."""
    return RoleHolder(RoleState(Role.SLAVE, broker_id))
