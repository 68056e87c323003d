"""The tables in `config/` against the ends of the queues (docs/formats/config-files.md)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

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


class TableCheck:
    """The tables of the store at `root`."""

    def __init__(self, root: str, findings: Findings) -> None:
        self._root = root
        self._findings = findings
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
        # Whoever deletes a topic may leave the offsets of its groups.
        may_be_gone = (self.topics or set()) - set(passed_over) | {SCHEDULE_TOPIC}
        for file, place, offset, reader in self._offsets():
            if place in ends:
                self._check_offset(file, offset, ends[place], reader)
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
        has_copy = os.path.isfile(f"{path}.bak")
        then = (
            "its .bak is read in its place"
            if has_copy
            else "the broker would know of topics what their messages show"
        )
        self._findings.add(
            "table", f"config/{_TOPICS}", None, f"it is missing, and there are queues: {then}",
            Remedy.START if has_copy else Remedy.RESTORE,
        )  # fmt: skip

    def _offsets(self) -> Iterator[tuple[str, tuple[str, int], int, str]]:
        """Yields each offset: its file, the place of its queue, and who goes on there."""
        for name in ("consumerOffset.json", "lmqConsumerOffset.json"):
            table = self._read(name, ConsumerOffsetTable) or ConsumerOffsetTable()
            for key, queues in table.offset_table.items():
                for queue_id, offset in queues.items():
                    reader = f"{key} goes on at {offset} of queue {queue_id}"
                    yield name, (key.split("@")[0], queue_id), offset, reader
        delays = self._read(_DELAYS, DelayOffsetTable) or DelayOffsetTable()
        for level, offset in delays.offset_table.items():
            reader = f"level {level} goes on at {offset} of its queue"
            yield _DELAYS, (SCHEDULE_TOPIC, level - 1), offset, reader

    def _check_offset(self, file: str, offset: int, end: int, reader: str) -> None:
        if offset > end:
            self._findings.add(
                "offset-ahead", f"config/{file}", None, f"{reader}, which ends at {end}",
                Remedy.RESTORE,
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
        for suffix in ("", ".bak"):
            path = f"{self._root}/config/{name}{suffix}"
            if not os.path.isfile(path):
                continue
            with open(path, "rb") as file:
                data = file.read()
            try:
                return decode_table(kind, data)
            except BodyError as error:
                self._damaged(f"{name}{suffix}", error.remark)
        return None

    def _damaged(self, name: str, reason: str) -> None:
        has_copy = os.path.isfile(f"{self._root}/config/{name}.bak")
        self._findings.add(
            "table", f"config/{name}", None, f"it cannot be read: {reason}",
            Remedy.START if has_copy else Remedy.RESTORE,
        )  # fmt: skip
