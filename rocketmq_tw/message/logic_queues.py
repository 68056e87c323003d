"""The logic queues of static topics: stretches of physical queues, one behind the other.

A logic queue keeps its id and its offsets while it moves from broker to broker. Each move appends
an item to its list: the physical queue on the next broker, and the logic offset at which it begins;
-1 as long as that is not decided yet. The broker of the last item leads the queue.

Format: docs/formats/static-topics.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocketmq_tw.wire.bodies.topics import (
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    TopicQueueMappingInfo,
)

Items = Sequence[LogicQueueMappingItem]

_GLOBAL_SCOPE = "__global__"
#: The broker name that logic queues have with clients, whichever broker leads them.
LOGIC_BROKER = "__syslo__global__"


# Offsets


def has_end(item: LogicQueueMappingItem) -> bool:
    """Returns whether it is decided where the item ends in its physical queue."""
    return item.end_offset > item.start_offset


def logic_offset(item: LogicQueueMappingItem, physical: int) -> int:
    """Returns the logic offset of a physical one; of one in front of the item, where the item
    begins."""
    return item.logic_offset + max(0, physical - item.start_offset)


def logic_offset_if_known(item: LogicQueueMappingItem, physical: int) -> int:
    """Returns the logic offset as `logic_offset` does, but within the item; -1 while it is not
    decided where the item begins."""
    if item.logic_offset < 0:
        return -1
    if item.start_offset <= item.end_offset < physical:
        physical = item.end_offset
    return logic_offset(item, physical)


def physical_offset_in(item: LogicQueueMappingItem, logic: int) -> int:
    """Returns the offset in the item's physical queue."""
    return logic - item.logic_offset + item.start_offset


def known_end(item: LogicQueueMappingItem) -> int:
    """Returns the logic offset that the item reaches at least, as far as the mapping says."""
    if item.end_offset >= item.start_offset:
        return item.logic_offset + item.end_offset - item.start_offset
    return item.logic_offset


# Items


def item_at(items: Items, logic: int) -> LogicQueueMappingItem | None:
    """Returns the item that has a logic offset, the first one where it is in front of all; None
    where no item's beginning is decided."""
    decided = [item for item in items if item.logic_offset >= 0]
    for item in reversed(decided):
        if logic >= item.logic_offset:
            return item
    return decided[0] if decided else None


def last_item(items: Items) -> LogicQueueMappingItem | None:
    """Returns the last item whose beginning is decided; None where there is none."""
    return next((item for item in reversed(items) if item.logic_offset >= 0), None)


def item_behind(items: Items, item: LogicQueueMappingItem) -> LogicQueueMappingItem | None:
    """Returns the next item, where its beginning is decided; else None."""
    for number, other in enumerate(items[:-1]):
        if other.gen == item.gen:
            following = items[number + 1]
            return following if following.logic_offset >= 0 else None
    return None


def leader_of(items: Items) -> str | None:
    """Returns the broker that leads the logic queue; None where it has no items."""
    return items[-1].bname if items else None


def led_queues(detail: TopicQueueMappingDetail) -> dict[int, int]:
    """Returns the logic queues that the mapping's own broker leads, to their physical queues."""
    return {
        logic_id: items[-1].queue_id
        for logic_id, items in detail.hosted_queues.items()
        if leader_of(items) == detail.bname
    }


def shown_to_name_servers(detail: TopicQueueMappingDetail) -> TopicQueueMappingInfo:
    """Returns what name servers get of a mapping: not the items, but which queues the broker
    leads."""
    return TopicQueueMappingInfo(
        topic=detail.topic,
        scope=_GLOBAL_SCOPE,
        total_queues=detail.total_queues,
        bname=detail.bname,
        epoch=detail.epoch,
        curr_id_map=led_queues(detail),
    )


def leaders(mappings: Mapping[str, TopicQueueMappingInfo]) -> dict[int, str]:
    """Returns logic queue to the broker that leads it, from what name servers have of each broker:
    of two that say so, the one with the newer epoch."""
    found: dict[int, TopicQueueMappingInfo] = {}
    for info in mappings.values():
        for logic_id in info.curr_id_map:
            known = found.get(logic_id)
            if known is None or info.epoch > known.epoch:
                found[logic_id] = info
    return {logic_id: info.bname or "" for logic_id, info in found.items()}


def leader_in(mappings: Mapping[str, TopicQueueMappingInfo], logic_id: int) -> str | None:
    """Returns the broker that leads one logic queue, as `leaders` does; None where none does."""
    found = [info for info in mappings.values() if logic_id in info.curr_id_map]
    return max(found, key=lambda info: info.epoch).bname if found else None


# Checks


def check_items(items: Items) -> None:
    """Raises `ValueError` for a list that no logic queue can have."""
    following: LogicQueueMappingItem | None = None
    for item in reversed(items):
        if min(item.start_offset, item.gen, item.queue_id) < 0:
            raise ValueError("startOffset, gen and queueId of an item may not be negative")
        if item.end_offset != -1 and item.end_offset < item.start_offset:
            raise ValueError("an item ends in front of where it starts")
        if following is not None:
            if item.logic_offset < 0:
                raise ValueError("only the last item may have no logicOffset yet")
            if item.gen >= following.gen:
                raise ValueError("gen does not grow from item to item")
            if following.logic_offset != -1 and known_end(item) >= following.logic_offset:
                raise ValueError("logicOffset does not grow from item to item")
        following = item


def check_successor(old: Items, new: Items, *, same_epoch: bool) -> None:
    """Raises `ValueError` where `new` may not take the place of `old`: items of the same generation
    are the same, but for a beginning that was not decided, and within an epoch the leader is."""
    if not old:
        return
    if not new:
        raise ValueError("a logic queue would lose all of its items")
    by_gen = {item.gen: item for item in old}
    for item in new:
        before = by_gen.get(item.gen)
        if before is None:
            continue
        if _place(item) != _place(before):
            raise ValueError(f"the item of generation {item.gen} would be another queue")
        if before.logic_offset not in (-1, item.logic_offset):
            raise ValueError(f"the item of generation {item.gen} would begin elsewhere")
    if same_epoch and (old[-1].gen, _place(old[-1])) != (new[-1].gen, _place(new[-1])):
        raise ValueError("within one epoch a logic queue cannot change its leader")


def _place(item: LogicQueueMappingItem) -> tuple[str | None, int, int]:
    return item.bname, item.queue_id, item.start_offset
