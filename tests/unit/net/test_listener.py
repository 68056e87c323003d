"""Several listeners on one server: what is theirs, and what they share."""

import pytest
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import capturedLogs
from zope.interface.verify import verifyObject

from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.net.interfaces import IListener, IRemotingServer
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from tests.support.memory_server import ADDRESS, ECHO, HELD, LATER, MemoryServer

OTHER = "10.0.0.1:10921"


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer(max_connections=3, max_bytes_in_flight=10_000)


@pytest.fixture
def other(server):
    listener = server.server.listener()
    server.serve(listener, OTHER)
    listener.register(ECHO, lambda request, peer: request.response(remark="the other one"))
    return listener


def test_a_listener_is_what_the_interfaces_say(server):
    assert verifyObject(IListener, server.listener)
    assert verifyObject(IRemotingServer, server.server)


def test_each_answers_a_code_in_its_own_way(server, other):
    clients = [server.connect(), server.connect(OTHER)]
    for client in clients:
        client.send(ECHO)
    server.clock.advance(0)
    assert [client.responses[0].remark for client in clients] == [None, "the other one"]


def test_a_check_before_requests_is_for_its_own_listener(server):
    def nobody(request, peer):
        raise RequestError(ResponseCode.NO_PERMISSION, "nobody")

    guarded = server.server.listener(before_request=[nobody])
    server.serve(guarded, OTHER)
    clients = [server.connect(), server.connect(OTHER)]
    for client in clients:
        client.send(ECHO)
    server.clock.advance(0)
    codes = [client.responses[0].code for client in clients]
    assert codes == [ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION]


def test_one_stops_and_the_other_goes_on(server, other):
    staying, leaving, waiting = server.connect(), server.connect(OTHER), server.connect(OTHER)
    waiting.send(HELD)
    server.clock.advance(0)
    stopped = []
    other.stop().addCallback(stopped.append)
    server.clock.advance(0.1)
    assert leaving.lost and not waiting.lost and not stopped
    request, answer = server.held[0]
    answer.callback(request.response())
    server.clock.advance(0.1)
    assert waiting.lost and len(waiting.responses) == 1 and stopped == [None]
    staying.send(ECHO)
    server.clock.advance(0)
    assert len(staying.responses) == 1
    server.clock.pump([10] * 13)
    assert staying.lost, "it is still looked after"


def test_the_server_stops_all_of_them(server, other):
    clients = [server.connect(), server.connect(OTHER)]
    other.stop()
    server.clock.advance(0.1)
    stopped = []
    server.server.stop().addCallback(stopped.append)
    server.clock.advance(0.1)
    assert all(client.lost for client in clients) and stopped == [None]
    assert server.clock.getDelayedCalls() == []


def test_they_share_the_limit_of_connections(server, other):
    kept = [server.connect(), server.connect(OTHER), server.connect(OTHER)]
    with capturedLogs() as logs:
        refused = [server.connect(), server.connect(OTHER)]
    assert all(outcome.check(ConnectionRefusedError) for outcome in refused)
    assert len(logs) == 1
    kept[1].transport.loseConnection()
    server.clock.advance(0)
    server.connect().send(ECHO)
    server.clock.advance(0)
    assert server.served == 1


def test_they_share_the_bytes_in_flight(server, other):
    first, second = server.connect(), server.connect(OTHER)
    first.send(HELD, bytes(10_001))
    server.clock.advance(0)
    second.send(ECHO, bytes(2_500))
    server.clock.advance(0)
    assert [response.code for response in second.responses] == [ResponseCode.SYSTEM_BUSY]


def test_what_one_gathers_leaves_in_one_piece_for_both(server, other):
    for address in (ADDRESS, OTHER):
        client = server.connect(address)
        for opaque in range(2):
            client.send(LATER, opaque=opaque)
    server.clock.advance(0)
    written = []
    for far in server.network.ends("10.0.0.1"):
        far.write = written.append
    other.gather(lambda: [peer.reply(request.response()) for request, peer in server.later])
    assert len(server.later) == 4 and len(written) == 2


def test_ports_close_before_connections_where_that_is_asked():
    reactor = MemoryReactorClock()
    config = NettyServerConfig(bind_address="127.0.0.1", listen_port=10911)
    listener = RemotingServer(reactor, config).listener()
    listener.listen()
    closed = listener.stop_listening()
    assert closed.called
    outcome = []
    listener.stop().addCallback(outcome.append)
    assert outcome == [None]
