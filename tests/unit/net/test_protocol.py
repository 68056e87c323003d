import gc
import weakref

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import capturedLogs
from twisted.python.failure import Failure

from rocketmq_tw.net.checks import RequestChecks
from rocketmq_tw.net.errors import ConnectionLost, RequestTimeout
from rocketmq_tw.net.protocol import RemotingProtocol
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import (
    RemotingCommand,
    SerializeType,
    decode_command,
    encode_command,
)
from rocketmq_tw.wire.errors import RequestError, WireError
from rocketmq_tw.wire.frame import FrameDecoder
from rocketmq_tw.wire.headers.base import Header
from tests.support.interpreter import free_as_cpython_has
from tests.support.network import MemoryNetwork

ECHO, REFUSE, BREAK, BAD_BODY, LATE, SELF, COROUTINE, NEEDS_HEADER = range(1, 9)


class Needed(Header):
    queue_id: int


class Connection:
    """A protocol on a StringTransport, with handlers for each way to answer."""

    def __init__(self, **options):
        self.clock = Clock()
        self.late: list[tuple[RemotingCommand, Deferred]] = []
        self.peers = []
        handlers = {
            ECHO: lambda request, peer: request.response(body=request.body),
            REFUSE: self.refuse,
            BREAK: lambda request, peer: {}["missing"],
            BAD_BODY: self.bad_body,
            LATE: self.answer_late,
            SELF: lambda request, peer: self.peers.append((request, peer)),
            COROUTINE: self.coroutine,
            NEEDS_HEADER: lambda request, peer: request.header(Needed),
        }
        self.protocol = RemotingProtocol(self.clock, handlers, **options)
        self.transport = StringTransport()
        self.protocol.makeConnection(self.transport)

    def refuse(self, request, peer):
        raise RequestError(ResponseCode.NO_PERMISSION, "the topic is read-only")

    def bad_body(self, request, peer):
        raise WireError("no JSON at byte 3")

    def answer_late(self, request, peer):
        answer = Deferred()
        self.late.append((request, answer))
        return answer

    async def coroutine(self, request, peer):
        await Deferred.fromCoroutine(self.nothing())
        return request.response(remark="from a coroutine")

    async def nothing(self):
        return None

    def send(self, *commands):
        self.protocol.dataReceived(b"".join(map(encode_command, commands)))

    def sent(self):
        commands = [decode_command(frame) for frame in FrameDecoder().feed(self.transport.value())]
        self.transport.clear()
        return commands


@pytest.fixture
def connection():
    return Connection()


def request(code, opaque=7, **rest):
    return RemotingCommand(code, opaque=opaque, **rest)


@pytest.mark.parametrize("serialization", SerializeType)
def test_a_response_has_the_opaque_and_the_serialisation_of_its_request(connection, serialization):
    connection.send(request(ECHO, body=b"hello", serialization=serialization))
    (response,) = connection.sent()
    assert response.is_response
    assert (response.opaque, response.serialization) == (7, serialization)
    assert response.body == b"hello"


def test_a_burst_is_answered_in_order(connection):
    connection.send(*(request(ECHO, opaque) for opaque in range(100)))
    assert [response.opaque for response in connection.sent()] == list(range(100))
    assert connection.protocol.unanswered == 0


@pytest.mark.parametrize("serialization", SerializeType)
def test_an_answer_too_large_for_a_frame_is_told_and_the_connection_goes_on(serialization):
    connection = Connection(frame_limit=1000)
    asked = [request(SELF, opaque, serialization=serialization) for opaque in (1, 2, 3)]
    connection.send(*asked, request(LATE, 4, serialization=serialization))
    for (command, peer), size in zip(connection.peers, (1000, 10, 1001), strict=True):
        fixed = len(encode_command(command.response()))
        peer.reply(command.response(body=bytes(max(size - fixed, 0))))
    connection.late[0][1].callback(connection.late[0][0].response(remark="x" * (1 << 24)))
    answers = connection.sent()
    assert [(answer.opaque, answer.code) for answer in answers] == [(1, 0), (2, 0), (3, 1), (4, 1)]
    assert "1001 bytes, and frames may have 1000" in answers[2].remark
    assert answers[3].remark.startswith("the answer cannot be sent: ")
    assert connection.protocol.unanswered == 0 and connection.protocol.connected


def test_a_request_may_come_byte_by_byte(connection):
    for byte in encode_command(request(ECHO, body=b"slowly")):
        assert connection.transport.value() == b""
        connection.protocol.dataReceived(bytes([byte]))
    assert connection.sent()[0].body == b"slowly"


@pytest.mark.parametrize(
    ("code", "answer", "remark"),
    [
        (REFUSE, ResponseCode.NO_PERMISSION, "the topic is read-only"),
        (99, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "request code 99"),
        (BAD_BODY, ResponseCode.SYSTEM_ERROR, "no JSON at byte 3"),
        (NEEDS_HEADER, ResponseCode.SYSTEM_ERROR, "queueId"),
    ],
)
def test_what_is_wrong_with_a_request_is_told_and_not_logged(connection, code, answer, remark):
    with capturedLogs() as logs:
        connection.send(request(code), request(ECHO, 8))
    refusal, echo = connection.sent()
    assert (refusal.code, refusal.opaque) == (answer, 7)
    assert remark in refusal.remark
    assert echo.code == ResponseCode.SUCCESS
    assert logs == []


def test_a_handler_that_breaks_is_logged_once_and_the_connection_goes_on(connection):
    with capturedLogs() as logs:
        connection.send(request(BREAK), request(ECHO, 8))
    failed, echo = connection.sent()
    assert failed.code == ResponseCode.SYSTEM_ERROR and "KeyError" in failed.remark
    assert echo.code == ResponseCode.SUCCESS
    assert len(logs) == 1 and logs[0]["log_failure"].check(KeyError)


@pytest.mark.parametrize("code", [ECHO, REFUSE, BREAK, 99, COROUTINE])
def test_a_oneway_request_is_never_answered(connection, code):
    with capturedLogs():
        connection.send(request(code, flag=2))
    assert connection.sent() == []
    assert connection.protocol.unanswered == 0


def test_a_oneway_request_answered_later_stays_unanswered(connection):
    connection.send(request(LATE, flag=2), request(SELF, flag=2))
    original, answer = connection.late[0]
    answer.callback(original.response())
    original, peer = connection.peers[0]
    peer.reply(original.response())
    assert connection.sent() == []


def test_a_deferred_answers_when_it_fires(connection):
    connection.send(request(LATE, 1), request(LATE, 2))
    assert connection.sent() == [] and connection.protocol.unanswered == 2
    for original, answer in reversed(connection.late):
        answer.callback(original.response())
    assert [response.opaque for response in connection.sent()] == [2, 1]
    assert connection.protocol.unanswered == 0


def test_a_deferred_that_fails_is_a_refusal(connection):
    connection.send(request(LATE))
    connection.late[0][1].errback(RequestError(ResponseCode.SYSTEM_BUSY, "later"))
    assert connection.sent()[0].code == ResponseCode.SYSTEM_BUSY


def test_a_coroutine_answers(connection):
    connection.send(request(COROUTINE))
    assert connection.sent()[0].remark == "from a coroutine"


def test_a_handler_may_reply_by_itself(connection):
    connection.send(request(SELF))
    original, peer = connection.peers[0]
    assert peer is connection.protocol
    peer.reply(original.response(remark="held for a while"))
    assert connection.sent()[0].remark == "held for a while"


def test_a_check_refuses_before_the_handler():
    def nobody(command, peer):
        raise RequestError(ResponseCode.NO_PERMISSION, f"{peer.address} is not known here")

    connection = Connection(checks=RequestChecks([nobody]))
    connection.send(request(SELF))
    assert connection.peers == []
    assert connection.sent()[0].code == ResponseCode.NO_PERMISSION


BAD_FRAMES = {
    "negative length": b"\xff\xff\xff\xff",
    "oversize length": b"\x7f\xff\xff\xff",
    "length below its header": b"\x00\x00\x00\x03",
    "header longer than the frame": b"\x00\x00\x00\x08\x00\x00\x00\x09abcd",
    "broken JSON": b"\x00\x00\x00\x08\x00\x00\x00\x04{{{{",
    "wrong serialisation": b"\x00\x00\x00\x08\x09\x00\x00\x04{}  ",
    "binary header cut short": b"\x00\x00\x00\x08\x01\x00\x00\x04\x00\x01\x02\x03",
}


@pytest.mark.parametrize("data", BAD_FRAMES.values(), ids=BAD_FRAMES)
def test_bytes_that_are_no_command_close_the_connection_with_one_line(connection, data):
    with capturedLogs() as logs:
        connection.send(request(ECHO))
        connection.protocol.dataReceived(data)
    assert len(connection.sent()) == 1, "what came before is answered"
    assert connection.transport.disconnecting
    assert len(logs) == 1
    assert logs[0]["address"] == connection.protocol.address


def test_an_oversize_length_is_refused_at_its_fourth_byte(connection):
    with capturedLogs():
        connection.protocol.dataReceived(b"\x01\x00\x00")
        assert not connection.transport.disconnecting
        connection.protocol.dataReceived(b"\x00")
    assert connection.transport.disconnecting


def test_a_closed_connection_that_lingers_is_cut(connection):
    connection.protocol.lose_connection()
    connection.clock.advance(5)
    assert connection.transport.disconnected


class TestBothEnds:
    """Requests in both directions of one connection."""

    @pytest.fixture
    def ends(self):
        clock = Clock()
        network = MemoryNetwork(clock)
        met = []
        network.serve("10.0.0.1:10911", {1: lambda request, peer: met.append(peer)})
        client = network.client("10.0.0.9")
        client.register(40, lambda request, peer: request.response(remark="rebalanced"))
        client.send_oneway("10.0.0.1:10911", RemotingCommand.request(1))
        network.settle()
        return network, client, met[0]

    def test_a_server_asks_its_client(self, ends):
        network, _, peer = ends
        outcome = []
        peer.request(RemotingCommand.request(40), 3).addCallback(outcome.append)
        network.settle()
        assert outcome[0].remark == "rebalanced"

    def test_addresses(self, ends):
        _, _, peer = ends
        assert peer.address.startswith("10.0.0.9:")
        assert peer.local_address == "10.0.0.1:10911"

    def test_a_lost_link_fails_requests_and_tells_listeners_once(self, ends):
        network, _, peer = ends
        outcome, lost = [], []
        peer.when_lost(lost.append)
        network.ends("10.0.0.9")[0].hold()
        peer.request(RemotingCommand.request(40), 3).addErrback(outcome.append)
        network.stop("10.0.0.1:10911")
        network.settle()
        assert outcome[0].check(ConnectionLost)
        assert lost == [peer] and not peer.connected
        peer.when_lost(lost.append)
        assert lost == [peer, peer], "a late listener is told at once"

    def test_a_request_to_a_lost_peer_fails_at_once(self, ends):
        network, _, peer = ends
        network.stop("10.0.0.1:10911")
        network.settle()
        outcome = []
        peer.request(RemotingCommand.request(40), 3).addErrback(outcome.append)
        assert outcome[0].check(ConnectionLost)
        peer.reply(RemotingCommand(0))
        peer.send_oneway(RemotingCommand.request(40))

    def test_a_request_that_cannot_be_sent_waits_for_nothing(self, ends):
        _, _, peer = ends
        command = RemotingCommand.request(ECHO)
        command.ext_fields["key"] = "x" * (1 << 24)
        with pytest.raises(WireError):
            peer.request(command, 3)
        assert peer.waiting == 0

    def test_a_silent_client_times_out(self, ends):
        network, _, peer = ends
        outcome = []
        network.ends("10.0.0.9")[0].hold()
        peer.request(RemotingCommand.request(40), 3).addErrback(outcome.append)
        network.clock.advance(3)
        assert outcome[0].check(RequestTimeout)


def test_a_lost_connection_needs_no_garbage_collector():
    connection = Connection()
    connection.send(request(ECHO))
    protocol = connection.protocol
    protocol.when_lost(lambda _, kept=protocol: None)
    protocol.request(RemotingCommand.request(40), 3).addErrback(lambda failure: None)
    lost = weakref.ref(protocol)
    gc.disable()
    try:
        protocol.lose_connection()
        protocol.connectionLost(Failure(ConnectionDone()))
        connection.transport.protocol = connection.protocol = connection.peers = None
        del protocol
        free_as_cpython_has()
        assert lost() is None, gc.get_referrers(lost())
    finally:
        gc.enable()
