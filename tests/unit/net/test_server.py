import gc
from functools import partial
from types import FrameType, FunctionType, ModuleType
from unittest.mock import Mock, patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.internet.protocol import Factory
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.logger import capturedLogs
from twisted.python.failure import Failure

from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.net import protocol
from rocketmq_tw.net.connection import ENOUGH_UNREAD
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand, encode_command
from rocketmq_tw.wire.frame import Frame, encode_frame
from tests.support.interpreter import cpython_only
from tests.support.memory_server import ADDRESS, BIG, ECHO, HELD, LATER, MemoryServer, RawClient
from tests.support.network import MemoryNetwork


def test_idle_connections_are_closed_and_busy_ones_kept():
    server = MemoryServer(server_channel_max_idle_time_seconds=120)
    idle, busy = server.connect(), server.connect()
    for _ in range(13):
        server.clock.advance(10)
        busy.send(ECHO)
    server.clock.advance(0)
    assert idle.lost and not busy.lost
    assert len(server.listener.connections) == 1


def test_a_frame_that_comes_byte_by_byte_for_too_long_ends_its_connection():
    server = MemoryServer(server_channel_max_idle_time_seconds=120)
    dripping, busy = server.connect(), server.connect()
    frame = encode_command(RemotingCommand(ECHO, body=bytes(1000)))
    busy.transport.write(frame[:4])
    for count in range(12):
        dripping.transport.write(frame[count : count + 1])
        # Never between two frames, but each is whole soon.
        busy.transport.write(frame[4:] + frame[:4])
        server.clock.advance(10)
    server.clock.advance(10)
    assert dripping.lost and not busy.lost
    assert len(busy.responses) == 12
    busy.transport.loseConnection()
    server.clock.advance(0)
    assert server.used == 0


def test_a_frame_is_not_late_while_we_do_not_read_on():
    server = MemoryServer(server_channel_max_idle_time_seconds=120, max_unread_seconds=600)
    slow = server.connect()
    slow.transport.hold()
    frame = encode_command(RemotingCommand(ECHO))
    slow.transport.write(encode_command(RemotingCommand(BIG)) + frame[:9])
    server.clock.advance(0)
    slow.transport.write(frame[9:])
    for _ in range(11):
        server.clock.advance(10)
    slow.transport.let_go()
    server.clock.advance(0)
    server.clock.advance(20)
    assert not slow.lost
    assert len(slow.responses) == 2


def test_more_connections_than_the_limit_are_refused_with_one_line():
    server = MemoryServer(max_connections=2)
    kept = [server.connect(), server.connect()]
    with capturedLogs() as logs:
        refused = [server.connect() for _ in range(3)]
    assert all(outcome.check(ConnectionRefusedError) for outcome in refused)
    assert len(logs) == 1
    kept[0].transport.loseConnection()
    server.clock.advance(0)
    assert isinstance(server.connect(), RawClient)


def test_a_peer_that_does_not_read_is_not_read_from():
    server = MemoryServer()
    slow, other = server.connect(), server.connect()
    slow.transport.hold()
    slow.send(BIG)
    server.clock.advance(0)
    for _ in range(100):
        slow.send(ECHO)
    other.send(ECHO)
    server.clock.advance(0)
    assert server.served == 1, "the other one's"
    assert len(other.responses) == 1
    slow.transport.let_go()
    server.clock.advance(0)
    assert server.served == 101
    assert len(slow.responses) == 101
    assert server.used == 0


@pytest.mark.parametrize("left", [False, True])
def test_a_peer_that_asks_for_much_at_once_and_does_not_read_gets_little(left):
    server = MemoryServer()
    slow, other = server.connect(), server.connect()
    slow.transport.hold()
    asked = [RemotingCommand(BIG, opaque=opaque, body=b"x" * 10) for opaque in range(400)]
    slow.transport.write(b"".join(map(encode_command, asked)) + b"\0\0")
    server.clock.advance(0)
    unread = server.used
    assert unread < ENOUGH_UNREAD + 200_000, "one answer more than enough"
    other.send(BIG)
    server.clock.advance(0)
    assert len(other.responses) == 1
    if left:
        slow.transport.loseConnection()
        server.clock.advance(0)
        assert server.used == 0
        return
    slow.transport.let_go()
    for _ in range(400):
        server.clock.advance(0)
    assert [answer.opaque for answer in slow.responses] == list(range(400))
    slow.transport.write(b"\0\x04")
    server.clock.advance(0)
    assert server.used == 4, "what is known of the next frame"


@pytest.mark.parametrize("left", [False, True])
def test_late_answers_wait_until_others_were_taken(left):
    server = MemoryServer()
    slow = server.connect()
    for opaque in range(8):
        slow.send(HELD, opaque=opaque)
    slow.transport.hold()
    server.clock.advance(0)
    body = bytes(2 * ENOUGH_UNREAD)
    with patch.object(protocol, "encode_command", Mock(side_effect=encode_command)) as encoded:
        for request, answer in server.held:
            answer.callback(request.response(body=body))
        assert encoded.call_count == 1, "it is more than enough"
        assert server.used >= 8 * len(body)
        if left:
            slow.transport.loseConnection()
            server.clock.advance(0)
        else:
            slow.transport.let_go()
            for _ in range(8):
                server.clock.advance(0)
            assert [answer.opaque for answer in slow.responses] == list(range(8))
    assert server.used == 0


@cpython_only("PyPy's collector does not show the bytes objects that a list has")
def test_of_a_lost_connection_only_the_requests_that_wait_are_kept():
    clock = MemoryReactorClock()
    listener = RemotingServer(clock, NettyServerConfig()).listener()
    waiting = []
    listener.register(HELD, lambda request, peer: waiting.append(Deferred()) or waiting[-1])
    listener.register(BIG, lambda request, peer: request.response(body=bytes(ENOUGH_UNREAD)))
    connection = listener.factory.buildProtocol(None)
    transport = _Unread()
    connection.makeConnection(transport)
    held, big, echo = [encode_command(RemotingCommand(code)) for code in (HELD, BIG, ECHO)]
    connection.dataReceived(held + big)
    assert _large_bytes(waiting) == transport.unsent > ENOUGH_UNREAD
    frame = encode_command(RemotingCommand(ECHO, body=bytes(ENOUGH_UNREAD)))
    connection.dataReceived(echo + frame + frame[:-1])
    # The frame before the half one waits as well, until the answer is taken.
    assert connection.buffered > 2 * ENOUGH_UNREAD
    connection.connectionLost(Failure(ConnectionDone()))
    del connection, transport
    assert len(waiting) == 1 and _large_bytes(waiting) == 0
    waiting[0].callback(RemotingCommand(HELD))


class _Unread(StringTransport):
    """Keeps what is written, as sockets do beyond the end of their connection, and does not keep
    up."""

    def __init__(self):
        super().__init__()
        self.kept = []

    @property
    def unsent(self):
        return sum(map(len, self.kept))

    def write(self, data):
        self.kept.append(data)
        self.producer.pauseProducing()


def _large_bytes(*roots):
    """Bytes of all strings of 100 KB or more that can be reached from `roots`."""
    seen, found = {}, [*roots]
    while found:
        one = found.pop()
        if id(one) not in seen and not isinstance(one, type | ModuleType | FrameType):
            seen[id(one)] = one
            named = one.__globals__ if isinstance(one, FunctionType) else None
            found += [each for each in gc.get_referents(one) if each is not named]
            if isinstance(one, Frame):
                found.append(one.body)
    strings = [len(one) for one in seen.values() if isinstance(one, bytes | bytearray)]
    return sum(size for size in strings if size >= 100_000)


def test_whoever_waits_for_a_slow_peer_goes_on_as_it_reads():
    server = MemoryServer()
    slow = server.connect()
    slow.send(LATER)
    slow.transport.hold()
    slow.send(HELD)
    server.clock.advance(0)
    ((request, answer),) = server.held
    ((_, peer),) = server.later
    written = []

    def write(number):
        written.append(number)
        peer.send_oneway(RemotingCommand(ECHO, body=bytes(300_000)))

    for number in range(10):
        peer.when_ready(partial(write, number))
    assert written == [0, 1, 2, 3], "enough is unread"
    slow.send(ECHO)
    server.clock.advance(0)
    slow.transport.let_go()
    for _ in range(10):
        server.clock.advance(0)
    assert written == list(range(10))
    assert server.served == 1, "and the request that came meanwhile"
    slow.transport.hold()
    for number in range(10):
        peer.when_ready(partial(write, number))
    slow.transport.loseConnection()
    server.clock.advance(0)
    assert len(written) == 14
    answer.callback(request.response())
    assert server.used == 0


def test_a_peer_that_leaves_too_much_unread_for_long_is_closed():
    server = MemoryServer(max_unread_bytes=1000, max_unread_seconds=60)
    slow = server.connect()
    slow.transport.hold()
    for opaque in range(3):
        slow.send(HELD, opaque=opaque)
    slow.send(BIG)
    server.clock.advance(0)
    for request, answer in server.held:
        answer.callback(request.response(body=bytes(1000)))
    assert server.used > 3000
    server.clock.advance(55)
    assert not slow.lost
    with capturedLogs() as logs:
        server.clock.advance(5)
        server.clock.advance(0)
    assert slow.lost and len(logs) == 1
    assert server.used == 0


def test_answers_that_wait_until_others_were_taken_are_unread_too():
    server = MemoryServer(
        max_unread_bytes=4 * ENOUGH_UNREAD,
        max_unread_seconds=60,
        server_channel_max_idle_time_seconds=600,
    )
    slow = server.connect()
    slow.transport.hold()
    for opaque in range(8):
        slow.send(HELD, opaque=opaque)
    server.clock.advance(0)
    for request, answer in server.held:
        answer.callback(request.response(body=bytes(ENOUGH_UNREAD)))
    with capturedLogs() as logs:
        server.clock.advance(60)
        server.clock.advance(0)
    assert slow.lost and len(logs) == 1
    assert server.used == 0


def test_small_answers_that_wait_until_others_were_taken_are_counted():
    server = MemoryServer()
    slow = server.connect()
    slow.transport.hold()
    for opaque in range(1000):
        slow.send(HELD, opaque=opaque)
    server.clock.advance(0)
    (request, answer), *others = server.held
    answer.callback(request.response(body=bytes(ENOUGH_UNREAD)))
    used = server.used
    for request, answer in others:
        answer.callback(request.response())
    assert server.used >= used, "each is kept as its request was"
    slow.transport.let_go()
    server.clock.pump([0] * 20)
    assert [answer.opaque for answer in slow.responses] == list(range(1000))
    assert server.used == 0


def test_incomplete_frames_together_stay_within_the_budget():
    server = MemoryServer(max_bytes_in_flight=10_000)
    peers = [server.connect() for _ in range(3)]
    with capturedLogs() as logs:
        for peer in peers:
            peer.transport.write(b"\x00\xf0\x00\x00" + bytes(4000))
            server.clock.advance(0)
    assert [peer.lost for peer in peers] == [False, False, True]
    assert len(logs) == 1
    assert server.used == 8008
    peers[0].transport.loseConnection()
    server.clock.advance(0)
    assert server.used == 4004


def test_requests_over_the_budget_are_told_to_come_again():
    server = MemoryServer(max_bytes_in_flight=10_000)
    peer = server.connect()
    peer.send(HELD, bytes(10_001), opaque=1)
    peer.send(ECHO, opaque=2)
    server.clock.advance(0)
    assert [response.code for response in peer.responses] == [ResponseCode.SYSTEM_BUSY]
    request, answer = server.held[0]
    answer.callback(request.response())
    peer.send(ECHO, opaque=3)
    server.clock.advance(0)
    assert [response.opaque for response in peer.responses] == [2, 1, 3]
    assert server.used == 0


def test_a_stop_lets_replies_in_flight_leave():
    server = MemoryServer()
    busy, quiet = server.connect(), server.connect()
    busy.send(HELD)
    server.clock.advance(0)
    stopped = server.listener.drain(3)
    server.clock.advance(0.1)
    assert quiet.lost and not busy.lost and not stopped.called
    busy.send(ECHO, opaque=2)
    server.clock.advance(0.1)
    assert server.served == 0, "nothing new is taken up"
    request, answer = server.held[0]
    answer.callback(request.response(remark="in time"))
    server.clock.advance(0.1)
    assert [response.remark for response in busy.responses] == ["in time"]
    assert busy.lost and stopped.called
    assert server.clock.getDelayedCalls() == []


def test_a_slow_peer_that_reads_on_during_a_stop_is_not_read_from_either():
    server = MemoryServer()
    slow = server.connect()
    slow.transport.hold()
    slow.send(HELD, opaque=1)
    slow.send(BIG, opaque=2)
    server.clock.advance(0)
    stopped = server.listener.drain(3)
    slow.transport.let_go()
    slow.send(ECHO, opaque=3)
    server.clock.advance(0.1)
    assert server.served == 0
    request, answer = server.held[0]
    answer.callback(request.response())
    server.clock.advance(0.1)
    assert stopped.called and [response.opaque for response in slow.responses] == [2, 1]


def test_a_stop_does_not_wait_for_ever():
    server = MemoryServer()
    peer = server.connect()
    peer.send(HELD)
    server.clock.advance(0)
    stopped = server.listener.drain(3)
    server.clock.pump([0.5] * 6)
    server.clock.advance(0.1)
    assert peer.lost and stopped.called


def test_the_server_listens_where_its_config_says():
    reactor = MemoryReactorClock()
    config = NettyServerConfig(bind_address="127.0.0.1", listen_port=10911)
    server = RemotingServer(reactor, config)
    listener = server.listener()
    listener.listen()
    listener.listen(10909)
    assert [(port, backlog, host) for port, _, backlog, host in reactor.tcpServers] == [
        (10911, 1024, "127.0.0.1"),
        (10909, 1024, "127.0.0.1"),
    ]
    outcome = []
    server.stop().addCallback(outcome.append)
    assert outcome == [None]


@pytest.mark.parametrize(
    ("graceful", "seconds"), [(False, 3), (True, 30)], ids=["as usual", "gracefully"]
)
def test_how_long_a_stop_waits_is_configured(graceful, seconds):
    reactor = MemoryReactorClock()
    server = RemotingServer(reactor, NettyServerConfig(enable_shutdown_gracefully=graceful))
    listener = server.listener()
    listener.register(HELD, lambda request, peer: Deferred())
    network = MemoryNetwork(reactor)
    network.listen(ADDRESS, listener.factory)
    peer = []
    network.connect("10.0.0.9", ADDRESS, Factory.forProtocol(RawClient)).addCallback(peer.append)
    peer[0].send(HELD)
    reactor.advance(0)
    stopped = []
    server.stop().addCallback(stopped.append)
    reactor.pump([0.5] * (2 * seconds - 1))
    assert stopped == []
    reactor.pump([0.5, 0.1])
    assert stopped == [None]


def test_whatever_bytes_come_others_are_served_and_nothing_is_kept():
    @settings(max_examples=200)
    @given(
        st.lists(
            st.one_of(
                st.binary(max_size=200),
                st.builds(
                    lambda length, rest: length.to_bytes(4, "big") + rest,
                    st.integers(0, 300),
                    st.binary(max_size=300),
                ),
                st.builds(
                    lambda kind, header, body: encode_frame(kind, header, body),
                    st.integers(0, 255),
                    st.binary(max_size=60),
                    st.binary(max_size=20),
                ),
            ),
            max_size=8,
        )
    )
    def check(pieces):
        server = MemoryServer()
        with capturedLogs() as logs:
            hostile, other = server.connect(), server.connect()
            for piece in pieces:
                hostile.transport.write(piece)
                server.clock.advance(0)
            other.send(ECHO)
            server.clock.advance(0)
            assert len(other.responses) == 1
            hostile.transport.abortConnection()
            server.clock.advance(0)
        assert not any("log_failure" in event for event in logs)
        assert len(logs) <= 1
        assert server.used == 0

    check()


@pytest.mark.parametrize("code", [ECHO, HELD])
def test_a_client_that_leaves_is_forgotten(code):
    server = MemoryServer()
    peer = server.connect()
    peer.send(code, b"body")
    server.clock.advance(0)
    peer.transport.abortConnection()
    server.clock.advance(0)
    assert len(server.listener.connections) == 0
    for request, answer in server.held:
        answer.callback(request.response())
    assert server.used == 0
