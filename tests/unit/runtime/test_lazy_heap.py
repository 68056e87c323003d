"""Items by their time, most of which are over before that."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_tw.runtime.lazy_heap import LEAST_KEPT, LazyHeap


def due(heap: LazyHeap[int], wanted: set[int], now_ms: int) -> list[int]:
    found = []
    while (item := heap.take(now_ms)) is not None:
        if item in wanted:
            wanted.discard(item)
            found.append(item)
    return found


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans())), st.integers(0, 20))
def test_what_is_wanted_comes_in_order_once_it_is_due(
    items: list[tuple[int, bool]], now_ms: int
) -> None:
    wanted = {number for number, (_, is_wanted) in enumerate(items) if is_wanted}
    heap: LazyHeap[int] = LazyHeap(wanted.__contains__)
    for number, (due_ms, _) in enumerate(items):
        heap.push(due_ms, number)
    order = sorted(wanted, key=lambda number: (items[number][0], number))
    early = [number for number in order if items[number][0] <= now_ms]
    assert due(heap, wanted, now_ms) == early
    assert due(heap, wanted, 20) == order[len(early) :]
    assert len(heap) == 0 and heap.front is None and heap.first() is None


def test_the_first_that_is_wanted() -> None:
    wanted = {1, 2}
    heap: LazyHeap[int] = LazyHeap(wanted.__contains__)
    for number in range(4):
        heap.push(10 * number, number)
    assert (heap.front, heap.first(), heap.front) == (0, 10, 10)
    wanted.discard(1)
    assert heap.first() == 20


def test_what_is_not_wanted_is_forgotten_long_before_its_time() -> None:
    wanted = {0}
    heap: LazyHeap[int] = LazyHeap(wanted.__contains__)
    most = 0
    for number in range(50_000):
        wanted.add(number)
        heap.push(1_000_000 + number, number)
        if number:
            wanted.discard(number)
        most = max(most, len(heap))
    assert most <= LEAST_KEPT + 1
    assert due(heap, wanted, 1_000_000) == [0]


def test_it_looks_at_each_entry_a_few_times_only() -> None:
    looks = 0

    def is_wanted(item: int) -> bool:
        nonlocal looks
        looks += 1
        return True

    heap: LazyHeap[int] = LazyHeap(is_wanted)
    for number in range(50_000):
        heap.push(number, number)
    assert looks <= 2 * 50_000 and len(heap) == 50_000


def test_no_push_looks_at_many() -> None:
    """It held the reactor up for a second where a million was kept."""
    looks = most = 0

    def is_wanted(item: int) -> bool:
        nonlocal looks
        looks += 1
        return True

    heap: LazyHeap[int] = LazyHeap(is_wanted)
    for number in range(20_000):
        before = looks
        heap.push(number, number)
        most = max(most, looks - before)
    assert most <= 10


@settings(max_examples=20)
@given(st.integers(0, 1 << 32))
def test_items_come_in_order_while_all_are_looked_at_again(seed: int) -> None:
    random = Random(seed)
    wanted: set[int] = set()
    heap: LazyHeap[int] = LazyHeap(wanted.__contains__)
    items = [random.randrange(5000) for _ in range(2500)]
    for number, due_ms in enumerate(items):
        wanted.add(number)
        heap.push(due_ms, number)
        if random.random() < 0.4:
            wanted.discard(random.randrange(number + 1))
    order = sorted(wanted, key=lambda number: (items[number], number))
    assert heap.first() == items[order[0]]
    assert due(heap, wanted, 2000) == [one for one in order if items[one] <= 2000]
    assert due(heap, wanted, 5000) == [one for one in order if items[one] > 2000]
    assert len(heap) == 0
