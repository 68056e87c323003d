"""The books of what was popped: what is acknowledged is let go, in whatever order."""

from collections.abc import Iterator
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_tw.broker.pop.check_points import CheckPointKey, check_point_key, new_check_point
from rocketmq_tw.broker.pop.pending import InFlight, PendingCheckPoint, PendingCheckPoints
from rocketmq_tw.wire.bodies.pop import PopCheckPoint
from tests.support.traced_memory import traced_memory


def test_one_that_waits_long_does_not_keep_those_behind_it() -> None:
    books = PendingCheckPoints(0, InFlight())
    for number in range(5000):
        invisible = 12 * 3600 * 1000 if number == 7 else 1000
        point = new_check_point("T", "G", 0, [number], number, number, invisible, "b")
        key = check_point_key(point, "b")
        books.add(key, point, number)
        if number != 7:
            books.acknowledge(key, [number])
        books.read_offset = number + 1
        assert books.take_due(number + 500) is None
    assert len(books) == 1
    assert books.done_offset == 7
    assert len(books._in_order) <= 1001
    books.acknowledge(check_point_key(new_check_point("T", "G", 0, [7], 7, 7, 0, "b"), "b"), [7])
    assert books.done_offset == 5000


def test_what_was_acknowledged_takes_no_room_however_long_it_was_hidden() -> None:
    books = PendingCheckPoints(0, InFlight())
    for number in range(20_000):
        # None is taken meanwhile: the broker has too much to do.
        hours = 12 * 3600 * 1000
        point = new_check_point("T", "G", 0, [number], number, number, hours, "b")
        key = check_point_key(point, "b")
        books.add(key, point, number)
        if number:
            books.acknowledge(key, [number])
        assert books.kept <= 2 * 1001
    assert len(books) == 1


def test_nothing_is_left_of_what_is_over() -> None:
    books = PendingCheckPoints(0, InFlight())
    for number in range(500):
        point = new_check_point("T", "G", 0, [number], number, number, 1000, "b")
        key = check_point_key(point, "b")
        books.add(key, point, number, first_place=number * 100)
        books.acknowledge(key, [number])
    assert books.take_due(2000) is None
    assert (books.done_offset, books.kept) == (0, 0)


def test_one_takes_little_room_however_many_messages_it_has() -> None:
    books = PendingCheckPoints(0, InFlight())
    with traced_memory() as traced:
        for number in range(2000):
            point = PopCheckPoint(
                topic="T",
                group="G",
                count=127,
                start_offset=number * 1000,
                pop_time=1,
                broker_name="b",
            )
            books.add(check_point_key(point, "b"), point, number)
        size = traced.held
    assert len(books) == 2000 and size < 2000 * 2500


def test_an_acknowledgement_of_very_many_is_looked_through_once() -> None:
    class Looked(list[int]):
        times = 0

        def __iter__(self) -> Iterator[int]:
            self.times += 1
            return super().__iter__()

    books = PendingCheckPoints(0, InFlight())
    point = new_check_point("T", "G", 0, [0, 2, 3], 0, 1000, 10, "b")
    key = check_point_key(point, "b")
    for number in range(100):
        books.add(key, point, number)
    offsets = Looked([*range(1000), 5000])
    offsets.remove(2)
    books.acknowledge(key, offsets)
    due = books.take_due(9999)
    assert offsets.times <= 1
    assert due is not None and due.waiting == {2} and len(books) == 100


def test_a_message_that_a_check_point_names_twice_is_one() -> None:
    books = PendingCheckPoints(0, InFlight())
    point = new_check_point("T", "G", 0, [4, 4, 6], 3, 1000, 10, "b")
    key = check_point_key(point, "b")
    books.add(key, point, 0)
    assert books.waits(key, 4) and not books.waits(key, 5)
    books.acknowledge(key, [4])
    books.acknowledge(key, [6, 9])
    assert len(books) == 0


def test_one_that_is_stored_again_waits_beside_its_former_self() -> None:
    books = PendingCheckPoints(0, InFlight())
    point = new_check_point("T", "G", 0, [0, 1], 0, 1000, 10, "b")
    later = new_check_point("T", "G", 0, [0], 0, 1000, 99, "b")
    key = check_point_key(point, "b")
    books.add(key, point, 0)
    due = books.take_due(1010)
    assert due is not None
    # It is read before it is known that it is stored.
    books.add(check_point_key(later, "b"), later, 1)
    books.read_offset = 2
    books.settle(due, [0])
    books.settle(due, [1])
    assert len(books) == 1 and books.done_offset == 1
    assert books.take_due(1098) is None
    again = books.take_due(1099)
    assert again is not None and again.waiting == {0}
    books.acknowledge(key, [0])
    assert len(books) == 0 and books.done_offset == 2


def test_an_acknowledgement_is_for_all_that_have_the_message() -> None:
    books = PendingCheckPoints(0, InFlight())
    for number, offsets in enumerate(([0, 1], [0, 1, 2], [0], [0, 3])):
        point = new_check_point("T", "G", 0, offsets, 0, 1000, 10, "b")
        books.add(check_point_key(point, "b"), point, number)
    books.read_offset = 4
    key = check_point_key(new_check_point("T", "G", 0, [], 0, 1000, 0, "b"), "b")
    for offset, left in ((0, 3), (3, 2), (1, 1), (2, 0)):
        books.acknowledge(key, [offset])
        assert len(books) == left
    assert books.done_offset == 4
    assert books.take_due(9999) is None


def test_many_alike_are_let_go_as_fast_as_any() -> None:
    books = PendingCheckPoints(0, InFlight())
    point = new_check_point("T", "G", 0, [0], 0, 1000, 10, "b")
    key = check_point_key(point, "b")
    for number in range(50_000):
        books.add(key, point, number)
    books.read_offset = 50_000
    books.acknowledge(key, [0])
    assert len(books) == 49_900
    while (due := books.take_due(1010)) is not None:
        books.settle(due, [0])
    assert len(books) == 0 and books.done_offset == 50_000


@given(st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_the_books_say_what_a_list_says(dice: Random) -> None:
    """Against each check point by itself, with few keys and so many alike, of two groups."""
    in_flight = InFlight()
    books = PendingCheckPoints(0, in_flight)
    model: list[tuple[CheckPointKey, set[int]]] = []
    given_out: list[PendingCheckPoint] = []
    queues = [("T", "G", 0), ("T", "H", 0)]
    for number in range(60):
        start, popped_ms = dice.randrange(2), dice.randrange(2)
        offsets = sorted({start + dice.randrange(4) for _ in range(3)})
        group, hidden_ms = dice.choice("GH"), dice.randrange(9)
        point = new_check_point("T", group, 0, offsets, start, popped_ms, hidden_ms, "b")
        key = check_point_key(point, "b")
        match dice.randrange(3):
            case 0:
                books.add(key, point, number)
                model.append((key, set(offsets)))
            case 1:
                books.acknowledge(key, offsets)
                for other, waiting in model:
                    if other == key:
                        waiting.difference_update(offsets)
            case 2:
                due = books.take_due(100)
                if due is not None:
                    assert (due.key, due.waiting) in model
                    given_out.append(due)
        books.read_offset = number + 1
        assert len(books) == sum(bool(waiting) for _, waiting in model)
        for queue in queues:
            mine = [waiting for other, waiting in model if other[:3] == queue]
            assert in_flight.of(queue) == sum(map(len, mine))
        alike = {other for other, waiting in model if waiting and other[2:] == key[2:]}
        others = {other for other, waiting in model if offsets[0] in waiting} & alike
        expected = others if key not in alike else set()
        assert books.another(key, offsets[0]) in (expected or {None})
    while (due := books.take_due(100)) is not None:
        given_out.append(due)
    for due in given_out:
        books.settle(due, list(due.waiting))
    assert len(books) == sum(map(in_flight.of, queues)) == 0
    assert books.done_offset == books.read_offset
