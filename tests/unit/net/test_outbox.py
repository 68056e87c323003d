import socket
from contextlib import closing

import pytest
from twisted.internet import main
from twisted.internet.protocol import Protocol
from twisted.internet.tcp import Connection
from twisted.internet.testing import MemoryReactor, StringTransport
from zope.interface import implementer

from rocketmq_tw.net.outbox import SIZE_LIMIT, Outbox, Outboxes, send_now
from rocketmq_tw.runtime.turns import IReactorTurns


class CountingSocket(socket.socket):
    sends = 0

    def send(self, data, flags=0):
        self.sends += 1
        return super().send(data, flags)


class Pair:
    """A transport on one end of a socket pair; the other end reads what was sent."""

    def __init__(self):
        ours, self.other = socket.socketpair()
        for end in (ours, self.other):
            end.setblocking(False)
        self.reactor = MemoryReactor()
        self.socket = CountingSocket(fileno=ours.detach())
        self.transport = Connection(self.socket, Protocol(), self.reactor)
        self.transport.connected = 1

    @property
    def waits_to_write(self):
        return self.transport in self.reactor.writers

    def read(self):
        parts = []
        while True:
            try:
                parts.append(self.other.recv(1 << 20))
            except BlockingIOError:
                return b"".join(parts)

    def close(self):
        self.socket.close()
        self.other.close()


@pytest.fixture
def pair():
    with closing(Pair()) as made:
        yield made


def test_what_is_gathered_leaves_with_one_send_at_the_end(pair):
    boxes = Outboxes(None)
    box = Outbox(boxes, pair.transport)

    def work(first):
        box.write(first)
        boxes.gather(box.write, b"two ")
        box.write(b"three")
        assert pair.read() == b""

    boxes.gather(work, b"one ")
    assert pair.read() == b"one two three"
    assert pair.socket.sends == 1 and not pair.waits_to_write


@implementer(IReactorTurns)
class Turn:
    """A reactor whose turn ends when the test says so."""

    def __init__(self):
        self.ends = []

    def at_turn_end(self, call):
        self.ends.append(call)

    def waited(self):
        return 0.0

    def end(self):
        calls, self.ends = self.ends, []
        for call in calls:
            call()


def test_what_a_turn_writes_leaves_with_one_send_at_its_end(pair):
    turn = Turn()
    boxes = Outboxes(turn)
    box = Outbox(boxes, pair.transport)
    box.write(b"one ")
    # Not with what is gathered meanwhile: it would take two.
    boxes.gather(box.write, b"two ")
    box.write(b"three")
    assert pair.read() == b"" and not pair.waits_to_write
    turn.end()
    assert pair.read() == b"one two three"
    assert pair.socket.sends == 1 and not pair.waits_to_write
    box.write(b"next")
    turn.end()
    assert pair.read() == b"next"


def test_much_does_not_wait_for_the_end_of_the_turn(pair):
    box = Outbox(Outboxes(Turn()), pair.transport)
    box.write(b"x" * SIZE_LIMIT)
    assert pair.waits_to_write


def test_a_connection_that_is_cut_sends_nothing_at_the_end_of_the_turn(pair):
    turn = Turn()
    box = Outbox(Outboxes(turn), pair.transport)
    box.write(b"lost")
    box.close()
    turn.end()
    assert pair.read() == b"" and not pair.waits_to_write


def test_outside_of_gathering_the_transport_writes(pair):
    Outbox(Outboxes(None), pair.transport).write(b"later")
    assert pair.waits_to_write and pair.read() == b""
    pair.transport.doWrite()
    assert pair.read() == b"later"


def test_nothing_overtakes_what_waits_in_the_transport(pair):
    boxes = Outboxes(None)
    box = Outbox(boxes, pair.transport)
    box.write(b"one ")
    boxes.gather(box.write, b"two")
    assert pair.read() == b""
    pair.transport.doWrite()
    assert pair.read() == b"one two"


def test_what_the_kernel_does_not_take_goes_through_the_transport(pair):
    boxes = Outboxes(None)
    box = Outbox(boxes, pair.transport)
    pieces = [bytes([number]) * 50_000 for number in range(40)]
    for piece in pieces:
        boxes.gather(box.write, piece)
    assert pair.waits_to_write
    received = pair.read()
    while pair.waits_to_write:
        pair.transport.doWrite()
        received += pair.read()
    assert received == b"".join(pieces)


def test_much_does_not_wait_and_stops_its_producer(pair):
    boxes = Outboxes(None)
    box = Outbox(boxes, pair.transport)
    paused = []

    class Producer:
        def pauseProducing(self):
            paused.append(True)

    pair.transport.registerProducer(Producer(), True)

    def work():
        box.write(b"a")
        assert not paused
        box.write(bytes(SIZE_LIMIT))
        assert paused

    boxes.gather(work)
    assert pair.waits_to_write


def test_each_connection_gets_its_own_though_the_work_fails(pair):
    boxes = Outboxes(None)
    plain = StringTransport()
    first, second = Outbox(boxes, pair.transport), Outbox(boxes, plain)

    def work():
        first.write(b"first")
        second.write(b"second")
        raise ValueError("as the test means it")

    with pytest.raises(ValueError, match="as the test means it"):
        boxes.gather(work)
    assert pair.read() == b"first" and plain.value() == b"second"
    boxes.gather(second.write, b" again")
    assert plain.value() == b"second again"


def test_a_closed_outbox_sends_nothing(pair):
    boxes = Outboxes(None)
    box = Outbox(boxes, pair.transport)

    def work():
        box.write(b"before")
        box.close()
        box.write(b"after")

    boxes.gather(work)
    assert pair.read() == b"" and not pair.waits_to_write


def test_the_reactor_learns_that_the_other_end_is_gone(pair):
    boxes = Outboxes(None)
    pair.other.close()
    boxes.gather(Outbox(boxes, pair.transport).write, b"lost")
    assert pair.waits_to_write
    assert pair.transport.doWrite() == main.CONNECTION_LOST


def test_what_is_sent_now_has_left_when_the_call_returns(pair):
    send_now(pair.transport, b"one")
    assert pair.read() == b"one" and not pair.waits_to_write
    pair.transport.write(b" two")
    send_now(pair.transport, b" three")
    assert pair.read() == b"", "nothing overtakes what waits"
    pair.transport.doWrite()
    assert pair.read() == b" two three"


def test_a_transport_that_closes_is_not_sent_to(pair):
    pair.transport.disconnecting = True
    send_now(pair.transport, b"the transport knows what to do")
    assert pair.socket.sends == 0 and pair.waits_to_write
    pair.transport.connected = 0
    send_now(pair.transport, b"nobody gets this")
    assert pair.socket.sends == 0
