"""What a call of a gRPC client costs a proxy without sockets: bytes of clients and brokers come,
bytes for both go.

`python -m tools.bench.proxy_inprocess [--case NAME] [--messages N] [--profile]` prints CPU time
(user and system) a message, best of several rounds. Clients write what stock's Java client 5.2.0
does. They are not counted, nor is the broker, which answers in the next turn; that of the cases of
local mode, a whole one with real files in the proxy's process, is.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.message.types import MESSAGE_TYPE, MIXED_TYPE
from rocketmq_tw.net.client import RemotingClient
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.cluster.brokers import ClusterBrokers
from rocketmq_tw.proxy.grpc.latency import call_latency
from rocketmq_tw.proxy.grpc.server import GrpcConfig, GrpcServer
from rocketmq_tw.proxy.local.brokers import LocalBrokers
from rocketmq_tw.proxy.proto import messages as pb
from rocketmq_tw.proxy.proxy import Proxy
from rocketmq_tw.services.process import freeze_startup_objects
from rocketmq_tw.wire.bodies.topics import TopicConfig
from tools.bench.inprocess import InProcess, MemoryTransport, Turns, at_once
from tools.bench.proxy_peers import BATCH, BROKER_ADDRESS, QUEUES, TOPIC, BenchBroker, BenchClient

_ROUNDS = 20


class Case(NamedTuple):
    """Calls that come in one read of each of `connections`, every turn of the reactor: sends, or
    acknowledgements with a receive of 32 messages for each 32 of them."""

    calls: int
    connections: int = 1
    receives: bool = False
    in_order: bool = False
    #: The proxy is in the broker's process.
    local: bool = False


CASES = {
    "send-1": Case(1),
    "send-4": Case(4),
    "send-16": Case(16),
    "send-16-connections": Case(1, 16),
    "send-16-in-order": Case(16, in_order=True),
    "receive": Case(BATCH, receives=True),
    "receive-4": Case(4, receives=True),
    "local-send-1": Case(1, local=True),
    "local-send-16": Case(16, local=True),
    "local-send-64": Case(64, local=True),
    "local-receive": Case(BATCH, receives=True, local=True),
}


class ProxyInProcess:
    """A proxy, before a broker or in the process of one whose files are below `home`, and its
    clients."""

    def __init__(self, connections: int, home: str | None = None) -> None:
        self._local = None if home is None else InProcess(home, 1)
        self._reactor = Turns() if self._local is None else self._local.reactor
        self._broker = BenchBroker()
        config = ProxyConfig(namesrv_addr=BROKER_ADDRESS)
        cluster = ClusterBrokers(
            self._reactor,
            config,
            lambda: RemotingClient(self._reactor, endpoint_for=self._broker.endpoint),
        )
        brokers: IBrokers = cluster
        if self._local is not None:
            self._local.broker[Tables].topics.update(
                TopicConfig(
                    topic_name=TOPIC,
                    read_queue_nums=QUEUES,
                    write_queue_nums=QUEUES,
                    attributes={f"+{MESSAGE_TYPE}": MIXED_TYPE},
                )
            )
            brokers = LocalBrokers(self._reactor, self._local.broker, cluster)
        proxy = Proxy(self._reactor, config, brokers, at_once)
        grpc = GrpcServer(self._reactor, GrpcConfig(), proxy.methods, call_latency().record)
        server = RemotingServer(self._reactor, NettyServerConfig())
        factory = server.listener(http2=grpc.connection).factory
        cluster.start()
        proxy.start()
        self.cpu_seconds = 0.0
        self.profile: cProfile.Profile | None = None
        self.clients = []
        for number in range(connections):
            transport = MemoryTransport()
            protocol = factory.buildProtocol(transport.getPeer())
            protocol.makeConnection(transport)
            self.clients.append(BenchClient(protocol, transport, number))
        self.turn([client.greeting() for client in self.clients])
        for _ in range(20):
            self.turn([])

    def turn(self, pieces: Sequence[bytes]) -> None:
        """Each client's connection gets its piece, brokers' what they answered, then the turn
        ends."""
        work = [
            (client.protocol, piece)
            for client, piece in zip(self.clients, pieces, strict=False)
            if piece
        ]
        work += self._broker.answers()
        profile = self.profile
        if profile is not None:
            profile.enable()
        began = time.process_time()
        self._serve(work)
        self.cpu_seconds += time.process_time() - began
        if profile is not None:
            profile.disable()
        for client in self.clients:
            client.take()

    def close(self) -> None:
        """Ends the broker of this process."""
        if self._local is not None:
            self._local.close()

    def _serve(self, work: Sequence[tuple[Any, bytes]]) -> None:
        for protocol, data in work:
            protocol.dataReceived(data)
        self._reactor.turn()


def microseconds(case: Case, messages: int, profile: cProfile.Profile | None = None) -> float:
    """CPU time of a message, the best of `_ROUNDS`."""
    if not case.local:
        return _measured(ProxyInProcess(case.connections), case, messages, profile)
    home = tempfile.mkdtemp(prefix="rmq-inprocess-")
    running = ProxyInProcess(case.connections, home)
    try:
        return _measured(running, case, messages, profile)
    finally:
        running.close()
        shutil.rmtree(home)


def _measured(
    running: ProxyInProcess, case: Case, messages: int, profile: cProfile.Profile | None
) -> float:
    freeze_startup_objects()
    round_of = _receives if case.receives else _sends
    most = max(messages // _ROUNDS, case.calls * case.connections)
    best = float("inf")
    for number in range(_ROUNDS + 1):
        if case.receives and case.local:
            # The broker of the others makes what it gives out.
            _sends(running, case, most + 2 * BATCH)
        running.cpu_seconds = 0.0
        running.profile = profile if number else None
        done = round_of(running, case, most)
        if number:
            best = min(best, running.cpu_seconds / done)
    return best * 1e6


def _sends(running: ProxyInProcess, case: Case, messages: int) -> int:
    """Sends so many, or some more; returns how many."""
    sent = done = 0
    while done < messages:
        pieces = []
        if sent < messages:
            for client in running.clients:
                calls = [client.send(sent + n, in_order=case.in_order) for n in range(case.calls)]
                sent += case.calls
                pieces.append(b"".join(calls) + client.ping())
        running.turn(pieces)
        for client in running.clients:
            for (answer,) in client.answers:
                _check(pb.SendMessageResponse.FromString(answer).status)
                done += 1
            client.answers.clear()
    return done


def _receives(running: ProxyInProcess, case: Case, messages: int) -> int:
    """Receives so many, or some more, and acknowledges each; returns how many."""
    (client,) = running.clients
    received: list[pb.Message] = []
    asked = done = 0
    while done < messages:
        calls = [client.ack(message) for message in received[: case.calls]]
        del received[: case.calls]
        if len(received) < 2 * BATCH and asked < messages:
            calls.append(client.receive())
            asked += BATCH
        running.turn([b"".join(calls) + client.ping()] if calls else [])
        for answer in client.answers:
            if len(answer) > 1:
                parts = [pb.ReceiveMessageResponse.FromString(each) for each in answer]
                _check(parts[0].status)
                received += [each.message for each in parts if each.HasField("message")]
            else:
                _check(pb.AckMessageResponse.FromString(answer[0]).status)
                done += 1
        client.answers.clear()
    return done


def _check(status: pb.Status) -> None:
    if status.code != pb.OK:
        raise AssertionError(f"a call was answered {status}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.proxy_inprocess")
    parser.add_argument("--case", action="append", choices=CASES, help="only this case")
    parser.add_argument(
        "--messages", type=int, default=20_000, help="of a case, all rounds (20000)"
    )
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    options = parser.parse_args()
    for name in options.case or CASES:
        profile = cProfile.Profile() if options.profile else None
        print(f"{name:20} {microseconds(CASES[name], options.messages, profile):7.2f} us a message")
        if profile is not None:
            pstats.Stats(profile).sort_stats("tottime").print_stats(60)
    return 0


if __name__ == "__main__":
    sys.exit(main())
