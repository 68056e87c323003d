"""How many timed messages of each topic wait: stock 5.x's `timermetrics`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from rocketmq_tw.broker.tables.versioned import TableFile
from rocketmq_tw.wire.bodies.base import DataVersion, decode_body, encode_body
from rocketmq_tw.wire.bodies.stats import TimedCount, TimedMessageCounts


class TimedCounts:
    """Topic -> how many of its messages wait, less what takes some back."""

    def __init__(self, file: TableFile, now_ms: Callable[[], int]) -> None:
        self._file = file
        self._now_ms = now_ms
        self._counts: dict[str, TimedCount] = {}
        self._version = DataVersion(timestamp=now_ms())
        self._changed = False
        #: What was added since counting began anew; None while nobody counts.
        self._since: dict[str, int] | None = None

    def load(self) -> None:
        """Takes what the file has; raises what reading it raises where it is damaged."""
        table = self._file.read(lambda data: decode_body(TimedMessageCounts, data))
        if table is not None:
            self._counts = table.timing_count
            self._version = table.data_version or self._version

    def table(self) -> TimedMessageCounts:
        """What the file and request 61 carry."""
        return TimedMessageCounts(timing_count=dict(self._counts), data_version=self._version)

    def of(self, topic: str) -> int:
        count = self._counts.get(topic)
        return 0 if count is None else count.count

    def add(self, topic: str, number: int) -> None:
        """So many more wait, or less."""
        count = TimedCount(count=self.of(topic) + number, time_stamp=self._now_ms())
        self._counts[topic] = count
        self._changed = True
        if self._since is not None:
            self._since[topic] = self._since.get(topic, 0) + number

    def remove(self, topic: str) -> None:
        """The topic is no more."""
        self._changed |= self._counts.pop(topic, None) is not None

    def begin_anew(self) -> None:
        """Someone counts what waits now; `replace` follows."""
        self._since = {}

    def replace(self, counted: Mapping[str, int]) -> None:
        """So many waited when counting began."""
        since, self._since = self._since or {}, None
        for topic in self._counts.keys() | counted.keys() | since.keys():
            number = counted.get(topic, 0) + since.get(topic, 0)
            if number != self.of(topic):
                self._counts[topic] = TimedCount(count=number, time_stamp=self._now_ms())
                self._changed = True

    def keep_only(self, topics: Collection[str]) -> None:
        """Forgets topics for which nothing waits and that are not among these."""
        for topic in [topic for topic, count in self._counts.items() if count.count <= 0]:
            if topic not in topics:
                self.remove(topic)

    def pending_write(self) -> Callable[[], bytes] | None:
        """What gives the bytes to `write`, in any thread; None where nothing changed."""
        if not self._changed:
            return None
        self._changed = False
        self._version = self._version.next(self._now_ms())
        table = self.table()
        return lambda: encode_body(table)

    def write(self, data: bytes) -> None:
        self._file.write(data)

    def write_failed(self) -> None:
        self._changed = True
