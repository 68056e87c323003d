"""The slave's side of auto-switch HA."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.replication.auto_switch.ends import AutoSwitchSlaveLink
from rocketmq_tw.replication.auto_switch.epoch_file import KeptEpochs
from rocketmq_tw.replication.auto_switch.epochs import EpochEntry, EpochError, EpochTable
from rocketmq_tw.replication.auto_switch.frames import (
    EpochTransfer,
    MasterHandshake,
    SlaveHandshake,
)
from rocketmq_tw.replication.interfaces import ISwitchedLog
from rocketmq_tw.replication.links.client import HAClient
from rocketmq_tw.replication.links.ends import LinkError
from rocketmq_tw.replication.links.settings import HASettings
from rocketmq_tw.runtime.fairness import Serial

#: A slave whose log disagrees has something that the master lacks.
_ADVICE = (
    "nothing was changed. This broker has messages that the master lacks: before anything is"
    ' removed read docs/controller.md, "A broker that follows no master"'
)


class RecordComparison(NamedTuple):
    """What the newest record in front of an offset says of two logs. `differs`: the master has
    another one there, or none. `same_until`: where a record ends that both have, which proves that
    they are one log up to there, since a broker that has it has copied all in front of it; 0 where
    there is none to look at."""

    differs: bool
    same_until: int = 0


#: Compares the newest record in front of an offset with the master's; fails with a `LinkError` that
#: says what to do where the master has nothing of that offset any more.
Compare = Callable[[int], Deferred[RecordComparison]]


class AutoSwitchHAClient(HAClient[AutoSwitchSlaveLink]):
    """Makes the log agree with the master's, then copies that with its epochs."""

    def __init__(
        self,
        switched: ISwitchedLog,
        settings: HASettings,
        clock: IReactorTime,
        *,
        epochs: KeptEpochs,
        handshake: SlaveHandshake,
        compare: Compare,
    ) -> None:
        super().__init__(switched, settings, clock)
        self._switched = switched
        self._epochs = epochs
        self._handshake = handshake
        self._compare = compare
        #: The master's, when the link was opened.
        self._masters = EpochTable()
        #: The log's, when the link was opened.
        self._end = 0
        #: What a link began is over before the next one begins.
        self._working = Serial()
        #: A question to the master that is under way.
        self._asked: Deferred[RecordComparison] | None = None

    @inlineCallbacks
    def stop(self) -> Generator[Any, Any, None]:
        """See `HAClient`; what was begun is over when it fires."""
        closed = super().stop()
        if self._asked is not None:
            # A master that is gone may be the reason for a change of role, which must not wait.
            self._asked.cancel()
        yield closed
        yield self._working.run(lambda: None)

    def open_link(self) -> Deferred[AutoSwitchSlaveLink]:
        """See `HAClient`."""
        return self._working.run(self._open)

    @inlineCallbacks
    def _open(self) -> Generator[Any, Any, AutoSwitchSlaveLink]:
        yield self._switched.end_at_whole_record()
        self._end = end = yield self._switched.settled()
        yield self._epochs.cut(end + 1)
        return AutoSwitchSlaveLink(end, self._handshake, self._settings, self.now_ms())

    def carry_out(
        self, link: AutoSwitchSlaveLink, steps: Sequence[MasterHandshake | EpochTransfer]
    ) -> Deferred[int]:
        """See `HAClient`."""
        first = steps[0]
        if isinstance(first, MasterHandshake):
            return self._working.run(self._agree, link, first)
        transfers: Sequence[Any] = steps
        last = self._epochs.table.last
        if all(each.epoch == last for each in transfers):
            return self._append(transfers)
        return self._working.run(self._append_epochs, link, transfers)

    @inlineCallbacks
    def _append_epochs(
        self, link: AutoSwitchSlaveLink, transfers: Sequence[EpochTransfer]
    ) -> Generator[Any, Any, int]:
        """Appends what has several epochs; each is in the file before the log has a byte of it."""
        end: int = yield self._switched.settled()
        for entry, group in groupby(transfers, key=lambda transfer: transfer.epoch):
            run = list(group)
            yield self._learn(entry, run)
            self._check_is_open(link)
            end = yield self._append(run)
        return end

    @inlineCallbacks
    def _learn(self, entry: EpochEntry, run: Sequence[EpochTransfer]) -> Generator[Any, Any, None]:
        """Takes the epochs up to the one of `run`. Stock leaves out an epoch whose bytes came
        together with the next one's first, so the epochs of its handshake are taken as well."""
        last = self._epochs.table.last
        beats = not any(transfer.data for transfer in run)
        if beats and last is not None and entry.epoch <= last.epoch:
            # Stock beats under any epoch.
            return
        passed = self._masters.covering(run[0].offset)
        for known in self._masters.entries:
            newest = self._epochs.table.last
            if (
                passed is not None
                and passed.entry.epoch <= known.epoch < entry.epoch
                and (newest is None or known.epoch > newest.epoch)
            ):
                yield self._epochs.learn(known)
        try:
            yield self._epochs.learn(entry)
        except EpochError as error:
            raise LinkError(str(error)) from error

    def _append(self, run: Sequence[EpochTransfer]) -> Deferred[int]:
        """Appends bytes of one epoch and takes what is confirmed."""
        data = b"".join([transfer.data for transfer in run])
        if data:
            start = next(transfer.offset for transfer in run if transfer.data)
            appended = self._switched.append(start, data)
        else:
            appended = self._switched.settled()
        return appended.addCallback(self._confirm, run[-1].confirmed)

    def _confirm(self, end: int, confirmed: int) -> int:
        self._switched.confirm(min(end, confirmed))
        return end

    # The handshake

    @inlineCallbacks
    def _agree(
        self, link: AutoSwitchSlaveLink, master: MasterHandshake
    ) -> Generator[Any, Any, int]:
        """Cuts off what the master's log does not have; fires with the log's end then."""
        self._masters = master.epochs
        own, end = self._epochs.table, self._end
        point = yield self._common(master, end)
        self._check_is_open(link)
        agreed = own.agreement(end, self._masters, master.end)
        if point < end:
            if point < self._switched.start_offset:
                raise LinkError(
                    f"this log starts at {self._switched.start_offset} and is the master's only up"
                    f" to {point}; {_ADVICE}"
                )
            yield self._check_confirmed(master, point)
            self._check_is_open(link)
            self._log.warn(
                "this log is the master's up to {point}: the {size} bytes behind it are cut off",
                point=point,
                size=end - point,
            )
            # The log first: a log that is longer than its epochs say would be taken for the
            # master's.
            yield self._switched.truncate(point)
            self._end = point
        if point < end or self._has_strange_epoch(point):
            yield self._epochs.cut(point)
        if not point:
            yield self._epochs.restart(self._masters)
        elif agreed is None or agreed.offset < point:
            # So that its next ones can follow.
            yield self._epochs.adopt(self._masters, point)
        return point

    def _has_strange_epoch(self, end: int) -> bool:
        """Returns whether an epoch begins at the log's end, so that it has no byte, that is unknown
        to a master of a later one: a broker was elected and wrote nothing, or the log was cut and
        the epochs could not be. The master's next bytes may be of an earlier epoch."""
        theirs = self._masters
        return any(
            entry.start >= end and entry not in theirs.entries
            for entry in self._epochs.table.entries
            if theirs.last is not None and entry.epoch < theirs.last.epoch
        )

    @inlineCallbacks
    def _check_confirmed(self, master: MasterHandshake, point: int) -> Generator[Any, Any, None]:
        """What all in sync had is cut off for a master only that has it as well, under another
        epoch. Without `allAckInSyncStateSet` that is not promised, and stock's masters call
        confirmed what no slave has; but a master that has nothing of this log has lost its store,
        or is another group's."""
        confirmed = self._switched.confirmed_offset
        if confirmed <= point or (point and not self._settings.all_ack):
            return
        if confirmed <= master.end and not (yield self._ask(confirmed)).differs:
            return
        raise LinkError(
            f"this log is the master's up to {point} and confirmed up to {confirmed}: the master"
            f" lacks acknowledged messages, which may be here alone; {_ADVICE}"
        )

    @inlineCallbacks
    def _common(self, master: MasterHandshake, end: int) -> Generator[Any, Any, int]:
        """Fires with up to where this log, which ends at `end`, is the master's."""
        own, theirs = self._epochs.table, master.epochs
        # Of `point`, where that was asked about already.
        compared: RecordComparison | None = None
        if end == 0:
            return 0
        covering = own.covering(end - 1)
        if covering is not None and (
            theirs.last is None or theirs.last.epoch < covering.entry.epoch
        ):
            raise LinkError(
                f"this log has messages of epoch {covering.entry.epoch}, later than any that the"
                f" master has: it is no master any more. If this lasts: {_ADVICE}"
            )
        if not own.entries:
            # As old as the group's controller, or older.
            point, start = end, 0
            if end > master.end:
                raise LinkError(
                    f"this log has no epochs and ends at {end}, the master's at {master.end} before"
                    f" it; {_ADVICE}"
                )
        else:
            agreement = own.agreement(end, theirs, master.end)
            known = 0 if agreement is None else agreement.offset
            shared = min(end, master.end)
            if known < shared:
                # A master that is started again and still is the master begins its epoch once more
                # where its log ends, so the epochs differ in what everybody has. Those in sync must
                # not let go of that, not even to copy it again.
                compared = yield self._ask(shared)
                if compared.same_until > known:
                    return compared.same_until
            if agreement is not None:
                point, start, compared = agreement.offset, agreement.entry.start, None
            elif theirs.covering(0) is not None and end <= master.end:
                # Controllers that were started anew count from 1 again, so the master has forgotten
                # epochs that this log still names: only what both have can tell.
                point = start = end
            else:
                if theirs.entries and end <= theirs.entries[0].start:
                    # Fails, and says so, where the master has deleted what comes next.
                    yield self._ask(end)
                raise LinkError(
                    f"the master has none of this log's epochs ({_shown(own)}; the master's:"
                    f" {_shown(theirs)}); {_ADVICE}"
                )
        if compared is None:
            compared = yield self._ask(point)
        if compared.differs and start < point and own.entries:
            # A master that came back without the end of its epoch went on under its number.
            point = start
            compared = yield self._ask(point)
        if compared.differs:
            raise LinkError(f"the master has another message in front of {point}; {_ADVICE}")
        return point

    def _ask(self, point: int) -> Deferred[RecordComparison]:
        """See `Compare`."""

        def answered(result: Any) -> Any:
            self._asked = None
            return result

        self._asked = asked = self._compare(point)
        return asked.addBoth(answered)

    def _check_is_open(self, link: AutoSwitchSlaveLink) -> None:
        """Checks that the master is still followed: the log is not touched for any other."""
        if self.connection is None or self.connection.link is not link:
            raise LinkError("the link is gone")


def _shown(table: EpochTable) -> str:
    return ", ".join(f"{entry.epoch} from {entry.start}" for entry in table.entries[-5:]) or "none"
