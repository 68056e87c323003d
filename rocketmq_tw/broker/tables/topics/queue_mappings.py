"""The table of how this broker hosts static topics: `config/topicQueueMapping.json` in stock's form
(docs/formats/config-files.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.tables.changes import MAX_LIST_BYTES, check_sizes, check_table_room
from rocketmq_tw.broker.tables.versioned import TableFile, VersionedTable, reported
from rocketmq_tw.message.logic_queues import (
    Items,
    check_items,
    check_successor,
    leader_of,
    shown_to_name_servers,
)
from rocketmq_tw.runtime.threads import InThread, at_once
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.registration import MAX_MAPPINGS
from rocketmq_tw.wire.bodies.topics import (
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    TopicQueueMappingInfo,
    TopicQueueMappingTable,
)
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError


class LogicQueue:
    """One logic queue that this broker leads; `leader` is its last item, which is on it."""

    __slots__ = ("id", "items", "leader")

    def __init__(self, logic_id: int, items: Items) -> None:
        self.id = logic_id
        self.items = items
        self.leader: LogicQueueMappingItem = items[-1]


class QueueMappings(VersionedTable[TopicQueueMappingDetail, TopicQueueMappingTable]):
    """Static topic → how this broker hosts it."""

    BODY, FIELD = TopicQueueMappingTable, "topic_queue_mapping_info_map"

    def __init__(
        self,
        broker_name: str,
        file: TableFile,
        now_ms: Callable[[], int],
        in_thread: InThread = at_once,
    ) -> None:
        self._broker_name = broker_name
        super().__init__(file, {}, now_ms, in_thread)

    def get(self, topic: str) -> TopicQueueMappingDetail | None:
        """Returns the mapping of a static topic; None where the topic is not static here."""
        return self._entries.get(topic)

    def shown(self, topics: Iterable[str]) -> dict[str, TopicQueueMappingInfo]:
        """Returns the registrations of those `topics` that are static."""
        mappings = self._entries
        if not mappings:
            return {}
        return {name: shown_to_name_servers(mappings[name]) for name in topics if name in mappings}

    def queue(self, topic: str, logic_id: int, *, any_led: bool = False) -> LogicQueue:
        """Returns a logic queue of a static topic that this broker leads; with `any_led` and a
        negative id, the first of them. Raises `RequestError` where it does not lead it."""
        hosted = self._entries[topic].hosted_queues
        if logic_id < 0 and any_led:
            logic_id = next((each for each in hosted if self._leads(hosted[each])), logic_id)
        items = hosted.get(logic_id)
        if not items or not self._leads(items):
            raise RequestError(
                ResponseCode.NOT_LEADER_FOR_QUEUE,
                f"the broker {self._broker_name} does not lead queue {logic_id} of the static topic"
                f" {topic}: ask the name server for its route again",
            )
        return LogicQueue(logic_id, items)

    def is_here(self, item: LogicQueueMappingItem) -> bool:
        """Returns whether the item's physical queue is on this broker."""
        return item.bname == self._broker_name

    def later_items(self, topic: str) -> Iterator[LogicQueueMappingItem]:
        """Yields the items on this broker in front of which their logic queues have others; none of
        a topic that is not static here."""
        detail = self._entries.get(topic)
        for items in () if detail is None else detail.hosted_queues.values():
            yield from filter(self.is_here, items[1:])

    def _leads(self, items: Items) -> bool:
        return leader_of(items) == self._broker_name

    def update(self, detail: TopicQueueMappingDetail, *, force: bool = False) -> Deferred[None]:
        """Takes a topic's mapping over; logic queues that it does not name keep their items. Raises
        `RequestError` for one that cannot follow the present one, unless with `force`; fires once
        it is in the file or fails with a `RequestError`."""
        topic = detail.topic or ""
        if detail.bname != self._broker_name:
            raise _refused(
                topic, f"it is meant for {detail.bname}, and this is {self._broker_name}"
            )
        known = self._entries.get(topic)
        hosted = {logic_id: items for logic_id, items in detail.hosted_queues.items() if items}
        try:
            for items in hosted.values():
                check_items(items)
            if known is not None:
                self._check(known, detail, hosted, force=force)
                hosted = known.hosted_queues | hosted
        except ValueError as error:
            raise _refused(topic, str(error)) from error
        merged = msgspec.structs.replace(detail, hosted_queues=hosted)
        check_sizes("mapping of", {topic: merged}, MAX_LIST_BYTES)
        check_table_room("static topics", self._entries, [topic], MAX_MAPPINGS, "deleteTopic")
        self._entries[topic] = merged
        return self._changed()

    def replace_queues(self, topic: str, hosted: dict[int, list[LogicQueueMappingItem]]) -> None:
        """Replaces the items of a topic's logic queues by `hosted`, which lacks expired ones."""
        self._entries[topic] = msgspec.structs.replace(self._entries[topic], hosted_queues=hosted)
        self._changed().addErrback(reported)

    @staticmethod
    def _check(
        known: TopicQueueMappingDetail,
        detail: TopicQueueMappingDetail,
        hosted: dict[int, Any],
        *,
        force: bool,
    ) -> None:
        if force:
            return
        if detail.epoch < known.epoch:
            raise ValueError(f"its epoch {detail.epoch} is older than {known.epoch}")
        if detail.scope != known.scope:
            raise ValueError(f"its scope is {detail.scope}, not {known.scope}")
        same_epoch = detail.epoch == known.epoch
        for logic_id, before in known.hosted_queues.items():
            items = hosted.get(logic_id)
            if items is not None:
                check_successor(before, items, same_epoch=same_epoch)
            elif same_epoch:
                raise ValueError(f"queue {logic_id} is left out within one epoch")


def _refused(topic: str, why: str) -> RequestError:
    return RequestError(
        ResponseCode.SYSTEM_ERROR, f"this mapping of the static topic {topic} is refused: {why}"
    )
