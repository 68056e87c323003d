"""A controller that is always right, as one object."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.group_state import SyncStateSet

IDS = (1, 2, 3)


@attrs.define
class Controller:
    """Decides who is master; `alive` tells whom it could elect."""

    alive: Callable[[int], bool]
    end_of: Callable[[int], tuple[int, int]]
    master: int | None = None
    epoch: int = 0
    applied: SyncStateSet = attrs.field(factory=lambda: SyncStateSet(frozenset(), 0))

    def elect(self, *, but: int | None = None) -> None:
        """A member that is alive, the one with the most; `but` is passed over if it can be."""
        able = [each for each in self.applied.members if self.alive(each) and each != but]
        if not self.epoch:
            able = [each for each in IDS if self.alive(each)]
        if not able:
            return
        self.master = max(able, key=self.end_of)
        self.epoch += 1
        self.applied = SyncStateSet(frozenset({self.master}), self.applied.epoch + 1)

    def alter(self, by: int, epoch: int, base: int, members: frozenset[int]) -> SyncStateSet:
        if (by, epoch, base) != (self.master, self.epoch, self.applied.epoch):
            raise RequestError(ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, "not any more")
        if not all(map(self.alive, members)):
            raise RequestError(ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, "one is gone")
        self.applied = SyncStateSet(members, base + 1)
        return self.applied
