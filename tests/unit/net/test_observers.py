"""What an observer of a listener is told of each request."""

import pytest
from twisted.logger import capturedLogs

from rocketmq_tw.net.interfaces import WRITTEN, ConnectionEvent, RequestResult
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from tests.support.memory_server import BIG, ECHO, HELD, LATER, MemoryServer

ONEWAY = 2
SUCCESS = ResponseCode.SUCCESS


def codes(result: RequestResult) -> tuple[int, int | None]:
    request_code, response_code, held, outcome = result
    assert not held
    return request_code, response_code if outcome == WRITTEN else None


class Observed:
    def __init__(self, **config):
        self.server = MemoryServer(**config)
        self.seen: list[tuple[RequestResult, float]] = []
        self.server.listener.observe(self.observe)
        self.client = self.server.connect()

    def observe(self, result: RequestResult, milliseconds: float) -> None:
        self.seen.append((result, milliseconds))

    def send(self, code: int, body: bytes = b"", opaque: int = 1, flag: int = 0) -> None:
        self.client.send(code, body, opaque, flag)
        self.server.clock.advance(0)

    def codes(self) -> list[tuple[int, int | None]]:
        """The request and response codes; None where no response was sent."""
        return [codes(result) for result, _ in self.seen]


@pytest.fixture
def observed() -> Observed:
    return Observed()


def test_an_answer_at_once(observed):
    observed.send(ECHO, b"body")
    assert observed.seen == [((ECHO, SUCCESS, False, WRITTEN), 0.0)]


@pytest.mark.parametrize("code", [HELD, LATER])
def test_an_answer_later(observed, code):
    observed.send(code)
    observed.server.clock.advance(1.5)
    assert observed.seen == []
    for request, answer in observed.server.held:
        answer.callback(request.response(ResponseCode.PULL_NOT_FOUND))
    for request, peer in observed.server.later:
        peer.reply(request.response(ResponseCode.PULL_NOT_FOUND))
    assert observed.codes() == [(code, ResponseCode.PULL_NOT_FOUND)]
    assert observed.seen[0][1] == 1500


@pytest.mark.parametrize("code", [ECHO, HELD, LATER])
def test_a_oneway_request(observed, code):
    observed.send(code, flag=ONEWAY)
    observed.server.clock.advance(1)
    for _, answer in observed.server.held:
        answer.callback(None)
    for request, peer in observed.server.later:
        peer.reply(request.response())
    assert observed.codes() == [(code, None)]
    assert observed.seen[0][1] == (0 if code == ECHO else 1000)


def test_refusals_and_failures(observed):
    def refuse(request, peer):
        raise RequestError(ResponseCode.NO_PERMISSION, "no")

    async def fail(request, peer):
        raise KeyError("broken")

    observed.server.listener.register(5, refuse)
    observed.server.listener.register(6, fail)
    with capturedLogs():
        for code in (5, 6, 7):
            observed.send(code)
    assert observed.codes() == [
        (5, ResponseCode.NO_PERMISSION),
        (6, ResponseCode.SYSTEM_ERROR),
        (7, ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
    ]


def test_what_is_turned_away_for_its_size():
    observed = Observed(max_bytes_in_flight=1000, frame_max_length=50_000)
    observed.send(BIG)
    observed.send(LATER)
    observed.send(ECHO, opaque=2)
    assert observed.codes() == [
        (BIG, ResponseCode.SYSTEM_ERROR),
        (ECHO, ResponseCode.SYSTEM_BUSY),
    ]


def test_several_that_come_at_once_and_end_in_another_order(observed):
    for opaque, code in enumerate((LATER, ECHO, LATER, LATER)):
        observed.client.send(code, bytes(opaque), opaque=opaque % 2)
    observed.server.clock.advance(0)
    for request, peer in reversed(observed.server.later):
        observed.server.clock.advance(1)
        peer.reply(request.response())
    assert observed.codes() == [(ECHO, SUCCESS)] + [(LATER, SUCCESS)] * 3
    assert [milliseconds for _, milliseconds in observed.seen] == [0, 1000, 2000, 3000]


@pytest.mark.parametrize("code", [HELD, LATER])
def test_a_connection_that_is_lost_ends_its_requests(observed, code):
    observed.send(code)
    observed.client.transport.abortConnection()
    observed.server.clock.advance(0)
    assert observed.codes() == [(code, None)]
    for request, answer in observed.server.held:
        answer.callback(request.response())
    for request, peer in observed.server.later:
        peer.reply(request.response())
    assert len(observed.seen) == 1


def test_connections_that_were_there_before_are_observed_as_before(observed):
    late: list[tuple[int, int | None]] = []
    observed.server.listener.observe(lambda result, _: late.append(codes(result)))
    observed.send(ECHO)
    client = observed.server.connect()
    client.send(ECHO)
    observed.server.clock.advance(0)
    assert observed.codes() == late == [(ECHO, SUCCESS)]


def test_one_that_fails_does_not_disturb_the_answer(observed):
    def fail(result, milliseconds):
        raise KeyError("broken")

    observed.server.listener.observe(fail)
    client = observed.server.connect()
    with capturedLogs() as logs:
        client.send(ECHO)
        observed.server.clock.advance(0)
    assert len(client.responses) == 1
    assert len([event for event in logs if "log_failure" in event]) == 1


def test_one_listener_is_observed_and_the_other_is_not(observed):
    other = observed.server.server.listener()
    observed.server.serve(other, "10.0.0.1:10921")
    client = observed.server.connect("10.0.0.1:10921")
    client.send(ECHO)
    observed.server.clock.advance(0)
    assert len(client.responses) == 1 and observed.seen == []


@pytest.fixture
def events(observed) -> list[ConnectionEvent]:
    seen: list[ConnectionEvent] = []
    observed.server.listener.observe_connections(seen.append)
    observed.client = observed.server.connect()
    assert seen == [ConnectionEvent.CONNECT]
    return seen


def test_a_connection_that_its_client_closes(observed, events):
    observed.client.transport.loseConnection()
    observed.server.clock.advance(0)
    assert events[1:] == [ConnectionEvent.CLOSE]


def test_a_connection_that_breaks(observed, events):
    observed.client.transport.abortConnection()
    observed.server.clock.advance(0)
    assert events[1:] == [ConnectionEvent.EXCEPTION, ConnectionEvent.CLOSE]


def test_a_connection_on_which_nothing_comes(observed, events):
    observed.server.clock.pump([5.0] * 26)
    assert events[1:] == [ConnectionEvent.IDLE, ConnectionEvent.CLOSE]
