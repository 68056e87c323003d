"""A slave beside another one that acts for their master, or did, keeps up with its progress.

Rules: docs/acting.md, "What happens to what waits".
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from rocketmq_tw.broker.acting.part import Acting
from rocketmq_tw.broker.acting.taking_back import TakingBack
from rocketmq_tw.broker.assembly.part import Part, Periodic
from rocketmq_tw.broker.replicas.part import COPY_SECONDS, Replicas
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.wire.bodies.route import MASTER_ID
from rocketmq_tw.wire.errors import RequestError, WireError

log = Logger()


class StandingBy(Part):
    """Copies what the acting slave has done from time to time, since this one acts when that one is
    lost: it would go on from the progress that the dead master had. And takes over what others have
    done where this one acts, or acts again, after others may have done so. Nothing is copied from a
    slave whose log goes on behind this one's: its progress may stand for messages that this log
    lacks.
    """

    def __init__(
        self,
        role: RoleHolder,
        writing: Writing,
        acting: Acting,
        replicas: Replicas,
        taking_back: TakingBack,
    ) -> None:
        self._role = role
        self._store = writing.store
        self._acting = acting
        self._replicas = replicas
        self._taking_back = taking_back
        acting.take_over = self._take_over

    def periodic(self) -> Iterable[Periodic]:
        if self._acting.is_enabled:
            name = "copying from the acting master"
            yield Periodic(name, COPY_SECONDS, self._copy, (Role.SLAVE,), may_hang=True)

    @inlineCallbacks
    def _copy(self) -> Generator[Deferred[Any], Any, None]:
        living = self._acting.living
        smallest = living.smallest()
        if smallest is None or self._replicas.copies_master:
            return
        if not MASTER_ID < smallest < self._role.state.broker_id:
            return
        yield self._keep_up(
            living.members()[smallest],
            "nothing is copied from {address}, which acts for the master: {why}",
        )

    @inlineCallbacks
    def _take_over(self, others: Mapping[int, str]) -> Generator[Deferred[Any], Any, bool]:
        """Takes over what these slaves have done; fires with whether all of them told."""
        failed = "what the slave at {address} did, which may have acted, is not known: {why}"
        for address in others.values():
            if not (yield self._keep_up(address, failed)):
                return False
        return True

    @inlineCallbacks
    def _keep_up(self, address: str, failed: str) -> Generator[Deferred[Any], Any, bool]:
        """Takes over what the slave at `address` has done; fires with whether it told. Where it did
        not, the log says that it `failed`."""
        scope = self._role.scope
        try:
            log_range = yield self._taking_back.calls.log_range(address)
            if log_range.end <= self._store.flushed_offset and not scope.is_over:
                yield self._taking_back.keep_up(address, log_range.end)
        except (RemotingError, RequestError, WireError) as why:
            log.warn(failed, address=address, why=why)
            return False
        return True
