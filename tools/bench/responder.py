"""The ceiling: a bare Twisted server that parses a frame and its header, discards, and answers.

It is its own name server: every topic has eight queues here. `python responder.py host:port`.
"""

import sys
from typing import Any

from twisted.internet import reactor
from twisted.internet.protocol import Factory, Protocol

from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand, decode_command, encode_command
from rocketmq_tw.wire.frame import FrameDecoder

_QUEUES = 8
_READ_AND_WRITE = 6
_SENDS = frozenset(
    (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
)
_STORED = {
    "msgId": "7F00000100002A9F0000000000000000",
    "queueId": "0",
    "queueOffset": "0",
    "MSG_REGION": "DefaultRegion",
    "TRACE_ON": "true",
}


def route(address: str) -> bytes:
    """The body of a route that leads here."""
    return msgspec.json.encode(
        {
            "queueDatas": [
                {
                    "brokerName": "bench",
                    "readQueueNums": _QUEUES,
                    "writeQueueNums": _QUEUES,
                    "perm": _READ_AND_WRITE,
                    "topicSysFlag": 0,
                }
            ],
            "brokerDatas": [
                {"cluster": "bench", "brokerName": "bench", "brokerAddrs": {"0": address}}
            ],
            "filterServerTable": {},
        }
    )


class Responder(Protocol):
    """One connection; the answers to what one read brought leave with one write."""

    def __init__(self, routes: bytes) -> None:
        self._routes = routes
        self._decoder = FrameDecoder()

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)  # type: ignore[union-attr]

    def dataReceived(self, data: bytes) -> None:
        answers = []
        for frame in self._decoder.feed(data):
            request = decode_command(frame)
            if not request.is_oneway:
                answers.append(encode_command(self._answer(request)))
        self.transport.write(b"".join(answers))  # type: ignore[union-attr]

    def _answer(self, request: RemotingCommand) -> RemotingCommand:
        response = request.response()
        if request.code in _SENDS:
            response.ext_fields = _STORED
        elif request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            response.body = self._routes
        return response


def main() -> None:
    host, port = sys.argv[1].rsplit(":", 1)
    routes = route(sys.argv[1])
    listening: Any = reactor
    listening.listenTCP(
        int(port), Factory.forProtocol(lambda: Responder(routes)), interface=host, backlog=1024
    )
    listening.run()


if __name__ == "__main__":
    main()
