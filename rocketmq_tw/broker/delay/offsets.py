"""The table of how far each delay level is delivered: `config/delayOffset.json` in stock's form
(docs/formats/config-files.md), and how that goes back where the end of the log is cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from rocketmq_tw.broker.assembly.truncation import LogCut
from rocketmq_tw.broker.delay.levels import (
    DelayLevels,
    delivered_level,
    due_message,
    queue_of,
)
from rocketmq_tw.broker.tables.versioned import TableFile
from rocketmq_tw.broker.tables.write_behind import WriteBehindTable
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message.names import SCHEDULE_TOPIC
from rocketmq_tw.message.record import RecordHead
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.wire.bodies.base import DataVersion, decode_body, encode_body
from rocketmq_tw.wire.bodies.queues import DelayOffsetTable

#: Waiting messages that are looked at in one step.
_STEP = 50


class DelayOffsets(WriteBehindTable):
    """Level → offset, in the level's queue, of the next message to deliver.

    The version moves on with every `delayOffsetUpdateVersionStep` messages: a master that was away
    compares its own with that of the slave that acted for it.
    """

    def __init__(self, config: BrokerConfig, file: TableFile, now_ms: Callable[[], int]) -> None:
        super().__init__(file.write)
        self._config = config
        self._file = file
        self._now_ms = now_ms
        self._offsets: dict[int, int] = {}
        #: Where the master's log ended before it told the offsets that were followed last; None
        #: where they are not a master's.
        self.followed_at: int | None = None
        #: Messages that were passed since the version moved on.
        self._passed = 0
        self.data_version = DataVersion(timestamp=now_ms())

    def load(self) -> None:
        """Reads the file; raises what the file's reading raises where it is damaged."""
        table = self._file.read(lambda data: decode_body(DelayOffsetTable, data))
        if table is not None:
            self._offsets = dict(table.offset_table)
            self.data_version = table.data_version or self.data_version

    def get(self, level: int) -> int:
        """Returns the offset of a level's next message to deliver."""
        return self._offsets.get(level, 0)

    def set(self, level: int, offset: int) -> None:
        """Sets the offset of a level's next message to deliver."""
        self._pass(abs(self._put(level, offset)))

    def renew_version(self) -> None:
        """Begins a new version, that of a broker that acts for a master from now on."""
        self.data_version = self.data_version.next(self._now_ms())
        self._dirty = True

    def _put(self, level: int, offset: int) -> int:
        """Sets an offset and returns by how much it moved."""
        moved = offset - self.get(level)
        if moved:
            self._offsets[level] = offset
            self._dirty = True
        return moved

    def _pass(self, count: int) -> None:
        self._passed += count
        steps, self._passed = divmod(self._passed, self._config.delay_offset_update_version_step)
        if steps:
            version = self.data_version.next(self._now_ms())
            version.counter += steps - 1
            self.data_version = version

    def table(self) -> DelayOffsetTable:
        """Returns the offsets in the form of the file and of request 45."""
        return DelayOffsetTable(offset_table=dict(self._offsets), data_version=self.data_version)

    def follow(self, table: DelayOffsetTable, log_end: int) -> None:
        """Takes over what a master has, whose log ended at `log_end` before; smaller offsets too:
        what it has not delivered may be nowhere else."""
        self.followed_at = log_end
        for level, offset in table.offset_table.items():
            self._put(level, offset)
        version = table.data_version
        if version is not None and version != self.data_version:
            self.data_version = version
            self._dirty = True

    def take_back(self, table: DelayOffsetTable, log_end: int | None = None) -> None:
        """Takes over what a slave has that delivered while its master, this broker, was away: the
        larger offset of each level. Where this broker is a slave too, the other one's log ended at
        `log_end`: what stands in front of that it has counted when it took over."""
        moved = False
        for level, offset in table.offset_table.items():
            if offset > self.get(level):
                self.set(level, offset)
                moved = True
        if moved and log_end is not None and self.followed_at is not None:
            self.followed_at = max(self.followed_at, log_end)
        version = table.data_version
        if version is not None and version.counter > self.data_version.counter:
            self.data_version = version
            self._dirty = True

    def rewind(self, store: IMessageStore, levels: DelayLevels, cut: LogCut) -> Iterator[None]:
        """Returns the steps that take the offsets back to what the log of `store` says in front of
        `cut`; see `DerivedOffsets`. What was delivered behind it waits again: one message of a
        level may come twice, and none is missing."""
        return _Rewind(self, store, levels, cut).steps()

    def _encoder(self) -> Callable[[], bytes]:
        data = encode_body(self.table())
        return lambda: data


class _Rewind:
    """Takes `offsets` back behind which messages were delivered that `cut` takes away."""

    def __init__(
        self, offsets: DelayOffsets, store: IMessageStore, levels: DelayLevels, cut: LogCut
    ) -> None:
        self._offsets = offsets
        self._store = store
        self._levels = levels
        self._cut = cut
        #: Level -> how many messages that go say that they waited there.
        self._delivered: Counter[int] = Counter()
        #: When the first record that goes was stored.
        self._since: int | None = None
        cut.need_messages_of(SCHEDULE_TOPIC)
        cut.observe(self._note_record)

    def _note_record(self, head: RecordHead) -> None:
        since = self._since
        self._since = head.store_timestamp if since is None else min(since, head.store_timestamp)
        level = delivered_level(head)
        if level is not None:
            self._delivered[self._levels.waited_at(level, self._store)] += 1

    def steps(self) -> Iterator[None]:
        """Takes each level back by as many messages as were delivered behind the cut, and by all
        that were due since the first record there."""
        if self._since is not None:
            for level in self._levels.in_use(self._store):
                yield from self._rewind_level(level, self._since - self._levels.delay_ms(level))
        followed_at = self._offsets.followed_at
        if followed_at is not None:
            self._offsets.followed_at = min(followed_at, self._cut.end)

    def _rewind_level(self, level: int, stored_since: int) -> Iterator[None]:
        """Goes back by what was delivered, and by all that are stored since a time in ms."""
        cut, queue_id, known = self._cut, queue_of(level), self._offsets.get(level)
        back = min(known, cut.end_of(SCHEDULE_TOPIC, queue_id))
        # Of what was delivered, this waited behind the cut itself.
        waited_there = min(known - back, cut.count_gone(SCHEDULE_TOPIC, queue_id))
        count = self._delivered[level] - waited_there
        least = self._store.min_queue_offset(SCHEDULE_TOPIC, queue_id)
        for offset in range(back - 1, least - 1, -1):
            message = cut.message(SCHEDULE_TOPIC, queue_id, offset)
            if message is not None:
                if count <= 0 and message.store_timestamp < stored_since:
                    break
                # Any other was passed over, not delivered.
                count -= due_message(message) is not None
                back = offset
            if offset % _STEP == 0:
                yield
        if back < known:
            self._offsets.set(level, back)
