"""Work at brokers in turns."""

from __future__ import annotations

import random

from rocketmq_tw.proxy.messaging.broker_round_robin import BrokerRoundRobin


def test_a_broker_has_so_much_at_a_time_and_what_is_urgent_first() -> None:
    turns = BrokerRoundRobin[str](2)
    for name in ("l1", "l2"):
        turns.add("a", name, urgent=False)
    for name in ("u1", "u2", "u3"):
        turns.add("a", name, urgent=True)
    turns.add("b", "other", urgent=False)
    begun = [turns.next() for _ in range(4)]
    assert begun == ["u1", "other", "u2", None]
    turns.over("a")
    assert [turns.next(), turns.next()] == ["u3", None]
    assert len(turns) == 5
    turns.clear()
    assert len(turns) == 3
    for broker in ("a", "a", "b"):
        turns.over(broker)
    assert (len(turns), turns.next()) == (0, None)


def test_everything_gets_its_turn() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    turns = BrokerRoundRobin[tuple[str, int]](3)
    under_way: list[tuple[str, int]] = []
    added, done = set(), set()
    for number in range(2000):
        step = chance.random()
        if step < 0.4:
            broker = chance.choice("abc")
            turns.add(broker, (broker, number), urgent=chance.random() < 0.5)
            added.add((broker, number))
        elif step < 0.7:
            item = turns.next()
            if item is not None:
                under_way.append(item)
        elif under_way:
            item = under_way.pop(chance.randrange(len(under_way)))
            turns.over(item[0])
            done.add(item)
        for broker in "abc":
            assert [name for name, _ in under_way].count(broker) <= 3
    while len(turns):
        while (item := turns.next()) is not None:
            under_way.append(item)
        item = under_way.pop()
        turns.over(item[0])
        done.add(item)
    assert done == added
