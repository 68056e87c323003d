"""The power goes away, or the process, at every change of a file while messages wait for a time."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from itertools import islice

import pytest
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.files.faulty import FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store.timer.unit import TIMER_BLANK_SIZE, TIMER_UNIT_SIZE
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.send import RecallMessageRequestHeader
from tests.support.broker import BrokerInMemory
from tests.support.power import aftermaths
from tests.support.stores import START_MS
from tests.support.timers import bodies, cut, let, timed

PARTS = 4
#: Seconds by which a delivery may be told of too late by the files: the time between two writes, a
#: slot, and the test's own step.
UNTOLD = 2.2


class Life:
    """What was promised by the moment when the power went away."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        #: Messages that somebody tried to take back: without an answer they may come or not.
        self.asked: set[bytes] = set()
        #: Messages whose recall was answered with success, in time.
        self.recalled: set[bytes] = set()
        #: Delivered so long ago that the files say so.
        self.settled: set[bytes] = set()


def started(
    files: MemoryFiles | FaultyFiles, clock: MemoryReactorClock, file_size: int = 4096
) -> BrokerInMemory:
    return BrokerInMemory(
        files,
        clock=clock,
        flush_disk_type="SYNC_FLUSH",
        timer_roll_window_slot=6,
        mapped_file_size_timer_log=file_size,
        broker={"recall_message_enable": True},
    )


def live(files: FaultyFiles, clock: MemoryReactorClock, life: Life) -> None:
    """Messages of all kinds wait, some are delivered; the broker is stopped and started, too."""
    broker = started(files, clock)

    def send(body: bytes, delay_ms: int) -> str:
        answer = timed(broker, body, TIMER_DELAY_MS=delay_ms, UNIQ_KEY=body.decode())
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return ""
        life.sent.add(body)
        handle: str = answer.ext_fields["recallHandle"]
        return handle

    def pass_time(seconds: float) -> None:
        let(broker, seconds - UNTOLD, 0.1)
        seen = set(bodies(broker))
        let(broker, UNTOLD, 0.1)
        life.settled |= seen

    for number in range(6):
        send(b"soon %d" % number, 500 + 450 * number)
    send(b"rolls", 9_000)
    handle = send(b"recalled", 7_000)
    pass_time(3.5)
    header = RecallMessageRequestHeader(topic="Topic", recall_handle=handle)
    life.asked.add(b"recalled")
    answer = broker.request(RemotingCommand.request(RequestCode.RECALL_MESSAGE, header))
    if answer is not None and answer.code == ResponseCode.SUCCESS:
        life.recalled.add(b"recalled")
    send(b"later", 4_000)
    broker.stop()
    broker = started(files, clock)
    send(b"last", 300)
    pass_time(6.5)


def check(files: MemoryFiles, after: float, life: Life, what: object) -> None:
    clock = MemoryReactorClock()
    clock.advance(after)
    broker = started(files, clock)
    let(broker, 12, 0.1)
    came = Counter(bodies(broker))
    assert life.sent - life.asked <= set(came), (what, life.sent - set(came))
    assert not life.recalled & set(came), (what, "taken back and delivered")
    assert not {body for body in life.settled if came[body] > 1}, (what, came)
    broker.stop()


@pytest.mark.parametrize("part", range(PARTS))
def test_every_moment(part: int) -> None:
    files, clock, life = FaultyFiles(MemoryFiles()), MemoryReactorClock(), Life()
    left = aftermaths(
        files,
        lambda: live(files, clock, life),
        note=lambda: (clock.seconds(), deepcopy(life)),
    )
    for moment, lost, (seconds, promised) in islice(left, part, None, PARTS):
        check(lost, seconds, promised, moment)
    assert len(life.sent) == 10 and len(life.recalled) == 1 and len(life.settled) > 6


def filled(files: MemoryFiles | FaultyFiles) -> tuple[BrokerInMemory, int]:
    """A broker that has delivered all but the last of its messages; where its third delivery stands
    in the log."""
    broker = started(files, MemoryReactorClock())
    for second in range(1, 9):
        timed(broker, b"%d" % second, TIMER_DELAY_SEC=second)
    timed(broker, b"late", TIMER_DELAY_SEC=14)
    let(broker, 9, 0.1)
    assert len(bodies(broker)) == 8
    (unit,) = broker.store.queue_units("Topic", 0, 2, 1)
    return broker, unit.position


def test_what_a_cut_takes_back_is_delivered_again() -> None:
    broker, end = filled(MemoryFiles())
    cut(broker, end)
    assert bodies(broker) == [b"1", b"2"]
    let(broker, 8, 0.1)
    assert bodies(broker) == [b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"late"]
    broker.stop()


def test_what_was_sent_behind_a_cut_waits_no_more() -> None:
    broker = started(MemoryFiles(), MemoryReactorClock())
    timed(broker, b"stays", TIMER_DELAY_SEC=3)
    end = broker.store.end_offset
    for number in range(600):
        timed(broker, b"goes %d" % number, TIMER_DELAY_SEC=3)
    let(broker, 1.5, 0.1)
    cut(broker, end)
    # In the places of those.
    timed(broker, b"new", TIMER_DELAY_SEC=3)
    let(broker, 5, 0.1)
    assert bodies(broker) == [b"stays", b"new"]


def test_a_cut_through_all() -> None:
    broker = started(MemoryFiles(), MemoryReactorClock())
    for _ in range(3):
        timed(broker, b"goes", TIMER_DELAY_SEC=1)
    let(broker, 3, 0.1)
    cut(broker, 0)
    timed(broker, b"new", TIMER_DELIVER_MS=START_MS + 5000)
    let(broker, 5, 0.1)
    assert bodies(broker) == [b"new"]


def test_the_power_goes_away_at_every_moment_of_a_cut() -> None:
    files = FaultyFiles(MemoryFiles())
    broker, end = filled(files)
    moment = 0
    for moment, left, _ in aftermaths(files, lambda: cut(broker, end)):
        clock = MemoryReactorClock()
        clock.advance(9.5)
        again = started(left, clock)
        let(again, 8, 0.1)
        expected = {b"%d" % second for second in range(1, 9)} | {b"late"}
        assert set(bodies(again)) == expected, moment
    assert moment > 4


@pytest.mark.parametrize("file_size", [4096, 2 * TIMER_UNIT_SIZE + TIMER_BLANK_SIZE])
@pytest.mark.parametrize("gone", [1, 2, 5])
def test_the_power_goes_away_while_what_waits_is_cut(gone: int, file_size: int) -> None:
    """Slots of the wheel's file lead behind the end that the timer log has then."""
    stay = [b"stays %d" % number for number in range(4)]
    files = FaultyFiles(MemoryFiles())
    broker = started(files, MemoryReactorClock(), file_size)
    for number, body in enumerate(stay):
        timed(broker, body, TIMER_DELAY_SEC=5 + number % 2)
    let(broker, 1.5, 0.1)
    end = broker.store.end_offset
    for number in range(gone):
        timed(broker, b"goes %d" % number, TIMER_DELIVER_MS=START_MS + 5000 + number % 2 * 1000)
    let(broker, 1.5, 0.1)
    moment = 0
    for moment, left, _ in aftermaths(files, lambda: cut(broker, end), seeds=[0]):
        clock = MemoryReactorClock()
        clock.advance(3.5)
        again = started(left, clock, file_size)
        let(again, 0.1, 0.1)
        timed(again, b"new", TIMER_DELIVER_MS=START_MS + 5000)
        let(again, 5, 0.1)
        came = Counter(bodies(again))
        assert all(came[body] == 1 for body in (*stay, b"new")), (moment, came)
        assert set(came.values()) == {1}, (moment, came)
    assert moment > 6


def damaged(what: str) -> tuple[MemoryFiles, set[bytes]]:
    """The files of a broker that was stopped and of which some is lost, and what waits in it."""
    files = MemoryFiles()
    broker = started(files, MemoryReactorClock())
    waiting = {b"%d" % number for number in range(6)}
    for body in sorted(waiting):
        timed(broker, body, TIMER_DELAY_SEC=6 + int(body) % 3)
    let(broker, 1.5, 0.1)
    broker.stop()
    log = f"/store/timerlog/{0:020d}"
    if what == "wheel":
        files.remove("/store/timerwheel")
    elif what == "log":
        files.remove(log)
    else:
        # Entries in the middle, or at the end.
        first = 2 if what == "hole" else 4
        file = files.open(log)
        file.pwrite(bytes(2 * TIMER_UNIT_SIZE), first * TIMER_UNIT_SIZE)
        file.fsync()
    files.sync_dir("/store")
    files.sync_dir("/store/timerlog")
    return files, waiting


@pytest.mark.parametrize("what", ["wheel", "log", "hole", "end"])
def test_the_power_goes_away_while_lost_files_are_made_again(what: str) -> None:
    """What the first start found to be lost, the next one must not take for whole."""
    memory, waiting = damaged(what)
    files = FaultyFiles(memory)

    def live() -> None:
        clock = MemoryReactorClock()
        clock.advance(2)
        broker = started(files, clock)
        let(broker, 0.1, 0.1)
        timed(broker, b"new", TIMER_DELIVER_MS=START_MS + 6000)
        # Not until some of it rolls: that is done again where it was not noted.
        let(broker, 1.5, 0.1)

    moment = 0
    for moment, left, _ in aftermaths(files, live):
        clock = MemoryReactorClock()
        clock.advance(4.5)
        again = started(left, clock)
        let(again, 6, 0.1)
        came = Counter(bodies(again))
        assert waiting <= set(came), (moment, came)
        assert set(came.values()) == {1}, (moment, came)
    assert moment > 6
