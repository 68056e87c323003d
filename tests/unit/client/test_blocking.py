"""The blocking client against a server in a thread: real sockets on ports of the kernel."""

import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress

import pytest
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.client.blocking import BlockingClient
from rocketmq_tw.client.blocking_connection import ConnectionFailed
from rocketmq_tw.client.errors import BrokerError, NoRouteError
from rocketmq_tw.client.message import Message, PullStatus, SendStatus
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand, decode_command, encode_command
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.frame import FrameDecoder
from tests.support.broker import BrokerInMemory
from tests.support.name_server import NameServerInMemory
from tests.support.network import FakePeer, MemoryNetwork
from tests.support.ports import ReservedPort
from tests.support.static_topics import TOPIC, hosting, item


class ThreadedServer:
    """Answers by `ask(request, peer)`, one connection after the other's thread."""

    def __init__(self):
        self.ask = None
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._connections = []
        self.accepted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.accepted += 1
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        decoder, peer = FrameDecoder(), FakePeer()
        with connection, suppress(OSError):
            while data := connection.recv(65536):
                for command in map(decode_command, decoder.feed(data)):
                    self._answer(connection, command, peer)

    def _answer(self, connection, command, peer):
        response = self.ask(command, peer)
        if isinstance(response, RemotingCommand):
            connection.sendall(encode_command(response))

    def drop_connections(self):
        for connection in self._connections:
            # The client may have ended it with a reset.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._connections.clear()

    def close(self):
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.drop_connections()


class Cluster:
    """A name server and a broker with two queues of topic T, which answer on sockets, one request
    at a time; `handlers` are the broker's. There may be more brokers."""

    def __init__(self, **config):
        self.names_server = ThreadedServer()
        self._servers = [self.names_server]
        self._clock = clock = MemoryReactorClock()
        self._network = MemoryNetwork(clock)
        names = NameServerInMemory(clock)
        self._network.serve("10.0.0.1:9876", names.handlers)
        self._busy = busy = threading.Lock()
        self.broker = self.add_broker(**config)
        self.broker_server = self._servers[-1]
        self.handlers = self.broker.listener.handlers
        self.broker.add_topic("T", read_queue_nums=2, write_queue_nums=2)
        clock.advance(0)

        def ask_names(request, peer):
            try:
                with busy:
                    return names.handlers[request.code](request, peer)
            except RequestError as error:
                return request.response(error.code, error.remark)

        self.names_server.ask = ask_names

    def add_broker(self, **config):
        server = ThreadedServer()
        self._servers.append(server)
        broker = BrokerInMemory(
            clock=self._clock,
            network=self._network,
            address=server.address,
            broker={"namesrv_addr": "10.0.0.1:9876", **config},
        )

        def ask_broker(request, peer):
            with self._busy:
                return broker.request(request, peer)

        server.ask = ask_broker
        return broker

    def host(self, broker, queues, epoch):
        """Has a broker host logic queues of the static topic."""
        request = hosting(broker.config.broker_name, queues, epoch=epoch)
        with self._busy:
            assert broker.request(request).code == ResponseCode.SUCCESS
            self._clock.advance(1)

    def close(self):
        for server in self._servers:
            server.close()


@pytest.fixture
def cluster():
    cluster = Cluster(auto_create_topic_enable=False)
    yield cluster
    cluster.close()


@pytest.fixture
def client(cluster):
    with BlockingClient(cluster.names_server.address, group="g", timeout=60) as client:
        yield client


def test_what_is_sent_is_read(client):
    queue = client.queues("T")[0]
    sent = [client.send(Message("T", b"%d" % number), queue=queue) for number in range(3)]
    client.send_batch([Message("T", b"a"), Message("T", b"b")], queue=queue)
    assert [result.status for result in sent] == [SendStatus.SEND_OK] * 3
    assert (client.min_offset(queue), client.max_offset(queue)) == (0, 5)
    result = client.pull(queue, 1, max_messages=3)
    assert [message.body for message in result.messages] == [b"1", b"2", b"a"]
    assert (result.status, result.next_offset) == (PullStatus.FOUND, 4)
    assert result.messages[0].message_id == sent[1].message_id
    assert client.pull(queue, 5).status is PullStatus.NO_NEW_MESSAGE
    assert client.search_offset(queue, 0) == 0


def test_offsets_of_any_group(client):
    queue = client.queues("T")[1]
    assert client.committed_offset(queue) is None
    client.commit_offset(queue, 3)
    client.commit_offset(queue, 9, group="other")
    assert (client.committed_offset(queue), client.committed_offset(queue, "other")) == (3, 9)


def test_sends_take_turns(client):
    assert [client.send(Message("T", b"x")).queue.queue_id for _ in range(4)] == [0, 1, 0, 1]


def test_a_server_that_closes_before_a_word_may_want_tls():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"

        def refuse():
            connection, _ = listening.accept()
            connection.recv(1)
            connection.close()

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        with (
            BlockingClient(address, timeout=60) as plain,
            pytest.raises(NoRouteError, match="a server that takes TLS only"),
        ):
            plain.topics()
        thread.join()


def test_one_connection_serves_all_calls(client, cluster):
    for _ in range(10):
        client.send(Message("T", b"x"))
    assert (cluster.names_server.accepted, cluster.broker_server.accepted) == (1, 1)


def test_a_forked_process_shares_neither_connections_nor_ids(client, cluster, monkeypatch):
    sent = [client.send(Message("T", b"x")) for _ in range(2)]
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent ^ 1)
    sent += [client.send(Message("T", b"x")) for _ in range(2)]
    assert cluster.broker_server.accepted == 2
    series = [result.message_id[:-12] for result in sent]
    assert series[0] == series[1] != series[2] == series[3]


def test_a_read_goes_on_over_a_new_connection(client, cluster):
    queue = client.queues("T")[0]
    client.max_offset(queue)
    cluster.broker_server.drop_connections()
    assert client.max_offset(queue) == 0
    assert cluster.broker_server.accepted == 2


def test_a_chosen_queue_whose_connection_broke_is_told(client, cluster):
    queue = client.queues("T")[0]
    client.max_offset(queue)
    cluster.broker_server.drop_connections()
    with pytest.raises(ConnectionFailed, match=cluster.broker_server.address):
        client.send(Message("T", b"x"), queue=queue)
    assert client.send(Message("T", b"x"), queue=queue).status is SendStatus.SEND_OK


def test_silence_ends_at_the_timeout_with_the_address(cluster):
    cluster.handlers[RequestCode.GET_MAX_OFFSET] = lambda request, peer: None
    with BlockingClient(cluster.names_server.address, timeout=2) as client:
        queue = client.queues("T")[0]
        with pytest.raises(ConnectionFailed, match=f"{cluster.broker_server.address}: request 30"):
            client.max_offset(queue)


def test_notices_of_the_broker_are_passed_over(client, cluster):
    max_offset = cluster.handlers[RequestCode.GET_MAX_OFFSET]
    connections = cluster.broker_server._connections

    def with_notice(request, peer):
        notice = RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, oneway=True)
        connections[0].sendall(encode_command(notice))
        return max_offset(request, peer)

    cluster.handlers[RequestCode.GET_MAX_OFFSET] = with_notice
    assert client.max_offset(client.queues("T")[0]) == 0


def test_a_refusal_is_an_error(client, cluster):
    def refuse(request, peer):
        raise RequestError(ResponseCode.MESSAGE_ILLEGAL, "no")

    cluster.handlers[RequestCode.SEND_MESSAGE_V2] = refuse
    with pytest.raises(BrokerError, match="answered 13: no"):
        client.send(Message("T", b"x"))


@pytest.fixture
def dead():
    """An address that nobody listens on, nor takes meanwhile."""
    port = ReservedPort()
    yield port.address
    port.release()


def test_a_name_server_that_is_down_is_passed_over(cluster, dead):
    with BlockingClient(f"{dead};{cluster.names_server.address}") as client:
        assert len(client.queues("T")) == 2
    with pytest.raises(NoRouteError, match=dead):
        BlockingClient(dead).queues("T")


def test_a_name_server_that_answers_with_an_error_is_passed_over(cluster):
    refusing = ThreadedServer()
    refusing.ask = lambda request, peer: request.response(ResponseCode.SYSTEM_ERROR, "not ready")
    with BlockingClient(f"{refusing.address};{cluster.names_server.address}") as client:
        assert len(client.queues("T")) == 2
    with BlockingClient(refusing.address) as client, pytest.raises(BrokerError, match="not ready"):
        client.queues("T")
    refusing.close()


def test_an_illegal_group_is_told_at_once(cluster):
    with pytest.raises(RequestError, match="the group 'x y' has an illegal character"):
        BlockingClient(cluster.names_server.address, group="x y")


def test_an_unknown_topic_has_no_route(client):
    with pytest.raises(NoRouteError, match="NONE"):
        client.queues("NONE")


def test_a_topic_that_no_broker_has_or_makes(client):
    with pytest.raises(NoRouteError, match="start one, or create the topic NONE"):
        client.write_queues("NONE")


def test_a_topic_that_brokers_would_make():
    cluster = Cluster()
    with BlockingClient(cluster.names_server.address, group="g", timeout=60) as client:
        assert len(client.write_queues("NEW")) == 4
        assert client.send(Message("NEW", b"x")).status is SendStatus.SEND_OK
    cluster.close()


def test_a_chosen_queue_of_a_topic_that_is_not_there_yet_is_found_anew():
    """As after a failure of its first send: nothing else makes the topic."""
    made = Cluster(default_topic_queue_nums=8)
    try:
        with BlockingClient([made.names_server.address]) as client:
            queue = client.write_queues("new")[3]
            client.forget_routes()
            assert client.send(Message("new", b"first"), queue=queue).queue == queue
    finally:
        made.close()


class TestStaticTopics:
    @pytest.fixture
    def move(self, cluster):
        """Moves both queues from the first broker to a second one."""
        second = cluster.add_broker(broker_name="broker-b")
        first = {n: [item(0, "broker-a", n)] for n in (0, 1)}
        cluster.host(cluster.broker, first, epoch=1_000)

        def move():
            for logic in (-1, 10_000):
                moved = {n: [*first[n], item(1, "broker-b", n, logic)] for n in first}
                for broker in (second, cluster.broker):
                    cluster.host(broker, moved, epoch=2_000)

        return move

    def test_a_logic_queue_is_followed(self, client, move):
        queue, other = client.queues(TOPIC)
        assert (queue.broker_name, queue.queue_id, other.queue_id) == ("__syslo__global__", 0, 1)
        assert client.write_queues(TOPIC) == [queue, other]
        assert client.send(Message(TOPIC, b"before"), queue=queue).queue_offset == 0
        move()
        behind = client.send(Message(TOPIC, b"behind"), queue=queue)
        assert (behind.queue, behind.queue_offset) == (queue, 10_000)
        assert client.max_offset(queue) == 10_001
        client.commit_offset(queue, 10_001)
        assert client.committed_offset(queue) == 10_001

    def test_a_read_follows_too(self, client, move):
        queue, other = client.queues(TOPIC)
        client.send(Message(TOPIC, b"before"), queue=queue)
        move()
        assert client.max_offset(other) == 10_000
        (before,) = client.pull(queue, 0).messages
        client.send(Message(TOPIC, b"behind"), queue=queue)
        (behind,) = client.pull(queue, 10_000).messages
        assert [(each.queue, each.queue_offset) for each in (before, behind)] == [
            (queue, 0), (queue, 10_000)
        ]  # fmt: skip
        assert client.pull_bytes(queue, 10_000, 1).offset_delta == 10_000

    def test_sends_take_turns_behind_a_move(self, client, move):
        move()
        sent = [client.send(Message(TOPIC, b"x")) for _ in range(4)]
        assert sorted(result.queue_offset for result in sent) == [10_000, 10_000, 10_001, 10_001]

    def test_a_queue_that_nobody_leads(self, client, cluster, move):
        cluster.host(cluster.broker, {0: [item(0, "broker-a", 0)]}, epoch=3_000)
        lost = MessageQueue(topic=TOPIC, broker_name="__syslo__global__", queue_id=7)
        with pytest.raises(NoRouteError, match="leads queue 7 of the static topic"):
            client.max_offset(lost)


@pytest.mark.parametrize(
    "data", [b"\x7f\xff\xff\xff", b"\0\0\0\x08\0\0\0\x09abcd", b"\0\0\0\x05\0\0\0\x01{"]
)
def test_bytes_that_are_no_response_end_the_connection(client, cluster, data):
    def garbage(request, peer):
        cluster.broker_server._connections[-1].sendall(data)

    queue = client.queues("T")[0]
    cluster.handlers[RequestCode.GET_MAX_OFFSET] = garbage
    with pytest.raises(ConnectionFailed):
        client.max_offset(queue)


def test_the_module_needs_no_reactor():
    code = (
        "import sys, rocketmq_tw.client.blocking;"
        "sys.exit(any(name.partition('.')[0] == 'twisted' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
