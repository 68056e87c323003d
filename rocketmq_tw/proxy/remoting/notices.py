"""Tells classic clients of members of their groups that brokers do not know, as brokers tell them
of the others (40): so that they divide queues anew at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.heartbeat_sync.members import Members
from rocketmq_tw.proxy.remoting.clients import ClassicClients
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.runtime.slices import Slices, every
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.clients import NotifyConsumerIdsChangedRequestHeader

#: Seconds for which changes are gathered.
GATHER_SECONDS = 1.0
_ASK_SECONDS = 3.0


class OtherMemberNotices:
    """Gathers the groups that changed, and goes through all clients then."""

    def __init__(
        self,
        clock: IReactorTime,
        brokers: IBrokers,
        clients: ClassicClients,
        members: Members,
        in_slices: Slices,
    ) -> None:
        self._clients = clients
        self._in_slices = in_slices
        self._changed: set[str] = set()
        self._alarm = Alarm(clock, self._begin)
        members.changed.add(self._note)
        brokers.unseen_changed.add(self._note)

    def stop(self) -> None:
        """Tells nobody any more."""
        self._changed.clear()
        self._alarm.cancel()

    def _note(self, group: str) -> None:
        self._changed.add(group)
        self._alarm.set_if_unset(GATHER_SECONDS)

    def _begin(self) -> None:
        changed, self._changed = self._changed, set()
        self._in_slices.unwatched(self._tell(changed), "telling clients of other members")

    def _tell(self, changed: Collection[str]) -> Iterator[None]:
        for number, client in enumerate(self._clients):
            for group in client.groups.keys() & changed:
                header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
                code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
                client.ask(RemotingCommand.request(code, header, oneway=True), _ASK_SECONDS)
            if every(number):
                yield
