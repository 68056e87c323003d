"""What an observer of a listener is told of each request."""

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs

from rocketmq_tw.net.interfaces import ServedRequest
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand, encode_command
from rocketmq_tw.wire.errors import RequestError
from tests.support.memory_server import BIG, ECHO, HELD, LATER, MemoryServer

ONEWAY = 2
SUCCESS = ResponseCode.SUCCESS


class Observed:
    def __init__(self, **config):
        self.server = MemoryServer(**config)
        self.client = self.server.connect()
        self.seen: list[ServedRequest] = []
        self.end = self.server.listener.observe(self.seen.append)

    def send(self, code: int, body: bytes = b"", opaque: int = 1, flag: int = 0) -> None:
        self.client.send(code, body, opaque, flag)
        self.server.clock.advance(0)

    def codes(self) -> list[tuple[int, int | None]]:
        return [(request.code, request.response_code) for request in self.seen]


@pytest.fixture
def observed() -> Observed:
    return Observed()


def test_an_answer_at_once(observed):
    observed.send(ECHO, b"body")
    (request,) = observed.seen
    asked = encode_command(RemotingCommand(ECHO, body=b"body", opaque=1))
    (response,) = observed.client.responses
    assert request[:5] == (ECHO, SUCCESS, len(asked), len(encode_command(response)), 0.0)
    assert request.peer.address.startswith("10.0.0.9:")


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
    assert observed.seen[0].seconds == 1.5


@pytest.mark.parametrize("code", [ECHO, HELD, LATER])
def test_a_oneway_request(observed, code):
    observed.send(code, flag=ONEWAY)
    observed.server.clock.advance(1)
    for _, answer in observed.server.held:
        answer.callback(None)
    for request, peer in observed.server.later:
        peer.reply(request.response())
    assert observed.codes() == [(code, None)]
    assert observed.seen[0].response_bytes == 0
    assert observed.seen[0].seconds == (0 if code == ECHO else 1)


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
        peer.reply(request.response())
    assert observed.codes() == [(ECHO, SUCCESS)] + [(LATER, SUCCESS)] * 3
    sizes = [request.request_bytes for request in observed.seen]
    assert sizes[1] - sizes[2] == 1 and sizes[2] - sizes[3] == 2


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


def test_whoever_comes_late_or_leaves_early_is_told_of_nothing_else(observed):
    observed.send(LATER)
    late: list[ServedRequest] = []
    end_late = observed.server.listener.observe(late.append)
    observed.send(LATER, opaque=2)
    observed.end()
    observed.end()
    observed.send(LATER, opaque=3)
    for request, peer in observed.server.later:
        peer.reply(request.response())
    assert observed.seen == []
    assert [request.code for request in late] == [LATER] * 3
    end_late()
    observed.send(ECHO)
    assert len(late) == 3


def test_one_that_fails_disturbs_neither_the_answer_nor_the_others(observed):
    def fail(request):
        raise KeyError("broken")

    end = observed.server.listener.observe(fail)
    again: list[ServedRequest] = []
    observed.server.listener.observe(again.append)
    with capturedLogs() as logs:
        observed.send(ECHO)
    assert len(observed.client.responses) == len(observed.seen) == len(again) == 1
    assert len([event for event in logs if "log_failure" in event]) == 1
    end()


def test_one_listener_is_observed_and_the_other_is_not(observed):
    other = observed.server.server.listener()
    observed.server.serve(other, "10.0.0.1:10921")
    client = observed.server.connect("10.0.0.1:10921")
    client.send(ECHO)
    observed.server.clock.advance(0)
    assert len(client.responses) == 1 and observed.seen == []


def test_a_coroutine_that_was_there_before_is_answered_as_ever(observed):
    waiting: Deferred[None] = Deferred()

    async def later(request, peer):
        await waiting
        return request.response()

    observed.end()
    observed.server.listener.register(5, later)
    observed.send(5)
    observed.server.listener.observe(observed.seen.append)
    waiting.callback(None)
    observed.server.clock.advance(0)
    assert len(observed.client.responses) == 1 and observed.seen == []
