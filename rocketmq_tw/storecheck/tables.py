"""The tables in `config/` against the ends of the queues (docs/formats/config-files.md)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeVar

from rocketmq_tw.storecheck.checked_queue import SCHEDULE_TOPIC, CheckedQueue
from rocketmq_tw.storecheck.findings import Findings, Remedy
from rocketmq_tw.wire.bodies.base import Body, decode_table
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupTable
from rocketmq_tw.wire.bodies.queues import ConsumerOffsetTable, DelayOffsetTable
from rocketmq_tw.wire.bodies.topics import TopicConfigTable
from rocketmq_tw.wire.errors import BodyError

B = TypeVar("B", bound=Body)

_TOPICS = "topics.json"
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

    def check(self, queues: Mapping[tuple[str, int], CheckedQueue]) -> None:
        """Compares offsets and topics with the queues that have files."""
        # A queue that is behind the log gets the rest at the next start.
        ends = {
            place: max(queue.files.end, queue.next)
            for place, queue in queues.items()
            if queue.files.is_there
        }
        for name in ("consumerOffset.json", "lmqConsumerOffset.json"):
            self._check_offsets(name, ends)
        self._check_delays(ends)
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
        has_copy = os.path.exists(f"{path}.bak")
        then = (
            "its .bak is read in its place"
            if has_copy
            else "the broker would know of topics what their messages show"
        )
        self._findings.add(
            "table", f"config/{_TOPICS}", None, f"it is missing, and there are queues: {then}",
            Remedy.START if has_copy else Remedy.RESTORE,
        )  # fmt: skip

    def _check_offsets(self, name: str, ends: Mapping[tuple[str, int], int]) -> None:
        table = self._read(name, ConsumerOffsetTable) or ConsumerOffsetTable()
        for key, queues in table.offset_table.items():
            topic = key.split("@")[0]
            for queue_id, offset in queues.items():
                end = ends.get((topic, queue_id))
                if end is not None and offset > end:
                    self._findings.add(
                        "offset-ahead", f"config/{name}", None,
                        f"{key} goes on at {offset} of queue {queue_id}, which ends at {end}",
                        Remedy.RESTORE,
                    )  # fmt: skip

    def _check_delays(self, ends: Mapping[tuple[str, int], int]) -> None:
        table = self._read("delayOffset.json", DelayOffsetTable) or DelayOffsetTable()
        for level, offset in table.offset_table.items():
            end = ends.get((SCHEDULE_TOPIC, level - 1))
            if end is not None and offset > end:
                self._findings.add(
                    "offset-ahead", "config/delayOffset.json", None,
                    f"level {level} goes on at {offset} of its queue, which ends at {end}",
                    Remedy.RESTORE,
                )  # fmt: skip

    def _read(self, name: str, kind: type[B]) -> B | None:
        """Returns what a file has, or else its `.bak`; a damaged one is reported."""
        for suffix in ("", ".bak"):
            path = f"{self._root}/config/{name}{suffix}"
            if not os.path.exists(path):
                continue
            if not os.path.isfile(path):
                self._damaged(f"{name}{suffix}", "it is no file")
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
