"""Lives of a popping group, at random, with kills: nothing is lost, nothing comes twice."""

from __future__ import annotations

import random
from typing import Any

from rocketmq_tw.wire.codes import ResponseCode
from tests.support.killed_pops import committed, killed, popping, reset, send
from tests.support.pops import PoppedMessage, Popper, drain, pass_time

LIVES = 12
#: What is popped is delivered again within a life where it is hidden for less.
SHORT_MS = 9_000


class Life:
    """A group that pops, at random; what must come, and what must not come again. Where the group
    is put back, or somebody is late, a message that is acknowledged may come by a check point of
    its other pop."""

    def __init__(self, seed: int, hidden_ms: int) -> None:
        self.hidden_ms = hidden_ms
        self.chance = random.Random(seed)
        self.broker, _ = popping()
        self.sent = 1
        self.acked = {b"0"}
        #: What pops left out by their filter: it need not come.
        self.left_out: set[bytes] = set()
        self.popped: list[PoppedMessage] = []

    def popper(self, **fields: Any) -> Popper:
        return Popper(self.broker, invisible_time=self.hidden_ms, **fields)

    def send(self) -> None:
        for _ in range(self.chance.randrange(1, 6)):
            send(self.broker, str(self.sent), tags=self.chance.choice("AB"))
            self.sent += 1

    def pop(self) -> None:
        self.popped += self.popper().pop(max_msg_nums=self.chance.choice([1, 3, 32]))

    def pop_filtered(self) -> None:
        popper = self.popper(exp="A", exp_type="TAG")
        self.popped += popper.pop(max_msg_nums=self.chance.choice([1, 32]))
        known = self.broker.offsets.query("G", "Topic", 0)
        for message in self.broker.consume():
            if message.queue_offset < known and message.properties.get("TAGS") == "B":
                self.left_out.add(message.body)

    def ack(self) -> None:
        self.chance.shuffle(self.popped)
        for _ in range(self.chance.randrange(4)):
            if self.popped:
                message = self.popped.pop()
                self.popper().ack(message)
                self.acked.add(message.body)

    def hide(self) -> None:
        if self.popped:
            message = self.popped.pop(self.chance.randrange(len(self.popped)))
            request = self.popper().hide_request(message, 2 * self.hidden_ms)
            answer = self.broker.request(request)
            assert answer is not None
            if answer.code == ResponseCode.NO_MESSAGE and self.hidden_ms < SHORT_MS:
                # It is delivered again.
                return
            self.popped.append(self.popper().hidden(message, answer))

    def put_back(self) -> None:
        known = self.broker.offsets.query("G", "Topic", 0)
        offset = self.chance.randrange(1, known + 1)
        back = self.chance.choice([reset, committed])
        back(self.broker, offset)
        if self.broker.offsets.query("G", "Topic", 0) == offset < known:
            self.acked -= {b"%d" % number for number in range(offset, known)}
            # Who has them still may acknowledge them, which is not for the pop that follows.
            self.popped = []

    def wait(self) -> None:
        pass_time(self.broker, self.chance.choice([0.25, 1, 6]))

    def wait_long(self) -> None:
        pass_time(self.broker, 9)

    def kill(self) -> None:
        self.broker.clock.advance(0)
        self.broker = killed(self.broker)

    def live(self, *others: str) -> list[str]:
        """25 steps: those of all lives, and `others`."""
        names = [*["send", "pop", "ack"] * 3, "pop_filtered", "hide", "wait", "kill", *others]
        done = self.chance.choices(names, k=25)
        for name in done:
            getattr(self, name)()
        self.kill()
        return done

    def comes(self, seconds: int) -> set[bytes]:
        """What is popped until that time, each acknowledged."""
        found = set()
        for _ in range(4):
            found |= set(drain(self.broker))
            self.broker.clock.pump([seconds / 20] * 20)
        return found

    @property
    def all(self) -> set[bytes]:
        return {b"%d" % number for number in range(1, self.sent)}


def test_nothing_is_lost_whatever_happens() -> None:
    for seed in range(LIVES):
        life = Life(seed, 5_000)
        done = life.live("put_back", "put_back", "wait_long")
        came = life.comes(20)
        assert not life.all - life.acked - life.left_out - came, (seed, done, came)


def test_nothing_that_was_acknowledged_comes_again() -> None:
    for seed in range(LIVES):
        life = Life(seed, 100_000)
        done = life.live()
        came = life.comes(210)
        assert not life.all - life.acked - life.left_out - came, (seed, done, came)
        assert not life.acked & came, (seed, done, came)
