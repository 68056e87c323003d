"""What a send costs a master and its slave, each on a reactor and sockets of its own.

`python -m tools.bench.pair [--together N] [--messages N] [--profile master|slave]` prints CPU time
(user and system) a message for both, best of several rounds. The pair is in one process, and a
reactor gets its turn only when it would wake up, so that no time passes in which one waits for the
other; sockets and files are real, the producers are plain sockets beside it that are not counted.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import select
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from twisted.internet.epollreactor import EPollReactor

from rocketmq_tw.broker.assembly.host import Surroundings
from rocketmq_tw.broker.broker import Broker
from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.net import NettyClientConfig, NettyServerConfig
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.net.client import RemotingClient
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.services.process import freeze_startup_objects
from rocketmq_tw.wire.command import decode_command
from rocketmq_tw.wire.frame import FrameDecoder
from tests.support.ports import ReservedPort
from tools.bench.inprocess import Case, at_once, request

_CONNECTIONS = 16
_ROUNDS = 10
_LIMIT = 30.0


class Side:
    """One broker, its reactor, and the CPU seconds that it took."""

    def __init__(self, home: Path, profile: cProfile.Profile | None, **config: Any) -> None:
        self.seconds = 0.0
        self._profile = profile
        self._reactor = EPollReactor()
        self._reactor.startRunning(installSignalHandlers=False)
        net_config = NettyServerConfig(listen_port=0, bind_address="127.0.0.1")
        self._broker = Broker(
            Surroundings(
                reactor=self._reactor,
                config=BrokerConfig(
                    broker_name="bench",
                    broker_ip1="127.0.0.1",
                    broker_id=int(config["broker_role"] == "SLAVE"),
                ),
                store_config=MessageStoreConfig(
                    store_path_root_dir=str(home), in_sync_replicas=2, **config
                ),
                net_config=net_config,
                files=PosixFiles(),
                client=RemotingClient(self._reactor, NettyClientConfig()),
                server=RemotingServer(self._reactor, net_config),
                in_thread=at_once,
            )
        )
        failures: list[Any] = []
        self._broker.start().addErrback(failures.append)
        if failures:
            failures[0].raiseException()

        self.port = self._broker.addresses.port

    @property
    def is_linked(self) -> bool:
        """Whether a slave has its master."""
        return self._broker[Replicas].copies_master

    @property
    def queued(self) -> int:
        """Up to here the log is in the queues."""
        return self._broker[Writing].store.dispatched_offset

    def turn(self) -> bool:
        """Lets the reactor do what would wake it; False where nothing would."""
        reactor = self._reactor
        if reactor.timeout() != 0 and not select.select([reactor._poller], [], [], 0)[0]:
            return False
        if self._profile is not None:
            self._profile.enable()
        began = time.process_time()
        reactor.iterate(0)
        self.seconds += time.process_time() - began
        if self._profile is not None:
            self._profile.disable()
        return True

    def close(self) -> None:
        self._broker.stop()
        # Its threads would keep the process.
        self._reactor.fireSystemEvent("shutdown")


class Producer:
    """One connection to the master, with one send under way."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._frames = FrameDecoder()

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def is_answered(self) -> bool:
        """Whether success arrived by now."""
        try:
            data = self._socket.recv(1 << 16)
        except BlockingIOError:
            return False
        answers = [decode_command(frame) for frame in self._frames.feed(data)]
        if not data or any(answer.code for answer in answers):
            raise AssertionError(f"no success: {answers}")
        return bool(answers)

    def close(self) -> None:
        self._socket.close()


def measure(together: int, messages: int, profile: str = "") -> tuple[float, float]:
    """CPU microseconds of master and slave a message, the best of `_ROUNDS`; `together` of the
    producers send before the master gets its turn, and the others after them."""
    home = tempfile.mkdtemp(prefix="rmq-pair-")
    profiler = cProfile.Profile()
    case = Case(_CONNECTIONS, 1)
    reserved = ReservedPort()
    try:
        master = Side(
            Path(home, "master"),
            profiler if profile == "master" else None,
            broker_role="SYNC_MASTER",
            ha_listen_port=reserved.number,
        )
        slave = Side(
            Path(home, "slave"),
            profiler if profile == "slave" else None,
            broker_role="SLAVE",
            ha_master_address=reserved.address,
        )
        producers = [Producer(master.port) for _ in range(_CONNECTIONS)]
        _settle(master, slave)
        freeze_startup_objects()
        best = (float("inf"), float("inf"))
        number = 0
        for round_number in range(_ROUNDS + 1):
            if round_number == 1:
                profiler.clear()
            frames = [request(number + n, case) for n in range(messages // _ROUNDS)]
            number += len(frames)
            master.seconds = slave.seconds = 0.0
            _send_all(master, slave, producers, frames, together)
            _settle(master, slave)
            if round_number:
                costs = (master.seconds / len(frames) * 1e6, slave.seconds / len(frames) * 1e6)
                best = min(best, costs, key=sum)
        if profile:
            pstats.Stats(profiler).sort_stats("tottime").print_stats(45)
        for producer in producers:
            producer.close()
        slave.close()
        master.close()
        return best
    finally:
        reserved.release()
        shutil.rmtree(home)


def _settle(master: Side, slave: Side) -> None:
    """Turns until the slave has a link, and in its queues what the master has."""
    deadline = time.monotonic() + _LIMIT
    while not slave.is_linked or slave.queued != master.queued:
        if not (slave.turn() | master.turn()):
            time.sleep(0.001)
        if time.monotonic() > deadline:
            raise AssertionError("the slave has not got all of it")


def _send_all(
    master: Side, slave: Side, producers: list[Producer], frames: list[bytes], together: int
) -> None:
    idle, busy = list(producers), []
    sent = answered = 0
    deadline = time.monotonic() + _LIMIT
    while answered < len(frames):
        for frame in frames[sent : sent + min(together, len(idle))]:
            producer = idle.pop(0)
            producer.send(frame)
            busy.append(producer)
            sent += 1
        master.turn()
        slave.turn()
        free = [producer for producer in busy if producer.is_answered()]
        busy = [producer for producer in busy if producer not in free]
        idle += free
        answered += len(free)
        if time.monotonic() > deadline:
            raise AssertionError(f"{len(frames) - answered} sends are not answered")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.pair")
    parser.add_argument("--together", type=int, action="append", help="sends in one turn (16, 4)")
    parser.add_argument("--messages", type=int, default=20_000, help="all rounds (20000)")
    parser.add_argument("--profile", choices=("master", "slave"), default="")
    options = parser.parse_args()
    for together in options.together or (16, 4):
        master, slave = measure(together, options.messages, options.profile)
        print(f"{together:3} together: master {master:6.2f}, slave {slave:6.2f} us a message")
    return 0


if __name__ == "__main__":
    sys.exit(main())
