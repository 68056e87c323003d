"""A server on a reactor that is not ours: Twisted's on an asyncio loop, in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rocketmq_tw.wire.command import RemotingCommand, decode_command, encode_command
from rocketmq_tw.wire.frame import FrameDecoder

SERVER = """
import asyncio, sys
from twisted.internet import asyncioreactor, defer, task
asyncioreactor.install(asyncio.new_event_loop())
from twisted.internet import reactor
assert type(reactor) is asyncioreactor.AsyncioSelectorReactor
from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.namesrv.namesrv import NameServer
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.runtime.threads import in_pool
from rocketmq_tw.runtime.turns import turns_of

turns = turns_of(reactor)

def echo(request, peer):
    # As a broker does with what it writes at the end of a turn.
    answered = defer.Deferred()
    turns.at_turn_end(lambda: answered.callback(request.response(body=request.body)))
    return answered

server = RemotingServer(reactor, NettyServerConfig(bind_address="127.0.0.1"))
name_server = NameServer(reactor, MemoryFiles(), NamesrvConfig(), in_thread=in_pool(reactor))
name_server.handlers[1] = echo
reactor.callWhenRunning(lambda: print(name_server.start(server), flush=True))
reactor.callLater(60, reactor.stop)
sys.stdin.close()
reactor.run()
"""
#: Echo, and one request of a name server: 106, the brokers of all clusters.
ECHO, CLUSTERS = 1, 106


@contextmanager
def serving() -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        port = process.stdout.readline()
        assert port, process.stderr.read()
        yield int(port)
    finally:
        process.kill()
        process.communicate()


def ask(port: int, *codes: int) -> list[RemotingCommand]:
    """The answers to requests that are sent in one piece."""
    answers: list[RemotingCommand] = []
    requests = [RemotingCommand(code, body=b"hello", opaque=code) for code in codes]
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(b"".join(map(encode_command, requests)))
        decoder = FrameDecoder()
        while len(answers) < len(codes):
            data = connection.recv(65536)
            assert data, "the connection was closed"
            answers += map(decode_command, decoder.feed(data))
    return answers


def test_a_server_answers_on_an_asyncio_loop() -> None:
    with serving() as port:
        (answer,) = ask(port, CLUSTERS)
        assert answer.code == 0 and b"brokerAddrTable" in answer.body
        # More than one connection's share of a turn.
        answers = ask(port, ECHO, *range(2, 22), CLUSTERS)
        assert {each.opaque for each in answers} == {ECHO, *range(2, 22), CLUSTERS}
        assert next(each for each in answers if each.opaque == ECHO).body == b"hello"
