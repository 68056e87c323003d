"""The tables in `config/` against the ends of the queues (docs/formats/config-files.md)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple, TypeVar

from rocketmq_tw.storecheck.checked_queue import SCHEDULE_TOPIC, CheckedQueue
from rocketmq_tw.storecheck.findings import Findings, Remedy
from rocketmq_tw.wire.bodies.base import Body, decode_table
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupTable
from rocketmq_tw.wire.bodies.queues import ConsumerOffsetTable, DelayOffsetTable
from rocketmq_tw.wire.bodies.topics import TopicConfigTable
from rocketmq_tw.wire.errors import BodyError

B = TypeVar("B", bound=Body)

_TOPICS, _DELAYS = "topics.json", "delayOffset.json"
_NO_TOPICS = ("rmq_sys_", "RMQ_SYS_", "%LMQ%", "SCHEDULE_TOPIC_", "TRANS_CHECK_", "OFFSET_MOVED_")


class OffsetAhead(NamedTuple):
    """An offset beyond the end of its queue, which is at `end`. `file` is below `config/`; `keys`
    lead to it there, as text: the table, then TOPIC@GROUP and queue id, or a delay level."""

    file: str
    keys: tuple[str, ...]
    end: int


class TableCheck:
    """The tables of the store at `root`."""

    def __init__(self, root: str, findings: Findings) -> None:
        self._root = root
        self._findings = findings
        #: Files below the root that cannot be read or are missing, and their `.bak` can be read.
        self.with_copy: list[str] = []
        self.offsets_ahead: list[OffsetAhead] = []
        topics = self._read(_TOPICS, TopicConfigTable)
        #: The names of all topics; None where that is not known.
        self.topics = None if topics is None else set(topics.topic_config_table)
        self._read("subscriptionGroup.json", SubscriptionGroupTable)

    def check(
        self, queues: Mapping[tuple[str, int], CheckedQueue], passed_over: Collection[str]
    ) -> None:
        """Compares offsets and topics with the queues; of those `passed_over` nothing is known."""
        # A queue that is behind the log gets the rest at the next start.
        ends = {
            place: max(queue.files.end, queue.next)
            for place, queue in queues.items()
            if queue.files.is_there
        }
        #: Place of a queue without a file, of which the log has nothing, and who had read how much.
        gone: dict[tuple[str, int], tuple[int, str]] = {}
        # A topic may be deleted without the offsets of its groups.
        may_be_gone = (self.topics or set()) - set(passed_over) | {SCHEDULE_TOPIC}
        for file, keys, place, offset, reader in self._offsets():
            if place in ends:
                self._check_offset(file, keys, offset, ends[place], reader)
            elif place[0] in may_be_gone and (place not in queues or queues[place].first is None):
                gone[place] = max(gone.get(place, (0, "")), (offset, reader))
        self._tell_gone(gone)
        if ends:
            self._check_topics_are_there()
        if self.topics is None:
            return
        lost = {topic for topic, _ in ends} - self.topics
        for topic in sorted(lost):
            if not topic.startswith(_NO_TOPICS):
                self._findings.add(
                    "topic-unknown", "config/topics.json", None,
                    f"it lacks {topic}, which has queues: create the topic again", Remedy.RESTORE,
                )  # fmt: skip

    def _check_topics_are_there(self) -> None:
        path = f"{self._root}/config/{_TOPICS}"
        if os.path.exists(path):
            return
        # There is no other place that they can be from.
        has_copy = self.topics is not None
        if has_copy:
            self.with_copy.append(f"config/{_TOPICS}")
        then = (
            "its .bak is read in its place"
            if has_copy
            else "the broker would know of topics what their messages show"
        )
        self._findings.add(
            "table", f"config/{_TOPICS}", None, f"it is missing, and there are queues: {then}",
            Remedy.START if has_copy else Remedy.RESTORE,
        )  # fmt: skip

    def _offsets(self) -> Iterator[tuple[str, tuple[str, ...], tuple[str, int], int, str]]:
        """Yields each offset: its file, its keys as in `OffsetAhead`, the place of its queue, and
        a sentence about its reader."""
        for name in ("consumerOffset.json", "lmqConsumerOffset.json"):
            table = self._read(name, ConsumerOffsetTable) or ConsumerOffsetTable()
            for key, queues in table.offset_table.items():
                for queue_id, offset in queues.items():
                    reader = f"{key} goes on at {offset} of queue {queue_id}"
                    place = key.split("@")[0], queue_id
                    yield name, ("offsetTable", key, str(queue_id)), place, offset, reader
            for key, offset in (table.lmq_offset_table or {}).items():
                # A light queue is the only one of its topic.
                reader = f"{key} goes on at {offset} of queue 0"
                yield name, ("lmqOffsetTable", key), (key.split("@")[0], 0), offset, reader
        delays = self._read(_DELAYS, DelayOffsetTable) or DelayOffsetTable()
        for level, offset in delays.offset_table.items():
            reader = f"level {level} goes on at {offset} of its queue"
            yield _DELAYS, ("offsetTable", str(level)), (SCHEDULE_TOPIC, level - 1), offset, reader

    def _check_offset(
        self, file: str, keys: tuple[str, ...], offset: int, end: int, reader: str
    ) -> None:
        if offset > end:
            self.offsets_ahead.append(OffsetAhead(file, keys, end))
            self._findings.add(
                "offset-ahead", f"config/{file}", None, f"{reader}, which ends at {end}",
                Remedy.REPAIR,
            )  # fmt: skip

    def _tell_gone(self, gone: Mapping[tuple[str, int], tuple[int, str]]) -> None:
        """Reports queues that had messages. Where all of them have expired a queue keeps its last
        file, which says where it goes on; only stock's cleanExpiredCQ takes that too."""
        for (topic, queue_id), (offset, reader) in sorted(gone.items()):
            if offset > 0:
                self._findings.add(
                    "queue-gone", f"consumequeue/{topic}/{queue_id}", None,
                    f"it has no file and no message in the log, and {reader}: it begins at 0 again,"
                    " as stock's cleanExpiredCQ wants it, or its last file is lost",
                    Remedy.RESTORE,
                )  # fmt: skip

    def _read(self, name: str, kind: type[B]) -> B | None:
        """Returns what a file has, or else its `.bak`; a damaged one is reported."""
        table, problem = self._decode(name, kind)
        if table is not None:
            return table
        copy, problem_of_copy = self._decode(f"{name}.bak", kind)
        if problem:
            self._tell_damaged(name, problem, has_copy=copy is not None)
        if problem_of_copy:
            self._tell_damaged(f"{name}.bak", problem_of_copy, has_copy=False)
        return copy

    def _decode(self, name: str, kind: type[B]) -> tuple[B | None, str]:
        """Returns what a file has, or what is wrong with it; neither where there is none."""
        path = f"{self._root}/config/{name}"
        if not os.path.isfile(path):
            return None, ""
        with open(path, "rb") as file:
            data = file.read()
        try:
            return decode_table(kind, data), ""
        except BodyError as error:
            return None, error.remark

    def _tell_damaged(self, name: str, problem: str, *, has_copy: bool) -> None:
        if has_copy:
            self.with_copy.append(f"config/{name}")
        self._findings.add(
            "table", f"config/{name}", None, f"it cannot be read: {problem}",
            Remedy.START if has_copy else Remedy.RESTORE,
        )  # fmt: skip
