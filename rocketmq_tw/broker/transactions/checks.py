"""Asking producers about half messages that nobody has decided about in time.

A timer wakes when the next one is due. It is put back first, counted, and its producer is asked
about the copy once that is written; so whatever happens meanwhile, it is asked about again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from rocketmq_tw.broker.clients.registry import ClientRegistry
from rocketmq_tw.broker.transactions.book import HalfBook, State
from rocketmq_tw.broker.transactions.halves import QUEUE, Half, shown_to_producer
from rocketmq_tw.broker.transactions.lines import (
    FIRST_CHECK,
    NEXT_CHECK,
    RETRY,
    WaitingLines,
    due_at,
)
from rocketmq_tw.broker.transactions.settling import Settling
from rocketmq_tw.broker.writing.commit import STORED
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message.ids import offset_message_id
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import HALF_TOPIC
from rocketmq_tw.message.record import decode_records, encode_record
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import CheckTransactionStateRequestHeader

#: Half messages, and bytes of them, that are handled in one turn.
BATCH = 256
BATCH_BYTES = 4 << 20
#: Read at once.
BLOCK = 32
#: Until one that the store refused, or could not read, is tried again.
RETRY_MS = 1_000
#: Seconds until the next turn, at the latest, where a producer does not keep up.
SLOW_PRODUCER = 10.0
#: Seconds between two looks at the clock at most, so that one that is set holds nothing back.
LONGEST_SLEEP = 10.0

log = Logger()


class DecisionChecks:
    """Runs from `start` to `stop`; `retention_ms` is how long the log keeps messages."""

    def __init__(
        self,
        store: IMessageStore,
        book: HalfBook,
        settling: Settling,
        registry: ClientRegistry,
        config: BrokerConfig,
        clock: IReactorTime,
        now_ms: Callable[[], int],
        retention_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._book = book
        self._settling = settling
        self._registry = registry
        self._config = config
        self._clock = clock
        self._now_ms = now_ms
        self._retention_ms = retention_ms
        self._lines = WaitingLines(self._waits_ms)
        self._timer: IDelayedCall | None = None
        self._running = False
        #: Producers that are waited for, and the turn in which they were asked.
        self._slow = 0
        self._turn = 0
        self._asked = 0

    def start(self) -> None:
        self._running = True
        self._sleep(0)

    def stop(self) -> None:
        """Nobody is asked any more, at once."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def add(self, half: Half) -> None:
        """One that waits from now on."""
        line, base = self._line_of(half)
        self._lines.add(half.offset, base, line, late=half.is_copy and line != NEXT_CHECK)
        self._wake_by(base + self._waits_ms(line))

    def again(self, offset: int) -> None:
        """One that still waits, since the log could not take what would settle it."""
        now = self._now_ms()
        self._lines.add(offset, now, RETRY)
        self._wake_by(now + RETRY_MS)

    def _line_of(self, half: Half) -> tuple[int, int]:
        """Its line, and from when on it waits there."""
        if half.checks:
            return NEXT_CHECK, half.message.store_timestamp
        seconds = half.immunity_seconds
        # By this broker's clock; what was put back says by its birth only when it came.
        base = half.born_by() if half.is_copy else half.message.store_timestamp
        return (FIRST_CHECK if seconds is None else seconds), base

    def _waits_ms(self, line: int) -> int:
        if line == FIRST_CHECK:
            return self._config.transaction_time_out
        if line == NEXT_CHECK:
            return self._config.transaction_check_interval
        return RETRY_MS if line == RETRY else line * 1000

    # When

    def _wake_by(self, at_ms: int) -> None:
        if self._running and not self._slow:
            seconds = max(at_ms - self._now_ms(), 0) / 1000
            if self._timer is None or self._timer.getTime() > self._clock.seconds() + seconds:
                self._sleep(seconds)

    def _sleep(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.callLater(min(max(seconds, 0), LONGEST_SLEEP), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._slow = 0
        self._turn += 1
        now = self._now_ms()
        due, next_look = self._lines.take_due(now, BATCH, self._book.is_pending)
        self._sleep(LONGEST_SLEEP if next_look is None else (next_look - now) / 1000)
        asked = self._handle(due)
        if self._running and next_look is not None and next_look <= now:
            self._wait_for(asked)

    def _wait_for(self, peers: Iterable[IPeer]) -> None:
        """More are due: asks no faster than those who were asked take it."""
        waiting = [peer for peer in peers if peer.connected]
        self._slow = len(waiting)
        turn = self._turn
        for peer in waiting:
            peer.when_ready(lambda: self._keeps_up(turn))
        if self._slow:
            self._sleep(SLOW_PRODUCER)

    def _keeps_up(self, turn: int) -> None:
        if turn == self._turn and self._slow:
            self._slow -= 1
            if not self._slow and self._running:
                self._sleep(0)

    # What

    def _handle(self, due: list[int]) -> set[IPeer]:
        """Puts back, or gives up, what is due; returns who will be asked."""
        size = 0
        asked: set[IPeer] = set()
        silent: dict[str, int] = {}
        for start in range(0, len(due), BLOCK):
            block = due[start : start + BLOCK]
            if size > BATCH_BYTES:
                for offset in block:
                    self._lines.add(offset, self._now_ms() - RETRY_MS, RETRY)
                self._wake_by(self._now_ms())
                continue
            read: dict[int, StoredMessage] = {}
            for number, offset in enumerate(block):
                try:
                    half = self._read(block[number:], read)
                    if half is None:
                        continue
                    size += len(half.message.body)
                    peer = self._check(half)
                except RequestError as error:
                    log.warn(
                        "half message {offset} cannot be put back, trying again: {why}",
                        offset=offset,
                        why=error.remark,
                    )
                    self.again(offset)
                except Exception:
                    log.failure("half message {offset}: trying again", offset=offset)
                    self.again(offset)
                else:
                    if peer is not None:
                        asked.add(peer)
                    elif self._book.state(offset) is State.MOVED:
                        silent[half.group] = silent.get(half.group, 0) + 1
        if silent:
            log.warn("no producer is connected to be asked: {groups}", groups=silent)
        return asked

    def _read(self, offsets: list[int], read: dict[int, StoredMessage]) -> Half | None:
        """The first of `offsets`, which reads those next to it too; None where it waits no more or
        is no more in the log."""
        offset = offsets[0]
        if not self._book.is_pending(offset):
            return None
        if offset not in read:
            count = 1
            while count < len(offsets) and offsets[count] == offset + count:
                count += 1
            found = self._store.read_queue(HALF_TOPIC, QUEUE, offset, count, BATCH_BYTES)
            read.update((each.queue_offset, each) for each in decode_records(found.data))
        message = read.get(offset)
        if message is not None:
            return Half(message)
        log.error("half message {offset} is no more in the log: given up", offset=offset)
        self._settling.settle(offset, State.SETTLED)
        return None

    def _check(self, half: Half) -> IPeer | None:
        """Returns the producer that is asked; None for nobody."""
        line, base = self._line_of(half)
        now = self._now_ms()
        if due_at(base, self._waits_ms(line), now) > now:
            # Looked at too early: it was not known when it would be due.
            self.add(half)
            return None
        if (
            half.checks >= self._config.transaction_check_max
            or now - half.born_by() > self._retention_ms()
        ):
            log.warn(
                "half message {offset} of {group} for {topic} was asked about {n} times: given up",
                offset=half.offset,
                group=half.group,
                topic=half.real_topic,
                n=half.checks,
            )
            self._settling.give_up(half)
            return None
        peer = self._producer(half.group)
        copy, done = self._settling.put_back(half, half.checks + 1)

        def stored(code: ResponseCode) -> None:
            if code in STORED and peer is not None:
                peer.send_oneway(self._question(half, copy))

        done.addCallback(stored)
        return peer

    def _producer(self, group: str) -> IPeer | None:
        """One of the group after the other."""
        clients = [client for client in self._registry.producers(group) if client.peer.connected]
        if not clients:
            return None
        self._asked += 1
        return clients[self._asked % len(clients)].peer

    def _question(self, half: Half, copy: StoredMessage) -> RemotingCommand:
        header = CheckTransactionStateRequestHeader(
            tran_state_table_offset=copy.queue_offset,
            commit_log_offset=copy.physical_offset,
            topic=HALF_TOPIC,
            msg_id=half.unique_id or None,
            transaction_id=half.unique_id or None,
            offset_msg_id=offset_message_id(*copy.store_host, copy.physical_offset),
            bname=self._config.broker_name,
        )
        body = encode_record(shown_to_producer(half, copy))
        return RemotingCommand.request(
            RequestCode.CHECK_TRANSACTION_STATE, header, body, oneway=True
        )
