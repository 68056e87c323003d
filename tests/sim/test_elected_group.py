"""Groups under controllers, with brokers killed, paused and without power, by seed.

Whatever happens: two brokers are never master of one epoch, what a producer was told SEND_OK of is
there at the end (with allAckInSyncStateSet), and what a reader has seen is never taken back.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from rocketmq_tw.broker.role.state import Role
from tests.support.sim.group import ElectedGroup

SEEDS = 12


class Watched(ElectedGroup):
    """A group whose promises are looked at again and again."""

    def __init__(self, **keys: Any) -> None:
        super().__init__(**keys)
        self.masters_of: dict[int, int] = {}
        self.seen: list[bytes] = []

    def look(self) -> None:
        for number, broker in self.brokers.items():
            state = broker.broker.role.state
            if state.role is Role.MASTER:
                assert state.epoch is not None
                assert self.masters_of.setdefault(state.epoch, number) == number, "two masters"
            bodies = self.bodies(number)
            longer, shorter = sorted((bodies, self.seen), key=len, reverse=True)
            assert longer[: len(shorter)] == shorter, "what a reader saw is another one now"
            self.seen = longer


def live(seed: int) -> Watched:
    chance = random.Random(seed)
    flush = chance.choice(["ASYNC_FLUSH", "SYNC_FLUSH"])
    group = Watched(all_ack_in_sync_state_set=True, min_in_sync_replicas=1, flush_disk_type=flush)
    group.controllers.leader()
    for number in (1, 2, 3):
        group.start(number)
    group.run_until(lambda: len(group.in_sync()) == 3)
    sent = 0
    for _ in range(12):
        for _ in range(chance.randrange(4)):
            for number in group.masters():
                sent += 1
                group.send(number, b"%d" % sent)
            group.run(chance.choice([0.005, 0.05, 0.5]))
            group.look()
        down = [number for number in (1, 2, 3) if number not in group.brokers]
        if down and chance.random() < 0.6:
            group.start(chance.choice(down))
        elif len(group.brokers) > 1:
            # Power is taken only where SYNC_FLUSH promises to survive that.
            power = chance.random() < 0.5 and flush == "SYNC_FLUSH"
            victim = chance.choice(group.masters() or list(group.brokers))
            group.kill(victim, chance.randrange(1000) if power else None)
        group.run(chance.choice([0.05, 1.0, 5.0]))
        group.look()
    for number in (1, 2, 3):
        if number not in group.brokers:
            group.start(number)
    group.run_until(lambda: group.masters() and len(group.in_sync()) == 3, limit=120)
    group.run(2)
    group.look()
    return group


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_group_keeps_its_promises(seed: int) -> None:
    group = live(seed)
    found = group.bodies(1)
    assert set(group.acknowledged) <= set(found), f"seed {seed}"
    assert group.bodies(2) == group.bodies(3) == found, f"seed {seed}"
