"""Notifies the members of groups whose members changed (40), so that they divide the queues anew.

A host that dies takes many members of a group along. Each of those that are left is notified once
for all that a turn of the reactor brought, or what came while others were notified: not once for
each member that is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.broker.clients.registry import ConsumerGroup
from rocketmq_tw.runtime.fairness import Coalesced
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.clients import NotifyConsumerIdsChangedRequestHeader

#: Members that are notified in one step: about a millisecond.
_STEP = 50

log = Logger()


class MemberNotices:
    """Notifies members in slices. Those that left meanwhile are passed over."""

    def __init__(self, in_slices: Callable[[Iterator[None]], Deferred[Any]]) -> None:
        self._in_slices = in_slices
        #: Groups with changes that their members were not told of, by name.
        self._changed: dict[str, ConsumerGroup] = {}
        self._round = Coalesced(self._notify)

    def changed(self, group: ConsumerGroup) -> None:
        """Has all members of `group` notified in a later turn of the reactor."""
        self._changed[group.name] = group
        self._round.request()

    def _notify(self) -> Deferred[Any]:
        return self._in_slices(self._steps()).addErrback(
            lambda failure: log.failure("telling groups that their members changed failed", failure)
        )

    def _steps(self) -> Iterator[None]:
        # The rest of this turn may change the same groups.
        yield
        changed, self._changed = self._changed, {}
        number = 0
        for group in changed.values():
            header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group.name)
            for peer in list(group.clients):
                if peer in group.clients:
                    code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
                    peer.send_oneway(RemotingCommand.request(code, header, oneway=True))
                number += 1
                if number % _STEP == 0:
                    yield
