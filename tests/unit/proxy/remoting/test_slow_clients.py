"""Clients that do not take what brokers answer them through a proxy."""

from twisted.internet.defer import Deferred

from rocketmq_tw.net.connection import ENOUGH_UNREAD
from rocketmq_tw.proxy.remoting.requests import ClassicRequests
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand, encode_command
from tests.support.classic import classic_request
from tests.support.memory_server import MemoryServer, RawClient
from tests.support.proxy import PlayedBrokers, heartbeat_sync_of, undelivered_pops

LIMIT = 4 * 1024 * 1024
PIECE = 100_000


class SlowPort:
    """A real server before played brokers that hold pulls until the test answers them."""

    def __init__(self) -> None:
        self.brokers = PlayedBrokers()
        self.server = MemoryServer(max_bytes_in_flight=LIMIT)
        self.held: list[tuple[RemotingCommand, Deferred[RemotingCommand]]] = []
        self.brokers.answer(RequestCode.PULL_MESSAGE, self._hold)
        self.brokers.answer(RequestCode.GET_MAX_OFFSET, lambda request: request.response())
        requests = ClassicRequests(
            self.brokers,
            self.server.clock,
            heartbeat_sync_of(self.server.clock, self.brokers),
            undelivered_pops(self.server.clock, self.brokers),
        )
        self.server.listener.serve(requests.handlers())

    def _hold(self, request: RemotingCommand) -> Deferred[RemotingCommand]:
        answer: Deferred[RemotingCommand] = Deferred()
        self.held.append((request, answer))
        return answer

    def pull(self, client: RawClient, count: int) -> None:
        requests = [
            classic_request(RequestCode.PULL_MESSAGE, bname="broker-a") for _ in range(count)
        ]
        client.transport.write(b"".join(map(encode_command, requests)))  # type: ignore[union-attr]
        self.server.clock.advance(0)

    def answer_all(self) -> None:
        held, self.held = self.held, []
        for request, answer in held:
            answer.callback(request.response(body=bytes(PIECE)))
        self.server.clock.advance(0)

    def is_served(self, client: RawClient) -> bool:
        """Whether a client gets an answer."""
        before = len(client.responses)
        request = classic_request(RequestCode.GET_MAX_OFFSET, bname="broker-a")
        client.transport.write(encode_command(request))  # type: ignore[union-attr]
        self.server.clock.advance(0)
        return [each.code for each in client.responses[before:]] == [ResponseCode.SUCCESS]


def test_a_client_that_does_not_read_has_no_more_passed_on() -> None:
    port = SlowPort()
    slow, other = port.server.connect(), port.server.connect()
    port.pull(slow, 1 + ENOUGH_UNREAD // PIECE)
    slow.transport.hold()
    port.answer_all()
    asked = len(port.brokers.asked)
    port.pull(slow, 50)
    assert len(port.brokers.asked) == asked
    assert port.is_served(other)
    slow.transport.let_go()
    for _ in range(20):
        port.server.clock.advance(0)
    assert len(slow.responses) == asked
    assert len(port.brokers.asked) == asked + 1 + 50, "the other one's, and what waited"


def test_a_client_that_has_asked_for_too_much_is_cut_off_and_others_are_served() -> None:
    port = SlowPort()
    slow, other = port.server.connect(), port.server.connect()
    port.pull(slow, 400)
    assert len(port.held) == 400
    slow.transport.hold()
    port.answer_all()
    assert port.server.used < LIMIT
    assert port.is_served(other)
    assert len(port.brokers.forgotten) == 1
    slow.transport.let_go()
    port.server.clock.advance(0)
    assert slow.lost


def test_what_a_client_waits_for_is_forgotten_with_it() -> None:
    port = SlowPort()
    client = port.server.connect()
    port.pull(client, 10)
    client.transport.loseConnection()
    port.server.clock.advance(0)
    assert len(port.brokers.forgotten) == 1
    port.answer_all()
    assert port.server.used == 0
