"""Knows which brokers grant locks on queues together: a part of the broker."""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_tw.broker.acting.part import Acting
from rocketmq_tw.broker.assembly.part import Part
from rocketmq_tw.broker.clients.part import Clients
from rocketmq_tw.broker.role.holder import RoleHolder


class LockQuorum(Part):
    """Has locks on queues granted by most brokers of the group (`lockInStrictMode`)."""

    def __init__(self, role: RoleHolder, acting: Acting, clients: Clients) -> None:
        self._role = role
        self._living = acting.living
        clients.group_locks.others = self._others

    def _others(self) -> Mapping[int, str]:
        """Returns the other brokers of the group that live, id -> address."""
        own = self._role.state.broker_id
        return {number: its for number, its in self._living.members().items() if number != own}
