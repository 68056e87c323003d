"""What a send, a pull, a transaction or a popped message costs a broker without sockets: bytes
received to bytes answered, real files.

`python -m tools.bench.inprocess [--case NAME] [--messages N] [--profile]` prints CPU time (user
and system) a message, best of several rounds. It says what the code costs, whatever else the
machine does, so it is what to look at before and after a change; `make bench` has the last word.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from operator import add
from typing import Any, NamedTuple

from twisted.internet.address import IPv4Address
from twisted.internet.base import ReactorBase
from twisted.internet.defer import Deferred, execute
from twisted.python.runtime import seconds
from zope.interface import implementer

from rocketmq_tw.broker.assembly.host import Surroundings
from rocketmq_tw.broker.broker import Broker
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.net import NettyClientConfig, NettyServerConfig
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.message.batch import BatchedMessage, encode_batch
from rocketmq_tw.message.ids import parse_offset_message_id
from rocketmq_tw.message.model import TRANSACTION_COMMIT, TRANSACTION_PREPARED
from rocketmq_tw.net.client import RemotingClient
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.runtime.turns import IReactorTurns
from rocketmq_tw.services.process import freeze_startup_objects
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import (
    LanguageCode,
    RemotingCommand,
    decode_command,
    encode_command,
)
from rocketmq_tw.wire.frame import FrameDecoder
from rocketmq_tw.wire.headers.pop import AckMessageRequestHeader, PopMessageRequestHeader
from rocketmq_tw.wire.headers.pull import PULL_SUBSCRIPTION, PullMessageRequestHeader
from rocketmq_tw.wire.headers.send import EndTransactionRequestHeader
from tests.support.load import send_request

_PORT = 10911
_TOPIC = "bench-load"
#: The group of transactional producers.
_PRODUCERS = "bench-deciders"
_QUEUES = 4
_BATCH = 32
_ROUNDS = 10


class Case(NamedTuple):
    """`connections` with `requests` in one read each, every turn of the reactor: sends, alone or in
    batches, or pulls of what was sent that way."""

    connections: int
    requests: int
    batch: int = 1
    size: int = 128
    #: Messages that one request pulls, one queue after the other from its first on; 0: it sends.
    pulled: int = 0
    #: Messages have a key, a tag and three properties of the user's.
    keyed: bool = False
    #: Each request sends a half message, behind a oneway one that commits the half message of the
    #: turn before: a client's thread, which waits for each answer.
    transactional: bool = False
    #: Members pop `batch` messages and acknowledge each, so many of them in one turn; 0: none do.
    acked: int = 0

    @property
    def messages(self) -> int:
        return self.connections * self.requests * (self.pulled or self.batch)


CASES = {
    "1": Case(1, 1),
    "1-keys": Case(1, 1, keyed=True),
    "16": Case(1, 16),
    "16-keys": Case(1, 16, keyed=True),
    "16-connections": Case(16, 1),
    "16-connections-keys": Case(16, 1, keyed=True),
    "16-1024": Case(1, 16, size=1024),
    "transaction-keys": Case(1, 1, keyed=True, transactional=True),
    "16-transactions-keys": Case(1, 16, keyed=True, transactional=True),
    "batch": Case(1, 1, _BATCH),
    "batch-keys": Case(1, 1, _BATCH, keyed=True),
    "pull": Case(1, 1, size=1024, pulled=32),
    "pull-batches": Case(1, 1, _BATCH, size=1024, pulled=32),
    "pull-128": Case(1, 1, _BATCH, pulled=32),
    "pop": Case(1, 1, _BATCH, acked=16),
    "pop-4": Case(1, 1, _BATCH, acked=4),
}
#: Messages that are stored for pulls, spread over the queues.
_STORED = 40_960
#: The group whose members pop.
_POPPERS = "bench-poppers"


@implementer(IReactorTurns)
class Turns(ReactorBase):
    """A reactor without sockets: `turn` does what is due. Its turns end as `ServerReactor`'s do."""

    def __init__(self) -> None:
        self.factories: dict[int, Any] = {}
        self._turn_ends: list[Callable[[], None]] = []
        #: Seconds that this reactor is ahead of the clock.
        self.ahead = 0.0
        super().__init__()

    def seconds(self) -> float:
        return seconds() + self.ahead

    def installWaker(self) -> None:
        """Nothing ever waits here."""

    def listenTCP(self, port: int, factory: Any, **_options: Any) -> Any:
        self.factories[port] = factory
        return self

    def getHost(self) -> IPv4Address:
        return IPv4Address("TCP", "127.0.0.1", 10911)

    def stopListening(self) -> None:
        """Nothing listens."""

    def at_turn_end(self, call: Callable[[], None]) -> None:
        self._turn_ends.append(call)

    def waited(self) -> float:
        return 0.0

    def serve_late(self, seconds: float, call: Callable[[], None]) -> None:
        call()

    def turn(self) -> None:
        self.runUntilCurrent()
        while self._turn_ends:
            calls, self._turn_ends = self._turn_ends, []
            for call in calls:
                call()


class MemoryTransport:
    """Keeps what is written until it is taken."""

    disconnecting = False

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def registerProducer(self, _producer: Any, _streaming: bool) -> None:
        """It is never full."""

    def pauseProducing(self) -> None:
        """What comes is read when the case has it read."""

    resumeProducing = pauseProducing

    def getPeer(self) -> IPv4Address:
        return IPv4Address("TCP", "127.0.0.1", 50000)

    getHost = getPeer


def at_once(function: Callable[[], Any]) -> Deferred[Any]:
    """In place of a thread."""
    return execute(function)


def request(number: int, case: Case) -> bytes:
    """A send as stock's Java client writes it."""
    body = b"x" * case.size
    name, wait = "UNIQ_KEY\x017F0000010A2B0B1C2D3E", "WAIT\x01true\x02"
    if case.batch > 1:
        body = encode_batch(
            BatchedMessage(
                0,
                body,
                f"{user_properties(number * case.batch + index) if case.keyed else ''}"
                f"{name}{number:08X}{index:04X}\x02{wait}".encode(),
            )
            for index in range(case.batch)
        )
    command = send_request(_TOPIC, number % _QUEUES, body, batch=case.batch > 1)
    own = user_properties(number) if case.keyed and case.batch == 1 else ""
    if case.transactional:
        own += f"TRAN_MSG\x01true\x02PGROUP\x01{_PRODUCERS}\x02"
        command.ext_fields |= {"a": _PRODUCERS, "f": str(TRANSACTION_PREPARED)}
    command.ext_fields |= {"i": f"{own}{name}{number:012X}\x02{wait}", "n": "bench"}
    command.language = LanguageCode.JAVA
    command.opaque = number
    return encode_command(command)


def commit(answer: RemotingCommand) -> bytes:
    """The commit of the half message that was answered so, as stock's Java client writes it."""
    fields = answer.ext_fields
    header = EndTransactionRequestHeader(
        producer_group=_PRODUCERS,
        tran_state_table_offset=int(fields["queueOffset"]),
        commit_log_offset=parse_offset_message_id(fields["msgId"]).offset,
        commit_or_rollback=TRANSACTION_COMMIT,
        msg_id=fields["transactionId"],
        transaction_id=fields["transactionId"],
        topic=_TOPIC,
        bname="bench",
    )
    command = RemotingCommand.request(RequestCode.END_TRANSACTION, header, oneway=True)
    command.language = LanguageCode.JAVA
    # No other request that is open has it.
    command.opaque = answer.opaque | 1 << 30
    return encode_command(command)


def user_properties(number: int) -> str:
    """Returns a key, a tag and three properties, as a shop's orders might have them."""
    return (
        f"KEYS\x01order-{number:09d}\x02TAGS\x01tag{number % 4}\x02region\x01eu-{number % 7}\x02"
        f"amount\x01{number * 7919 % 100_000}\x02kind\x01paid\x02"
    )


def pull_request(number: int, case: Case) -> bytes:
    """The pull of that number as stock's Java client writes it; after the last message it starts
    over."""
    in_queue = _STORED // _QUEUES
    queue, offset = divmod(number * case.pulled % _STORED, in_queue)
    header = PullMessageRequestHeader(
        consumer_group="bench-readers",
        topic=_TOPIC,
        queue_id=queue,
        queue_offset=offset,
        max_msg_nums=case.pulled,
        sys_flag=PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=20_000,
        sub_version=0,
        subscription="*",
        expression_type="TAG",
        max_msg_bytes=0x7FFFFFFF,
        bname="bench",
    )
    return _as_java(RemotingCommand.request(RequestCode.PULL_MESSAGE, header), number)


def pop_request(number: int, case: Case) -> bytes:
    """A pop from any queue as stock's Java client writes it."""
    header = PopMessageRequestHeader(
        consumer_group=_POPPERS,
        topic=_TOPIC,
        queue_id=-1,
        max_msg_nums=case.batch,
        invisible_time=60_000,
        poll_time=1_000,
        born_time=int(time.time() * 1000),
        init_mode=0,
        exp_type="TAG",
        exp="*",
    )
    return _as_java(RemotingCommand.request(RequestCode.POP_MESSAGE, header), number)


def acknowledgements(popped: RemotingCommand) -> list[bytes]:
    """One of each message in the answer to a pop, as stock's Java client writes them."""
    fields = popped.ext_fields
    made: list[bytes] = []
    starts = [entry.split(" ")[2] for entry in fields["startOffsetInfo"].split(";")]
    for start, entry in zip(starts, fields["msgOffsetInfo"].split(";"), strict=True):
        kind, queue, offsets = entry.split(" ")
        times = f"{fields['popTime']} {fields['invisibleTime']}"
        for offset in offsets.split(","):
            header = AckMessageRequestHeader(
                consumer_group=_POPPERS,
                topic=_TOPIC,
                queue_id=int(queue),
                extra_info=f"{start} {times} {fields['reviveQid']} {kind} bench {queue} {offset}",
                offset=int(offset),
            )
            command = RemotingCommand.request(RequestCode.ACK_MESSAGE, header)
            made.append(_as_java(command, len(made)))
    return made


def _as_java(command: RemotingCommand, number: int) -> bytes:
    command.language = LanguageCode.JAVA
    command.opaque = number
    return encode_command(command)


class InProcess:
    """A broker whose files are below `home`, and its connections."""

    def __init__(self, home: str, connections: int) -> None:
        self.reactor = Turns()
        net_config = NettyServerConfig(listen_port=_PORT)
        self.broker = Broker(
            Surroundings(
                reactor=self.reactor,
                config=BrokerConfig(broker_name="bench", broker_ip1="127.0.0.1"),
                store_config=MessageStoreConfig(store_path_root_dir=home),
                net_config=net_config,
                files=PosixFiles(),
                client=RemotingClient(self.reactor, NettyClientConfig()),
                server=RemotingServer(self.reactor, net_config),
                in_thread=at_once,
            )
        )
        failures: list[Any] = []
        self.broker.start().addErrback(failures.append)
        if failures:
            failures[0].raiseException()
        self.transports = [MemoryTransport() for _ in range(connections)]
        self._protocols = []
        for transport in self.transports:
            protocol = self.reactor.factories[_PORT].buildProtocol(transport.getPeer())
            protocol.makeConnection(transport)
            self._protocols.append(protocol)

    def turn(self, pieces: list[bytes]) -> None:
        """Each connection gets its piece, then the turn ends."""
        for protocol, piece in zip(self._protocols, pieces, strict=True):
            protocol.dataReceived(piece)
        self.reactor.turn()

    def answers(self) -> list[RemotingCommand]:
        """Returns what the first connection was answered since this was asked last."""
        written = self.transports[0].written
        frames = FrameDecoder().feed(b"".join(written))
        written.clear()
        return [decode_command(frame) for frame in frames]

    def forget_former_answers(self) -> None:
        """Keeps the last: fresh memory for all that is pulled would cost more than the pulls."""
        for transport in self.transports:
            del transport.written[:-1]

    def close(self) -> None:
        for protocol in self._protocols:
            protocol.connectionLost()
        self.broker.stop()


def microseconds(case: Case, messages: int, profile: cProfile.Profile | None = None) -> float:
    """CPU time of a message, the best of `_ROUNDS`."""
    home = tempfile.mkdtemp(prefix="rmq-inprocess-")
    running = InProcess(home, case.connections)
    make = request
    try:
        if case.pulled:
            _fill(running, case, _STORED)
            make = pull_request
        turns = max(messages // case.messages // _ROUNDS, 1)
        best = float("inf")
        number = 0
        freeze_startup_objects()
        for round_number in range(_ROUNDS + 1):
            taken = 0.0
            if case.transactional:
                stretches = _transactions(running, case, turns, number)
            elif case.acked:
                stretches = _pops(running, case, turns)
            else:
                stretches = iter([[_pieces(make, case, number, turn) for turn in range(turns)]])
            number += turns * case.connections * case.requests
            for work in stretches:
                if profile is not None and round_number:
                    profile.enable()
                began = time.process_time()
                for pieces in work:
                    running.turn(pieces)
                    if case.pulled:
                        running.forget_former_answers()
                taken += time.process_time() - began
                if profile is not None:
                    profile.disable()
            if round_number:
                best = min(best, taken / (turns * case.messages))
            if not (case.transactional or case.acked):
                answers = 1 if case.pulled else turns * case.requests
                _check(running.transports, answers, case.pulled * case.size)
        return best * 1e6
    finally:
        running.close()
        shutil.rmtree(home)


def _pieces(make: Callable[[int, Case], bytes], case: Case, number: int, turn: int) -> list[bytes]:
    """Returns what each connection gets in a turn; the requests of all turns are numbered from
    `number` on."""
    of_turn = case.connections * case.requests
    first = number + turn * of_turn
    numbers = range(first, first + of_turn)
    return [
        b"".join(make(each, case) for each in numbers[start : start + case.requests])
        for start in range(0, of_turn, case.requests)
    ]


def _transactions(
    running: InProcess, case: Case, turns: int, number: int
) -> Iterator[list[list[bytes]]]:
    """Yields one turn after the other, each of which commits what the one before was answered."""
    store = running.broker[Writing].store

    def committed() -> int:
        return sum(store.max_queue_offset(_TOPIC, queue) for queue in range(_QUEUES))

    before = committed()
    commits = [b""] * case.requests
    for turn in range(turns):
        first = number + turn * case.requests
        halves = [request(first + n, case) for n in range(case.requests)]
        yield [[b"".join(map(add, commits, halves))]]
        answers = running.answers()
        if len(answers) != case.requests or any(answer.code for answer in answers):
            raise AssertionError(f"{len(answers)} answers to half messages, or refusals")
        commits = list(map(commit, answers))
    yield [[b"".join(commits)]]
    if committed() - before != turns * case.requests:
        raise AssertionError(f"{committed() - before} of {turns * case.requests} are committed")


def _pops(running: InProcess, case: Case, turns: int) -> Iterator[list[list[bytes]]]:
    """Yields pops and the acknowledgements of what each gave, one turn after the other, and the
    turns of the second behind them, in which the broker reads what was acknowledged."""
    _fill(running, case, turns * case.batch)
    for number in range(turns):
        yield [[pop_request(number, case)]]
        (popped,) = running.answers()
        acks = acknowledgements(popped)
        for first in range(0, len(acks), case.acked):
            yield [[b"".join(acks[first : first + case.acked])]]
        answers = running.answers()
        if len(answers) != case.batch or any(answer.code for answer in answers):
            raise AssertionError(f"{len(answers)} answers to acknowledgements, or refusals")
    running.reactor.ahead += 1.0
    while running.reactor.timeout() == 0:
        yield [[b""]]


def _fill(running: InProcess, case: Case, messages: int) -> None:
    """Stores what is going to be pulled or popped."""
    for number in range(messages // case.batch):
        running.turn([request(number, case)] + [b""] * (case.connections - 1))
    running.transports[0].written.clear()


def _check(transports: list[MemoryTransport], expected: int, body: int) -> None:
    """Every request was answered with success, and with more than so many bytes where it pulls."""
    for transport in transports:
        answers = FrameDecoder().feed(b"".join(transport.written))
        transport.written.clear()
        if len(answers) != expected or any(decode_command(answer).code for answer in answers):
            raise AssertionError(f"{len(answers)} answers to {expected} requests, or refusals")
        if body and any(len(answer.body) <= body for answer in answers):
            raise AssertionError(f"a pull brought no more than {body} bytes")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.inprocess")
    parser.add_argument("--case", action="append", choices=CASES, help="only this case")
    parser.add_argument(
        "--messages", type=int, default=40_000, help="of a case, all rounds (40000)"
    )
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    options = parser.parse_args()
    for name in options.case or CASES:
        profile = cProfile.Profile() if options.profile else None
        print(f"{name:16} {microseconds(CASES[name], options.messages, profile):7.2f} us a message")
        if profile is not None:
            pstats.Stats(profile).sort_stats("tottime").print_stats(45)
    return 0


if __name__ == "__main__":
    sys.exit(main())
