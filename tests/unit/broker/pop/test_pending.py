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
