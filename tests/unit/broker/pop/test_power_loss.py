"""The power goes away at every change of a file in a short life of a group that pops."""

from __future__ import annotations

from copy import deepcopy
from itertools import islice

import pytest
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.files.faulty import FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.wire.codes import ResponseCode
from tests.support.broker import BrokerInMemory, fired, ok
from tests.support.pops import PoppedMessage, Popper, pass_time
from tests.support.power import aftermaths

PARTS = 3
SENT = 6
INVISIBLE_MS = 5_000


class Life:
    """What was promised by the moment when the power went away."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self.acked: set[bytes] = set()
        #: Whether the file of offsets tells as of which place of the log it is.
        self.is_written = False
        #: Acknowledged since then, or long enough ago for the group's offset to be in its file.
        self.settled: set[bytes] = set()


def live(files: FaultyFiles, clock: MemoryReactorClock, life: Life) -> None:
    """Pops, acknowledges, hides longer, lets something be revived, and goes on with that."""
    broker = started(files, clock)
    broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
    popper = Popper(broker, invisible_time=INVISIBLE_MS)
    for number in range(SENT):
        ok(broker.send(b"%d" % number))
        life.sent.add(b"%d" % number)

    def ack(message: PoppedMessage) -> None:
        answer = broker.request(popper.ack_request(message))
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            life.acked.add(message.body)
            # What was revived may be so once more.
            if life.is_written and not message.reconsume_times:
                life.settled.add(message.body)

    first = popper.pop(max_msg_nums=3)
    ack(first[0])
    later = popper.hide(first[1], 8_000)
    second = popper.pop()
    ack(second[0])
    pass_time(broker, 7)
    life.settled |= life.acked
    life.is_written = True
    ack(later)
    for number in range(SENT, SENT + 3):
        ok(broker.send(b"%d" % number))
        life.sent.add(b"%d" % number)
    for message in popper.pop(max_msg_nums=2) + popper.pop():
        ack(message)
    pass_time(broker, 6)
    life.settled |= life.acked
    pass_time(broker, 4)


def started(files: MemoryFiles | FaultyFiles, clock: MemoryReactorClock) -> BrokerInMemory:
    return BrokerInMemory(files, clock=clock, flush_disk_type="SYNC_FLUSH")


def check(files: MemoryFiles, seconds: float, life: Life, moment: int) -> None:
    clock = MemoryReactorClock()
    clock.advance(seconds)
    broker = started(files, clock)
    popper = Popper(broker, invisible_time=INVISIBLE_MS)
    if broker.topics.get("Topic") is None:
        return
    came: list[bytes] = []
    for _ in range(4):
        found = popper.pop()
        came += [message.body for message in found]
        popper.ack(*found)
        pass_time(broker, 5)
    lost = life.sent - life.acked - set(came)
    assert not lost, (moment, lost)
    assert not life.settled & set(came), (moment, came)


@pytest.mark.parametrize("part", range(PARTS))
def test_every_moment(part: int) -> None:
    files, clock, life = FaultyFiles(MemoryFiles()), MemoryReactorClock(), Life()
    left = aftermaths(
        files,
        lambda: live(files, clock, life),
        seeds=[1],
        kills=False,
        note=lambda: (clock.seconds(), deepcopy(life)),
    )
    for moment, lost, (seconds, promised) in islice(left, part, None, PARTS):
        check(lost, seconds, promised, moment)
    assert len(life.sent) == SENT + 3 and len(life.settled) > 2


def test_a_cut_takes_back_what_stands_for_the_end() -> None:
    broker = started(MemoryFiles(), MemoryReactorClock())
    broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
    popper = Popper(broker, invisible_time=INVISIBLE_MS, order=True)
    for number in range(SENT):
        ok(broker.send(b"%d" % number))
    (unit,) = broker.store.queue_units("Topic", 0, 3, 1)
    popper.ack(popper.pop()[0])
    assert broker.offsets.query("G", "Topic", 0) == 1
    done = broker.broker[Writing].truncation.cut(unit.position)
    broker.clock.pump([0.01] * 20)
    fired(done)
    ok(broker.send(b"new"))
    assert popper.bodies() == [b"1", b"2", b"new"]
