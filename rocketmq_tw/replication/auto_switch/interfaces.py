"""What auto-switch HA asks of the log that it copies, and of whoever speaks to the controller."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from zope.interface import Attribute

from rocketmq_tw.replication.auto_switch.sync_states import SyncMembers
from rocketmq_tw.replication.links.interfaces import IReplicatedLog

#: Asks the controller for these members; fires with the set that it has then. Fails with a
#: `RequestError` where the controller refuses, with anything else where its answer is not known.
Propose = Callable[[frozenset[int]], Deferred[SyncMembers]]

#: Has the controller elect anew: that ends the master's epoch, and all that was proposed in it.
Renounce = Callable[[], Deferred[None]]

#: Whether the newest record in front of an offset is the master's as well; fails with a `LinkError`
#: that says what to do where the master has nothing of that offset any more.
Compare = Callable[[int], Deferred[bool]]


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
