"""A blocking connection that speaks the remoting protocol, for probes and loads from tests."""

from __future__ import annotations

import socket
from typing import Any

from rocketmq_tw.message.names import AUTO_CREATE_TOPIC
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand, decode_command, encode_command
from rocketmq_tw.wire.frame import Frame, FrameDecoder
from rocketmq_tw.wire.headers.offsets import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
)
from rocketmq_tw.wire.headers.topics import CreateTopicRequestHeader
from rocketmq_tw.wire.permissions import READ, WRITE
from tests.support.running import Closing
from tests.support.wait import PeerFailed

#: Of a server that answers at all; one that is gone is noticed at once.
DEFAULT_TIMEOUT = 60.0


class Connection(Closing):
    """One connection to `host:port`; requests may be pipelined with `send` and `receive`."""

    def __init__(self, address: str, timeout: float = DEFAULT_TIMEOUT) -> None:
        host, port = address.rsplit(":", 1)
        self.address = address
        self._socket = socket.create_connection((host, int(port)), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = FrameDecoder()
        self._frames: list[Frame] = []

    def send(self, *commands: RemotingCommand) -> None:
        """Sends the commands with one call; raises `OSError` where the peer is gone."""
        self._socket.sendall(b"".join(map(encode_command, commands)))

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> RemotingCommand:
        """The next command from the peer; raises `ConnectionError` or `TimeoutError`."""
        while not self._frames:
            data = self._socket.recv(1 << 18)
            if not data:
                raise ConnectionError(f"{self.address} closed the connection")
            self._frames = self._decoder.feed(data)
        return decode_command(self._frames.pop(0))

    def request(self, command: RemotingCommand) -> RemotingCommand:
        """The response to `command`; what else arrives meanwhile is dropped."""
        self.send(command)
        while True:
            answer = self.receive()
            if answer.is_response and answer.opaque == command.opaque:
                return answer

    def drain(self) -> None:
        """Ends our direction and reads until the peer closes; raises `TimeoutError`."""
        self._socket.shutdown(socket.SHUT_WR)
        while self._socket.recv(1 << 18):
            pass

    def close(self) -> None:
        self._socket.close()


def ask(
    address: str, command: RemotingCommand, timeout: float = DEFAULT_TIMEOUT
) -> RemotingCommand:
    """One request on a connection of its own."""
    with Connection(address, timeout) as connection:
        return connection.request(command)


def committed_offset(address: str, group: str, topic: str, queue_id: int) -> int | None:
    """Where the group goes on, as a broker has it; None where it does not say."""
    header = QueryConsumerOffsetRequestHeader(consumer_group=group, topic=topic, queue_id=queue_id)
    answer = ask(address, RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header))
    if answer.code != ResponseCode.SUCCESS:
        return None
    return answer.header(QueryConsumerOffsetResponseHeader).offset


def topic_header(
    topic: str, queues: int, message_type: str | None = None, **fields: Any
) -> CreateTopicRequestHeader:
    """What makes or changes a topic with as many queues to read as to write."""
    return CreateTopicRequestHeader(
        topic=topic,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=READ | WRITE,
        topic_filter_type="SINGLE_TAG",
        order=False,
        attributes=None if message_type is None else f"+message.type={message_type}",
        **fields,
    )


def create_topic(address: str, topic: str, queues: int, message_type: str | None = None) -> None:
    """Has the broker at an address create a topic; raises `PeerFailed` where it refuses."""
    header = topic_header(topic, queues, message_type)
    answer = ask(address, RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))
    if answer.code != ResponseCode.SUCCESS:
        raise PeerFailed(f"{topic}: {answer.code} {answer.remark}")
