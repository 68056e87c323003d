"""Counts how much each host has of what there is limited room for, so that none takes it from
all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class HostShares:
    """Counts by host; a host that has nothing takes no memory."""

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self._shares = Counter(hosts)
        #: What all hosts have together.
        self.total = self._shares.total()

    def of(self, host: str) -> int:
        """Returns how much a host has."""
        return self._shares[host]

    def add(self, host: str, amount: int = 1) -> None:
        """Counts so much more of a host."""
        self._shares[host] += amount
        self.total += amount

    def remove(self, host: str, amount: int = 1) -> None:
        """Counts so much less of a host, which has it."""
        self._shares[host] -= amount
        self.total -= amount
        if not self._shares[host]:
            del self._shares[host]

    def has_room(self, host: str, amount: int, limit: int) -> bool:
        """Returns whether a host may have so much more where all together have `limit`: whatever it
        has up to there, and of half as much again no more than it leaves to others, so that there
        always is something for those that have nothing."""
        after = self.total + amount
        return after <= limit or self.of(host) + amount <= limit * 3 // 2 - after

    def largest(self) -> str | None:
        """Returns the host that has most; None where none has anything."""
        return next((host for host, _ in self._shares.most_common(1)), None)

    def giving_way(self, host: str, amount: int = 1) -> str | None:
        """Returns the host that has most, from which `host` may take so much; None where `host`
        would then have as much as that one has now."""
        largest = self.largest()
        if largest is None or self.of(host) + amount >= self.of(largest):
            return None
        return largest
