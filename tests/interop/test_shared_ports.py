"""Proxies that share their ports on one machine: each new connection comes to one of them."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import grpc
import pytest

from rocketmq_tw.net.address import split_address
from rocketmq_tw.proxy.http2.frames import HEADER_LENGTH, PREFACE, FrameType, make_frame
from rocketmq_tw.proxy.proto import messages as pb
from tests.support.cluster import OURS, Cluster
from tests.support.java_client import JavaClients
from tests.support.proxies import OurProxy, SharingProxy
from tests.support.wait import wait_until

STOCK = "5.3.3"
#: That all of them come to one of two processes has a chance of one in 2 ** 31.
CONNECTIONS = 32


class OtherReactor(OurProxy):
    """A proxy on Twisted's reactor for `select`."""

    def command(self) -> list[str]:
        command = super().command()
        return [
            *command[: command.index("-n")],
            "--reactor",
            "select",
            *command[command.index("-n") :],
        ]


class Site:
    """A broker, and two proxies at the same ports."""

    def __init__(self, home: Path, cluster: Cluster) -> None:
        names = cluster.name_servers[0].address
        self.cluster = cluster
        self.one = OurProxy(home / "one", names, sharePorts=True)
        self.other = SharingProxy(home / "other", names, self.one)
        #: It was not told that the ports are shared.
        self.stranger = SharingProxy(home / "stranger", names, self.one, shares=False)

    @property
    def address(self) -> str:
        return self.one.ports.grpc


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster.of(tmp_path, name_servers=[OURS], brokers=[OURS]))
        made = Site(tmp_path, cluster)
        stack.callback(made.other.close)
        stack.callback(made.one.close)
        made.one.start()
        made.other.start()
        yield made


def connect(address: str) -> socket.socket:
    """Returns a connection of HTTP/2 to one of the processes, which has answered."""
    connection = socket.create_connection(split_address(address), 30)
    connection.sendall(PREFACE + make_frame(FrameType.SETTINGS, 0, 0, b""))
    assert len(connection.recv(HEADER_LENGTH, socket.MSG_WAITALL)) == HEADER_LENGTH
    return connection


def ended(connections: Sequence[socket.socket]) -> int:
    """Returns how many of them their proxy's end has closed."""
    return sum(map(_has_ended, connections))


def _has_ended(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        while connection.recv(4096):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        pass
    return True


def test_connections_are_divided_and_come_to_the_other_when_one_dies(site: Site) -> None:
    with ExitStack() as stack:
        before = [stack.enter_context(connect(site.address)) for _ in range(CONNECTIONS)]
        assert not ended(before)
        site.one.kill()
        wait_until(lambda: ended(before), "the connections of the process that died to end")
        assert 0 < ended(before) < CONNECTIONS
        # Nobody is left alone with the port of a process that is no more.
        after = [stack.enter_context(connect(site.address)) for _ in range(CONNECTIONS)]
        assert not ended(after)


def test_clients_of_both_send_and_receive(site: Site, jvms, names) -> None:
    java: JavaClients = jvms[STOCK]
    topic = site.cluster.create_topic(java, names.topic, queues=4)
    for number in range(8):
        with grpc.insecure_channel(site.address) as channel:
            send = channel.unary_unary(
                "/apache.rocketmq.v2.MessagingService/SendMessage",
                request_serializer=pb.SendMessageRequest.SerializeToString,
                response_deserializer=pb.SendMessageResponse.FromString,
            )
            message = pb.Message(
                topic=pb.Resource(name=topic),
                system_properties=pb.SystemProperties(
                    message_id=f"id-{number}", message_type=pb.NORMAL
                ),
                body=str(number).encode(),
            )
            answer = send(
                pb.SendMessageRequest(messages=[message]),
                metadata=[("x-mq-client-id", f"client-{number}"), ("x-mq-language", "JAVA")],
                timeout=30,
            )
            assert answer.status.code == pb.OK
    with java.consumer(site.one.ports.classic, names.group, {topic: "*"}) as consumer:
        wait_until(lambda: len(consumer.received()) == 8, "all messages")
        assert sorted(consumer.bodies()) == [str(number) for number in range(8)]


def test_another_reactor_is_told_that_it_cannot(tmp_path: Path) -> None:
    with closing(OtherReactor(tmp_path, "127.0.0.1:9", sharePorts=True)) as proxy:
        proxy.launch()
        wait_until(lambda: not proxy.running, "the start to fail")
        assert "cannot start: sharePorts=true needs epoll" in proxy.log_text()


def test_a_proxy_that_does_not_share_is_told_that_the_port_is_taken(site: Site) -> None:
    site.stranger.launch()
    wait_until(lambda: not site.stranger.running, "the start to fail")
    assert "or give each proxy at it sharePorts=true" in site.stranger.log_text()
    site.stranger.close()
