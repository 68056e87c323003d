"""Decides whether a broker stands for election: in a group with controllers, or in one of
DLedger.

Rules: docs/durability.md, "A broker that cannot write".
"""

from __future__ import annotations

from collections.abc import Iterable

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketmq_tw.broker.role.health import Health
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.metrics.instruments import Metric, counter, gauge
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.runtime.named_log import named
from rocketmq_tw.runtime.retries import GrowingPause

#: Seconds for which a broker stays out of elections that was elected and could not enter its role:
#: the first time, and at most. The other replicas have to be elected meanwhile.
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 300.0
#: Seconds without a master after which a broker stands whose disk is too full: one that has room
#: would have been elected meanwhile.
ROOM_PATIENCE = 10.0

log = Logger()


class Candidacy:
    """A broker stands unless it could not be a good master now.

    It does not stand while its disk refuses, and for a growing while after it could not enter the
    role that it was elected for. A master stays one until it cannot write.

    A disk that is too full keeps it out for `ROOM_PATIENCE` only, if the group has no master
    meanwhile: one that refuses messages still serves readers. Since the next member may be as full,
    it then stays until another one leads or could, or the disk has room.
    """

    def __init__(
        self, clock: IReactorTime, health: Health, role: RoleHolder, log_name: str = ""
    ) -> None:
        self._clock = clock
        #: What the broker's lines in the log begin with, see `named`.
        self.log_name = log_name
        self._logger = named(log, log_name)
        self._health = health
        self._role = role
        #: Told when the broker stands again, or no longer, or for another reason.
        self.changed = Listeners[()]("a broker stands for election again, or no longer")
        self._failure = ""
        self._failures = 0
        self._pause = GrowingPause(FIRST_PAUSE, LONGEST_PAUSE)
        self._pause_over = Alarm(clock, self._try_again)
        #: Whether it stands though its disk is too full.
        self._stands_full = False
        self._patience_over = Alarm(clock, self._stand_full)
        self._told = ""
        self._forget = [
            health.changed.add(self._reconsider),
            role.changed.add(lambda former, now: self._reconsider()),
        ]
        self._reconsider()

    @property
    def refusal(self) -> str:
        """Why the broker must not lead; empty where it may."""
        if self._failure:
            return self._failure
        health, is_master = self._health, self._role.is_master
        if self._stands_full:
            return health.fails_to_write if is_master else health.unfit_to_lead
        return health.cannot_write if is_master else health.cannot_lead

    @property
    def leads_full(self) -> bool:
        """Whether this broker is the master though its disk is too full."""
        return self._stands_full and self._role.is_master and bool(self._health.cannot_write)

    def nobody_leads(self) -> None:
        """Notes that the group is seen without a master."""
        if self._is_only_full and not self._stands_full:
            self._patience_over.set_if_unset(ROOM_PATIENCE)

    def another_leads(self) -> None:
        """Notes that the group is seen with another broker as its master, or with one that has room
        and waits to be it."""
        self._patience_over.cancel()
        self._stands_full = False
        self._reconsider()

    def failed(self, why: str) -> None:
        """Keeps the broker out of elections for a while: it was elected, and could not enter its
        role."""
        self._failures += 1
        pause = self._pause.failed()
        self._failure = f"it could not become the master: {why}"
        self._logger.error(
            "this broker was elected and could not become the master ({why}): it stays out of"
            " elections for {pause} s",
            why=why,
            pause=pause,
        )
        self._pause_over.set(pause)
        self._reconsider()

    def succeeded(self) -> None:
        """Notes that the broker is the master: the next failure is a first one again."""
        self._failure = ""
        self._pause.worked()
        self._pause_over.cancel()
        self._reconsider()

    def stop(self) -> None:
        """Tells nobody any more."""
        for forget in self._forget:
            forget()
        self.changed.clear()
        self._pause_over.cancel()
        self._patience_over.cancel()

    def metrics(self) -> Iterable[Metric]:
        """Yields whether it stands, and how often it could not enter its role."""
        yield gauge("rocketmq_broker_stands_for_election", int(not self.refusal))
        yield counter("rocketmq_broker_failed_elections_total", self._failures)

    def _try_again(self) -> None:
        self._failure = ""
        self._reconsider()

    @property
    def _is_only_full(self) -> bool:
        """Whether nothing but a disk that is too full keeps the broker out."""
        health, is_master = self._health, self._role.is_master
        with_room = health.fails_to_write if is_master else health.unfit_to_lead
        return not (self._failure or with_room) and bool(health.cannot_lead)

    def _stand_full(self) -> None:
        if self._is_only_full:
            self._logger.warn(
                "the group has no master for {patience} s: this broker stands for election, though"
                " it will store no messages: {why}",
                patience=ROOM_PATIENCE,
                why=self._health.cannot_lead,
            )
            self._stands_full = True
            self._reconsider()

    def _reconsider(self) -> None:
        if not self._health.cannot_lead:
            self._stands_full = False
            self._patience_over.cancel()
        refusal = self.refusal
        if refusal == self._told:
            return
        former, self._told = self._told, refusal
        if refusal and not self._failure:
            self._logger.error(
                "this broker gives up being the master: {why}"
                if self._role.is_master
                else "this broker does not stand for election: {why}",
                why=refusal,
            )
        elif former and not refusal:
            self._logger.info("this broker stands for election again")
        self.changed.tell()
