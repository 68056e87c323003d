from twisted.internet.task import Clock

from rocketmq_tw.runtime.recent import RecentValues


def test_values_are_remembered_for_their_time() -> None:
    clock = Clock()
    values = RecentValues[str, int](clock, 10, 100)
    values.put("a", 1)
    clock.advance(9)
    assert values.get("a") == 1
    values.put("a", 2)
    clock.advance(9)
    assert values.get("a") == 2
    clock.advance(1)
    assert values.get("a") is None
    assert len(values) == 1
    values.put("b", 3)
    assert len(values) == 1


def test_the_oldest_give_way() -> None:
    values = RecentValues[str, int](Clock(), 10, 2)
    for number, name in enumerate("abac"):
        values.put(name, number)
    assert [values.get(name) for name in "abc"] == [2, None, 3]


def test_a_value_is_discarded() -> None:
    values = RecentValues[str, int](Clock(), 10, 2)
    values.put("a", 1)
    for _ in range(2):
        values.discard("a")
    assert values.get("a") is None
