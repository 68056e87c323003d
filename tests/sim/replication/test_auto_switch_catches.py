"""Rules of auto-switch HA, each broken on purpose: the schedules find it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from twisted.internet.defer import Deferred, inlineCallbacks, succeed

from rocketmq_tw.replication.auto_switch import service
from rocketmq_tw.replication.auto_switch.client import AutoSwitchHAClient
from rocketmq_tw.replication.auto_switch.epochs import EpochEntry, EpochTable
from rocketmq_tw.replication.auto_switch.service import AutoSwitchHAService
from rocketmq_tw.replication.auto_switch.sync_states import SyncStates
from rocketmq_tw.wire.codes import ResponseCode
from tests.support.sim.switched import Broken, RecordLog, run

SEEDS = 600


def finds(why: str, first: int = 0, **broken: Any) -> None:
    """Checks that a schedule finds it; the one with seed `first`, which found it once, is tried
    first."""
    with pytest.raises(Broken, match=why):
        for seed in (first, *range(SEEDS)):
            run(seed, **broken)


class HastyLog(RecordLog):
    def append(self, offset: int, data: bytes) -> Deferred[int]:
        super().append(offset, data)
        return succeed(self.written)


class SelfWilled(AutoSwitchHAService):
    def _ask(self, members: frozenset[int]) -> None:
        self.states.applied = self.states.applied._replace(members=members)
        super()._ask(members)


class Talkative(AutoSwitchHAService):
    def _advance(self) -> None:
        if self._log.end_offset > self.confirmed:
            self.confirmed = self._log.end_offset
            self._switched.confirm(self.confirmed)


class Stubborn(AutoSwitchHAClient):
    @inlineCallbacks
    def _common(self, master: Any, end: int) -> Generator[Any, Any, int]:
        yield succeed(None)
        return min(end, master.end)


def test_a_slave_that_acknowledges_too_soon() -> None:
    finds("without the message|cut at|others will never", 44, make_log=HastyLog, steps=600)


def test_a_master_that_drops_a_member_before_the_controller_knows() -> None:
    finds("without the message|others will never|cut at", make_service=SelfWilled)


def test_a_master_that_shows_what_is_not_confirmed() -> None:
    finds("cut at|others will never", make_service=Talkative)


def test_a_slave_that_keeps_what_the_master_does_not_have() -> None:
    finds("no end of a record|together|others will never|cut at|up to", make_client=Stubborn)


def test_a_master_that_leaves_out_an_epoch_which_starts_where_another_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def begin(table: EpochTable, epoch: int, end: int, log_start: int) -> None:
        """As stock does."""
        last = table.last
        if last is not None and last.epoch == epoch:
            table._entries = tuple(entry for entry in table.entries if entry.epoch < epoch)
        last = table.last
        if last is None or (last.epoch < epoch and last.start < end):
            table._entries = (*table.entries, EpochEntry(epoch, end))

    monkeypatch.setattr(EpochTable, "begin", begin)
    finds(".")


def test_a_slave_that_joins_before_it_has_what_was_promised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported = SyncStates.reported

    def hasty(states: SyncStates, *args: Any, promised_end: int, **named: Any) -> None:
        reported(states, *args, promised_end=0, **named)

    monkeypatch.setattr(SyncStates, "reported", hasty)
    finds("without the message|others will never|cut at", 29)


def test_a_refusal_that_is_taken_for_the_end_of_an_earlier_proposal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every = service.NOT_TAKEN | {ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH}
    monkeypatch.setattr(service, "NOT_TAKEN", every)
    finds("without the message|others will never|cut at", 94)
