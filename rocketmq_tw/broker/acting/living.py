"""Keeps which brokers of the group live, and says what a slave concludes from it. Pure.

Rules: docs/acting.md, "When a slave acts".
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_tw.broker.cluster.group_members import LivingMembers
from rocketmq_tw.wire.bodies.route import MASTER_ID


class LivingGroup:
    """Keeps what each name server said last of the brokers of the group.

    A broker lives where one name server says so: one that lost its connection to a broker is no
    reason for a second broker to do that one's work. A name server that does not answer says
    nothing any more, so that a broker that can reach none of them acts for nobody: another one may
    do so by then.
    """

    def __init__(self) -> None:
        self._said: dict[str, LivingMembers] = {}

    def heard(self, answers: Mapping[str, LivingMembers | None]) -> None:
        """Takes in the answers of name servers by address; None stands for no answer."""
        for name_server, members in answers.items():
            if members is None:
                self._said.pop(name_server, None)
            else:
                self._said[name_server] = members

    def smallest(self) -> int | None:
        """Returns the smallest id of the brokers that live; None where nobody says anything. No
        broker with a role has an id below 0: anybody may register one."""
        numbers = (number for members in self._said.values() for number in members)
        return min((number for number in numbers if number >= MASTER_ID), default=None)

    def members(self) -> dict[int, str]:
        """Returns the brokers that live, id -> address."""
        return {number: its for members in self._said.values() for number, its in members.items()}
