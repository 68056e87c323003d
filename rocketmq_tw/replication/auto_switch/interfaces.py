"""What auto-switch HA asks of the log that it copies, and of whoever speaks to the controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from twisted.internet.defer import Deferred
from zope.interface import Attribute

from rocketmq_tw.replication.links.interfaces import IReplicatedLog
from rocketmq_tw.wire.group_state import SyncStateSet

#: Asks the controller for these members; fires with the set that it has then. Fails with a
#: `RequestError` where the controller refuses, with anything else where its answer is not known.
Propose = Callable[[frozenset[int]], Deferred[SyncStateSet]]

#: Has the controller elect anew: that ends the master's epoch, and all that was proposed in it.
Renounce = Callable[[], Deferred[None]]


class RecordComparison(NamedTuple):
    """What the newest record in front of an offset says of two logs. `differs`: the master has
    another one there, or none; `same_until`: where a record ends that both have, which proves that
    they are one log up to there, since whoever has it has copied all in front of it; 0 where there
    is none to look at."""

    differs: bool
    same_until: int = 0


#: Compares the newest record in front of an offset with the master's; fails with a `LinkError` that
#: says what to do where the master has nothing of that offset any more.
Compare = Callable[[int], Deferred[RecordComparison]]


class ISwitchedLog(IReplicatedLog):
    """A log whose end may be another one after a change of master."""

    confirmed_offset: int = Attribute("Behind the last record that is known to be confirmed.")

    def end_at_whole_record() -> Deferred[None]:
        """Cuts off a last record of which only a part came."""

    def truncate(end: int) -> Deferred[None]:
        """Ends the log at `end`, where a record starts, with all that is made from it; durable when
        it fires."""

    def confirm(offset: int) -> None:
        """No change of master takes back what lies in front of `offset`: readers may see it. An
        offset in front of an earlier one changes nothing."""
