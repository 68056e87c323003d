"""The slave's side of classic HA."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.replication.classic.frames import Transfer
from rocketmq_tw.replication.classic.slave_link import ClassicSlaveLink
from rocketmq_tw.replication.links.client import HAClient
from rocketmq_tw.replication.links.interfaces import IReplicatedLog
from rocketmq_tw.replication.links.settings import HASettings

#: Fires where this log may follow the master's; fails with a `LinkError` that says why not.
Agree = Callable[[], Deferred[None]]


class ClassicHAClient(HAClient[ClassicSlaveLink]):
    """Before each link `agree` is asked whether this log may follow that master's."""

    def __init__(
        self,
        log: IReplicatedLog,
        settings: HASettings,
        clock: IReactorTime,
        agree: Agree = lambda: succeed(None),
    ) -> None:
        super().__init__(log, settings, clock)
        self._agree = agree

    def open_link(self) -> Deferred[ClassicSlaveLink]:
        """See `HAClient`."""
        settled = self._agree().addCallback(lambda _: self._log_file.settled())
        return settled.addCallback(lambda end: ClassicSlaveLink(end, **self._link_settings()))

    def carry_out(self, link: ClassicSlaveLink, steps: Sequence[Transfer]) -> Deferred[int]:
        """See `HAClient`. What arrived together is appended and, where it must be, synced
        together."""
        data = b"".join(transfer.data for transfer in steps)
        return self._log_file.append(steps[0].offset, data)
