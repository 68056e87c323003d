"""The books of what was popped: what is acknowledged is let go, in whatever order."""

from rocketmq_tw.broker.pop.check_points import check_point_key, new_check_point
from rocketmq_tw.broker.pop.pending import InFlight, PendingCheckPoints


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
