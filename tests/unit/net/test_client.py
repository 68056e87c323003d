import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from rocketmq_tw.config.net import NettyClientConfig
from rocketmq_tw.net.client import RemotingClient
from rocketmq_tw.net.errors import ConnectError, ConnectionLost, RequestTimeout
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.network import MemoryNetwork

ADDRESS = "10.0.0.1:10911"


class World:
    def __init__(self):
        self.clock = Clock()
        self.network = MemoryNetwork(self.clock)
        self.client = self.network.client(config=NettyClientConfig())
        self.start()

    def start(self):
        self.network.serve(
            ADDRESS, {1: lambda request, peer: request.response(), 2: lambda request, peer: None}
        )

    def request(self, code=1, timeout=3.0, address=ADDRESS):
        outcome = []
        self.client.request(address, RemotingCommand.request(code), timeout).addBoth(outcome.append)
        self.clock.advance(0)
        return outcome


@pytest.fixture
def world():
    return World()


def test_requests_to_one_address_share_a_connection(world):
    for _ in range(3):
        assert world.request()[0].code == 0
    assert world.network.made == 1


def test_a_refused_connection_names_the_address(world):
    outcome = world.request(address="10.0.0.2:10911")
    assert outcome[0].check(ConnectError)
    assert str(outcome[0].value).startswith("10.0.0.2:10911: cannot connect")


@pytest.mark.parametrize("address", ["nonsense", "host:", "host:port", "host:0", ":1", "h:99999"])
def test_what_is_no_address_fails_with_its_text(address):
    outcome = []
    client = RemotingClient(Clock())
    client.request(address, RemotingCommand.request(1), 3).addErrback(outcome.append)
    assert outcome[0].check(ConnectError)
    assert address in str(outcome[0].value)


def test_a_lost_connection_is_made_again_by_the_next_request(world):
    waiting = world.request(code=2)
    world.network.stop(ADDRESS)
    world.clock.advance(0)
    assert waiting[0].check(ConnectionLost)
    assert ADDRESS in str(waiting[0].value)
    world.start()
    assert world.request()[0].code == 0
    assert world.network.made == 2


def test_a_request_that_fails_with_its_connection_may_be_repeated_at_once(world):
    repeated = []

    def drop(request, peer):
        peer.lose_connection()
        return Deferred()

    def again(failure):
        failure.trap(ConnectionLost)
        return world.client.request(ADDRESS, RemotingCommand.request(1), 3.0)

    world.network.stop(ADDRESS)
    world.network.serve(ADDRESS, {1: lambda request, peer: request.response(), 2: drop})
    asked = world.client.request(ADDRESS, RemotingCommand.request(2), 3.0)
    asked.addErrback(again).addBoth(repeated.append)
    world.clock.advance(0)
    assert repeated[0].code == 0
    assert world.network.made == 2


def test_after_a_failed_attempt_the_next_waits_for_the_back_off(world):
    world.network.stop(ADDRESS)
    assert world.request()[0].check(ConnectError)
    world.start()
    assert world.request()[0].check(ConnectError), "too soon"
    world.clock.advance(0.1)
    assert world.request()[0].code == 0


def test_a_request_times_out_with_the_address(world):
    outcome = world.request(code=2, timeout=1.5)
    world.clock.advance(1.5)
    assert outcome[0].check(RequestTimeout)
    assert "1.5 s" in str(outcome[0].value) and ADDRESS in str(outcome[0].value)


def test_idle_connections_are_closed_and_made_again(world):
    world.request()
    (near,) = world.network.ends("127.0.0.1")
    world.clock.pump([30] * 5)
    assert near.disconnected
    assert world.request()[0].code == 0


def test_a_connection_with_a_waiting_request_is_not_idle(world):
    outcome = world.request(code=2, timeout=1000)
    world.clock.pump([30] * 10)
    assert outcome == []


def test_oneway_requests_are_handed_over(world):
    outcome = []
    world.client.send_oneway(ADDRESS, RemotingCommand.request(1)).addCallback(outcome.append)
    assert outcome == [None]
    world.clock.advance(0)
    assert world.request()[0].code == 0


def test_signers_see_every_request_with_its_address():
    signed = []
    clock = Clock()
    client = RemotingClient(
        clock,
        endpoint_for=lambda address: Hanging([]),
        before_send=[lambda command, address: signed.append((command.code, address))],
    )
    client.request(ADDRESS, RemotingCommand.request(7), 3).addErrback(lambda _: None)
    client.send_oneway(ADDRESS, RemotingCommand.request(8)).addErrback(lambda _: None)
    assert signed == [(7, ADDRESS), (8, ADDRESS)]
    client.close()


class Hanging:
    """An endpoint whose attempts end when the test says so."""

    def __init__(self, attempts):
        self.attempts = attempts

    def connect(self, factory):
        attempt = Deferred()
        self.attempts.append((factory, attempt))
        return attempt


class TestWhileConnecting:
    @pytest.fixture
    def hanging(self):
        clock, attempts = Clock(), []
        client = RemotingClient(clock, endpoint_for=lambda address: Hanging(attempts))
        return clock, client, attempts

    def ask(self, client, timeout=3.0):
        outcome = []
        client.request(ADDRESS, RemotingCommand.request(1), timeout).addBoth(outcome.append)
        return outcome

    def test_callers_share_the_attempt_and_its_failure(self, hanging):
        _, client, attempts = hanging
        outcomes = [self.ask(client) for _ in range(5)]
        assert len(attempts) == 1
        attempts[0][1].errback(OSError("no route"))
        assert all(outcome[0].check(ConnectError) for outcome in outcomes)
        assert "no route" in str(outcomes[0][0].value)

    def test_an_attempt_ends_at_the_connect_timeout(self, hanging):
        clock, client, _ = hanging
        outcome = self.ask(client, timeout=30)
        clock.advance(2.9)
        assert outcome == []
        clock.advance(0.1)
        assert outcome[0].check(ConnectError)

    def test_a_request_ends_at_its_own_timeout(self, hanging):
        clock, client, _ = hanging
        outcome = self.ask(client, timeout=1)
        clock.advance(1)
        assert outcome[0].check(RequestTimeout)

    def test_a_closed_client_fails_who_waits_and_who_comes(self, hanging):
        clock, client, _ = hanging
        waiting = self.ask(client)
        closed = []
        client.close().addCallback(closed.append)
        assert waiting[0].check(ConnectError) and closed == [None]
        assert "closed" in str(self.ask(client)[0].value)
        assert clock.getDelayedCalls() == []


def test_close_ends_all_connections(world):
    world.request()
    closed = []
    world.client.close().addCallback(closed.append)
    world.clock.advance(0)
    assert closed == [None]
    assert not world.network.ends("127.0.0.1")
    assert world.clock.getDelayedCalls() == []
