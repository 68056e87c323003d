"""Plans what a static topic's brokers are to be told so that it has more queues, or lies elsewhere.

A plan is made from what every broker says of the topic and is carried out broker by broker. Where
that ends half-way, or a broker's next master had not heard of it, the next move goes on with it. It
follows stock's rules: a broker takes queues in or gives some away, never both, and as few as
possible move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy

import attrs

from rocketmq_tw.message.logic_queues import (
    Items,
    check_items,
    check_successor,
    leader_of,
    logic_offset,
)
from rocketmq_tw.wire.bodies.queues import MessageQueue, TopicOffset
from rocketmq_tw.wire.bodies.topics import (
    LogicQueueMappingItem,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
)

#: A moved queue begins at a multiple of it, with room for what is sent meanwhile.
_BLOCK = 10_000
#: Milliseconds between the epochs of two changes at least.
_EPOCH_STEP = 1_000

#: Broker name to what that broker has, or is to have, of the topic.
Hosted = dict[str, TopicConfigAndQueueMapping]


@attrs.frozen
class Move:
    """What brokers are to have, who takes queues in and who gives some away."""

    hosted: Hosted
    into: list[str]
    out_of: list[str]


def queues_of(hosted: Mapping[str, TopicConfigAndQueueMapping]) -> dict[int, Items]:
    """Returns logic queue to the items that its leader has. Raises `ValueError` where brokers
    contradict each other, or a queue has no leader."""
    found: dict[int, Items] = {}
    if len({(_detail(each).epoch, _detail(each).total_queues) for each in hosted.values()}) > 1:
        raise ValueError(
            "its brokers do not agree on epoch and number of queues: an earlier change ended"
            " half-way, finish it first (rmqadmin remappingStaticTopic, to the brokers that are to"
            " have it)"
        )
    for name, each in hosted.items():
        detail = _detail(each)
        if detail.bname != name:
            raise ValueError(f"the broker {name} has the mapping of {detail.bname}")
        for logic_id, items in detail.hosted_queues.items():
            check_items(items)
            if leader_of(items) == name:
                if logic_id in found:
                    raise ValueError(f"queue {logic_id} has two leaders")
                found[logic_id] = items
    total = next((_detail(each).total_queues for each in hosted.values()), 0)
    if found.keys() != set(range(total)):
        raise ValueError(
            f"it should have {total} queues, and has {sorted(found)}; a broker that has others may"
            " be away, or an earlier change ended half-way (rmqadmin remappingStaticTopic, to the"
            " brokers that are to have it, says what to do)"
        )
    return found


def plan_queues(
    topic: str,
    total: int,
    brokers: Iterable[str],
    hosted: Mapping[str, TopicConfigAndQueueMapping],
    now_ms: int,
) -> Hosted:
    """Returns the topic with `total` queues. The new ones are on brokers that lead the fewest,
    among `brokers` and the brokers that have the topic. Raises `ValueError` where that is no
    growth, or `hosted` is not one topic."""
    plan = deepcopy(dict(hosted))
    queues = queues_of(plan)
    if total <= len(queues):
        raise ValueError(f"it has {len(queues)} queues already: a static topic can only grow")
    load = Counter(leader_of(items) or "" for items in queues.values())
    load.update(dict.fromkeys(brokers, 0))
    for logic_id in range(len(queues), total):
        name = min(load, key=lambda each: (load[each], each))
        load[name] += 1
        _add(plan, topic, name, logic_id, [], 0)
    return _in_new_epoch(plan, total, now_ms)


def plan_move(
    topic: str,
    brokers: Iterable[str],
    hosted: Mapping[str, TopicConfigAndQueueMapping],
    now_ms: int,
    unaware: Collection[str] = (),
    *,
    make_anew: bool = False,
) -> Move:
    """Returns all queues on `brokers`, evenly; their beginnings there are decided later, by
    `decide_beginnings`. Masters that are there and have not heard of the topic are `unaware`:
    either a change ended before them, and queues that nobody has were never made, or they joined
    later, and a broker that is away has those. They are made with `make_anew` alone. Raises
    `ValueError` without it, and where `hosted` contradicts itself."""
    targets = sorted(set(brokers))
    plan = _completed(topic, targets, deepcopy(dict(hosted)), unaware, make_anew=make_anew)
    queues = queues_of(plan)
    leaders = Counter(leader_of(items) for items in queues.values())
    # The broker that leads most already keeps one more where they cannot all have the same number.
    ranked = sorted(targets, key=lambda name: (-leaders[name], name))
    share, over = divmod(len(queues), len(targets))
    room = {name: share + (number < over) for number, name in enumerate(ranked)}
    waiting = []
    for logic_id, items in sorted(queues.items()):
        leader = leader_of(items) or ""
        if room.get(leader, 0) > 0:
            room[leader] -= 1
        else:
            waiting.append(logic_id)
    undecided = [items for items in queues.values() if _is_undecided(items)]
    into, out_of = ({items[at].bname or "" for items in undecided} for at in (-1, -2))
    for name, places in room.items():
        for _ in range(places):
            logic_id = waiting.pop(0)
            items = queues[logic_id]
            former = leader_of(items) or ""
            into.add(name)
            out_of.add(former)
            moved = _add(plan, topic, name, logic_id, items, -1)
            _detail(plan[former]).hosted_queues[logic_id] = moved
    _in_new_epoch(plan, len(queues), now_ms)
    return Move(plan, sorted(into), sorted(out_of))


def decide_beginnings(move: Move, offsets: Mapping[MessageQueue, TopicOffset]) -> None:
    """Sets where moved queues begin, from how far their former physical queues reach: behind that,
    with room. Raises `ValueError` where that is not known."""
    for name in move.out_of:
        hosted = move.hosted[name]
        for logic_id, items in _detail(hosted).hosted_queues.items():
            if not _is_undecided(items):
                continue
            former, leader = items[-2], items[-1]
            queue = MessageQueue(
                topic=hosted.topic_name,
                broker_name=former.bname or "",
                queue_id=former.queue_id,
            )
            reached = offsets.get(queue)
            if reached is None:
                raise ValueError(f"the end of queue {queue.queue_id} of {former.bname} is unknown")
            leader.logic_offset = _next_block(logic_offset(former, reached.max_offset))
            _detail(move.hosted[leader.bname or ""]).hosted_queues[logic_id] = items


def _is_undecided(items: Items) -> bool:
    """Returns whether the queue has moved and it is not decided yet where it begins there."""
    return len(items) > 1 and items[-1].logic_offset <= 0


def _completed(
    topic: str,
    targets: Iterable[str],
    hosted: Hosted,
    unaware: Collection[str],
    *,
    make_anew: bool,
) -> Hosted:
    """Returns what the brokers would have if all had heard of each change: of every queue the
    longest list of items, at each broker that is in it. A queue of which none of them has the list
    is to be on the one of `targets` that leads the fewest, where one has not heard of so many
    queues. Raises `ValueError` where all have: its list is on a broker that is away; with
    `make_anew`, only if none is `unaware` of the topic. So it does where two lists contradict each
    other."""
    details = [_detail(each) for _, each in sorted(hosted.items())]
    total = max((detail.total_queues for detail in details), default=0)
    epoch = max((detail.epoch for detail in details), default=0)
    queues: dict[int, list[LogicQueueMappingItem]] = {}
    for detail in details:
        for logic_id, items in detail.hosted_queues.items():
            former = queues.get(logic_id, [])
            shorter, longer = sorted((items, former), key=_progress)
            try:
                check_successor(shorter, longer, same_epoch=False)
            except ValueError as error:
                raise ValueError(
                    f"{detail.bname} and another broker contradict each other about queue"
                    f" {logic_id}: {error}"
                ) from error
            queues[logic_id] = longer
    for detail in details:
        for logic_id, items in detail.hosted_queues.items():
            # Of lists that end alike the leader's knows best what is gone in front.
            if leader_of(items) == detail.bname and _progress(items) == _progress(queues[logic_id]):
                queues[logic_id] = items
    for logic_id, items in queues.items():
        for item in items:
            each = hosted.setdefault(
                item.bname or "", nothing_hosted(topic, item.bname or "", 0, 0)
            )
            _detail(each).hosted_queues[logic_id] = items
            each.write_queue_nums = max(each.write_queue_nums, item.queue_id + 1)
            each.read_queue_nums = max(each.read_queue_nums, each.write_queue_nums)
    heard_of = min((detail.total_queues for detail in details), default=0)
    if unaware and make_anew:
        heard_of = 0
    load = Counter(dict.fromkeys(targets, 0))
    for items in queues.values():
        name = leader_of(items) or ""
        if name in load:
            load[name] += 1
    for logic_id in sorted(set(range(total)) - queues.keys()):
        if logic_id < heard_of:
            way_on = (
                "; if none ever had it, since a change ended half-way before"
                f" {', '.join(sorted(unaware))} heard of it, repeat this with -fr true"
            )
            raise ValueError(
                f"no broker that is there has queue {logic_id}: start the one that has, or its"
                f" messages would be lost{way_on if unaware else ''}"
            )
        name = min(load, key=lambda each: (load[each], each))
        load[name] += 1
        _add(hosted, topic, name, logic_id, [], 0)
    for each in hosted.values():
        _detail(each).epoch, _detail(each).total_queues = epoch, total
    return hosted


def _progress(items: Items) -> tuple[int, bool]:
    """Returns a key by which the later one of two lists of a queue is larger."""
    return (items[-1].gen, items[-1].logic_offset >= 0) if items else (-1, False)


def nothing_hosted(topic: str, broker_name: str, total: int, epoch: int) -> (
    TopicConfigAndQueueMapping
):  # fmt: skip
    """Returns what a broker without queues of the topic is told of it."""
    return TopicConfigAndQueueMapping(
        topic_name=topic,
        read_queue_nums=0,
        write_queue_nums=0,
        mapping_detail=TopicQueueMappingDetail(
            topic=topic, total_queues=total, bname=broker_name, epoch=epoch
        ),
    )


def _add(
    plan: Hosted, topic: str, name: str, logic_id: int, items: Items, logic: int
) -> list[LogicQueueMappingItem]:
    """Gives a logic queue a further item, on a new physical queue of a broker."""
    hosted = plan.get(name)
    if hosted is None:
        hosted = plan[name] = nothing_hosted(topic, name, 0, 0)
    hosted.write_queue_nums += 1
    hosted.read_queue_nums = max(hosted.read_queue_nums + 1, hosted.write_queue_nums)
    added = LogicQueueMappingItem(
        gen=items[-1].gen + 1 if items else 0,
        queue_id=hosted.write_queue_nums - 1,
        bname=name,
        logic_offset=logic,
    )
    longer = [*items, added]
    _detail(hosted).hosted_queues[logic_id] = longer
    return longer


def _in_new_epoch(plan: Hosted, total: int, now_ms: int) -> Hosted:
    before = max((_detail(each).epoch for each in plan.values()), default=0)
    for each in plan.values():
        detail = _detail(each)
        detail.epoch = max(before + _EPOCH_STEP, now_ms)
        detail.total_queues = total
    return plan


def _next_block(offset: int) -> int:
    blocks, rest = divmod(offset, _BLOCK)
    return (blocks + (1 if rest < _BLOCK // 2 else 2)) * _BLOCK


def _detail(hosted: TopicConfigAndQueueMapping) -> TopicQueueMappingDetail:
    if hosted.mapping_detail is None:
        raise ValueError(
            f"{hosted.topic_name} is on a broker as an ordinary topic: its queues cannot move"
        )
    return hosted.mapping_detail
