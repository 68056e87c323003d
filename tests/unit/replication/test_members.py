"""What the members of a group cost, of which anybody may register many."""

from __future__ import annotations

from twisted.internet.defer import succeed

from rocketmq_tw.net.networks import Networks
from rocketmq_tw.replication.links.members import RegisteredReplicas

compared = 0


class Host(str):
    """Counts how often it is compared."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        global compared
        compared += 1
        return str(self) == str(other)


def test_a_report_looks_at_few_of_many_members() -> None:
    told = [(number, Host(f"10.0.{number >> 8}.{number & 255}")) for number in range(2000)]
    members = RegisteredReplicas(lambda: 0, lambda: succeed(told), Networks("10.66.0.0/16"))
    members.refresh()
    before = compared
    assert members.places("10.0.0.7") == 1 and members.places("10.66.0.1") == 2000
    assert members.has("10.0.0.7", 7) and not members.has("10.0.0.7", 8)
    assert members.has("10.66.0.1", 8) and not members.has("10.66.0.1", 2000)
    assert compared - before < 20
