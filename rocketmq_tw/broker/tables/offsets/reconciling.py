"""Consumer offsets of a broker, and those of other members of its group.

Between a master and its slave the smaller offset of a queue never counts because of who wrote last.
A slave that acts for its master notes what is changed on it (`OwnChanges`). The master that comes
back takes the larger offset of each queue, and the slave's own where the group was put back there
(`taking_back.py`). A slave follows its master's offsets, smaller ones too, but for those that were
changed while it acted: of these a smaller one is a master's that did not take them back, unless it
went back there.

Rules: docs/acting.md, "What may come twice, and why".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rocketmq_tw.broker.tables.offsets.table import OffsetTable
from rocketmq_tw.message.names import split_pair
from rocketmq_tw.wire.bodies.base import DataVersion
from rocketmq_tw.wire.bodies.queues import ConsumerOffsetTable

#: Pairs that one step looks at.
_STEP = 500
#: By how much the version grows when a slave begins to act. Its master may have counted on since
#: the last copy, or counts on while it is cut off: ours asks whether the version is newer than its
#: own, and stock's takes offsets back from one that is not behind its own.
_ACTING_LEAP = 1_000_000


class OffsetReconciling:
    """Brings `offsets` and another member's together."""

    def __init__(self, offsets: OffsetTable, now_ms: Callable[[], int]) -> None:
        self._offsets = offsets
        self._changes = offsets.own
        self._now_ms = now_ms

    def begin_acting(self) -> None:
        """Notes what is changed from now on, as a slave that acts for its master."""
        self._changes.are_noted = True
        counter = self._offsets.data_version.counter + _ACTING_LEAP
        self._offsets.data_version = DataVersion(timestamp=self._now_ms(), counter=counter)
        self._offsets.write_soon()

    def end_acting(self) -> None:
        """Ends what `begin_acting` began; what was noted counts until a master's are followed."""
        self._changes.are_noted = False

    def put_back(self) -> dict[str, list[int]]:
        """Returns the queues in which groups were put back while this broker acted."""
        return self._changes.put_back()

    def lead(self) -> None:
        """Forgets what was changed while this broker acted: it is the master now."""
        self._changes.clear()

    def follow(self, table: ConsumerOffsetTable, former: ConsumerOffsetTable) -> Iterator[None]:
        """Copies a master's `table`, in steps: sets its offsets and removes those that it lacks.
        Where its table was changed more often than this one, that is all that it lacks; else it may
        have lost them, or never had them, and only those that it had before, in `former`, are
        removed. Brokers of 4.9 do not tell how often theirs was changed.

        An offset that was changed while this broker acted stays where the master's is smaller, and
        did not go back there since `former`: it did not take that one back."""
        offsets, version = self._offsets, table.data_version
        is_newer = version is not None and version.counter > offsets.data_version.counter
        known = dict(offsets.all()) if is_newer else former.offset_table
        if table.log_place is None:
            offsets.as_of.place = None
        for number, (key, queues) in enumerate(table.offset_table.items(), 1):
            here = offsets.add(key)
            for queue_id, offset in queues.items():
                mine = here.get(queue_id)
                if self._changes and self._stays(key, queue_id, mine, offset, former):
                    continue
                if mine != offset:
                    here[queue_id] = offset
                    offsets.write_soon()
            for queue_id in known.get(key, {}).keys() - queues.keys():
                here.pop(queue_id, None)
                offsets.write_soon()
            if number % _STEP == 0:
                yield
        for number, key in enumerate(known.keys() - table.offset_table.keys(), 1):
            offsets.remove(key)
            if number % _STEP == 0:
                yield
        if is_newer and version is not None:
            offsets.data_version = version
        offsets.as_of.place = table.log_place

    def _stays(
        self, key: str, queue_id: int, mine: int | None, offset: int, former: ConsumerOffsetTable
    ) -> bool:
        """Returns whether `mine`, this broker's offset in a queue, stays though its master says
        `offset`; else the master's counts there from now on."""
        if not self._changes.has(key, queue_id):
            return False
        known = former.offset_table.get(key, {}).get(queue_id, offset)
        if mine is not None and known <= offset < mine:
            return True
        self._changes.forget(key, queue_id)
        return False

    def take_back(
        self,
        table: ConsumerOffsetTable,
        counts: Callable[[str, int], bool | None],
        *,
        is_newest: bool,
    ) -> Iterator[None]:
        """Takes over, in steps, what a slave had that acted: in each queue the larger offset,
        unless `counts(key, queue_id)` says whether the slave's does, whatever it is. The version
        becomes newer than both with `is_newest`, and where this broker acts, else the newer one of
        both."""
        offsets = self._offsets
        for number, (key, queues) in enumerate(table.offset_table.items(), 1):
            here = offsets.add(key)
            for queue_id, offset in queues.items():
                said = counts(key, queue_id)
                if offset > here.get(queue_id, -1) if said is None else said:
                    here[queue_id] = offset
                    offsets.write_soon()
                    if said:
                        # A slave that takes it may be the only one that is left to tell.
                        self._changes.note(key, queue_id, put_back=True)
                        # The log may have pops behind it, of the time before.
                        topic, group = split_pair(key)
                        offsets.note_put_back(group, topic, queue_id, offset)
            if number % _STEP == 0:
                yield
        version = table.data_version
        if version is not None and version.counter >= offsets.data_version.counter:
            is_newer = is_newest or self._changes.are_noted
            offsets.data_version = version.next(self._now_ms()) if is_newer else version
            offsets.write_soon()
