"""Asks producers about half messages that are undecided for too long (docs/formats/transactions.md,
"When producers are asked").

It wakes when the next one is due. The half message is put back first, counted, and its producer is
asked about the copy once that is stored; so whatever happens meanwhile, it is asked about again.
"""

from __future__ import annotations

from collections.abc import Iterable

from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.clients.registry import ClientRegistry
from rocketmq_tw.broker.transactions.book import State
from rocketmq_tw.broker.transactions.check_schedule import (
    FIRST_CHECK,
    NEXT_CHECK,
    RETRY_CHECK,
    CheckSchedule,
    due_at,
)
from rocketmq_tw.broker.transactions.halves import (
    QUEUE,
    Half,
    may_be_asked_again,
    shown_to_producer,
)
from rocketmq_tw.broker.transactions.settling import Settling
from rocketmq_tw.broker.writing.commit import STORED
from rocketmq_tw.message.ids import offset_message_id
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import HALF_TOPIC
from rocketmq_tw.message.record import decode_records, encode_record
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.runtime.alarm import LONGEST_SLEEP, Alarm
from rocketmq_tw.runtime.retries import RETRY_USUAL_MS
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import CheckTransactionStateRequestHeader

#: Half messages, and bytes of them, that are handled at one look.
_BATCH = 256
_BATCH_BYTES = 4 << 20
#: Half messages that are read at once.
_BLOCK = 32
#: Seconds until the next look, at the latest, where a producer does not keep up.
SLOW_PRODUCER = 10.0
_HOUR_MS = 3_600_000

log = Logger()


class DecisionChecks:
    """Asks about the half messages that `add` and `again` tell of, until `scope` is over."""

    def __init__(
        self,
        host: Host,
        store: IMessageStore,
        settling: Settling,
        registry: ClientRegistry,
        scope: Scope,
    ) -> None:
        self._host = host
        self._config = host.config
        self._now_ms = host.now_ms
        self._store = store
        self._book = settling.book
        self._settling = settling
        self._registry = registry
        self._scope = scope
        self._schedule = CheckSchedule(self._interval_ms)
        self._alarm = Alarm(host.reactor, self._wake, LONGEST_SLEEP)
        #: How many of the producers that were asked at a look do not keep up yet.
        self._slow = 0
        self._look = 0
        self._asked = 0
        scope.on_end(self._alarm.cancel)

    def start(self) -> None:
        """Begins with what is due already."""
        self._sleep(0)

    def add(self, halves: Iterable[Half]) -> None:
        """Asks about each of some half messages once its time is over."""
        due = []
        for half in halves:
            interval, base_ms = self._interval_of(half)
            late = interval != NEXT_CHECK and half.is_copy
            self._schedule.add(half.offset, base_ms, interval, late=late)
            due.append(base_ms + self._interval_ms(interval))
        if due:
            self._wake_by(min(due))

    def again(self, offset: int) -> None:
        """Looks again, soon, at a half message that is still pending."""
        now = self._now_ms()
        self._schedule.add(offset, now, RETRY_CHECK)
        self._wake_by(now + RETRY_USUAL_MS)

    def _interval_of(self, half: Half) -> tuple[int, int]:
        """Its interval, and the time in ms from which on that counts."""
        if half.checks:
            return NEXT_CHECK, half.message.store_timestamp
        seconds = half.immunity_seconds
        # By this broker's clock; of what was put back only its birth tells when it came.
        base = half.born_by() if half.is_copy else half.message.store_timestamp
        return (FIRST_CHECK if seconds is None else seconds), base

    def _interval_ms(self, interval: int) -> int:
        if interval == FIRST_CHECK:
            return self._config.transaction_time_out
        if interval == NEXT_CHECK:
            return self._config.transaction_check_interval
        if interval == RETRY_CHECK:
            return RETRY_USUAL_MS
        # Then it is given up whatever it says, and retention need not wait for it.
        return min(interval * 1000, self._reserved_ms + 1)

    @property
    def _reserved_ms(self) -> int:
        return self._host.store_config.file_reserved_time * _HOUR_MS

    # When

    def _wake_by(self, at_ms: int) -> None:
        if not self._scope.is_over and not self._slow:
            self._alarm.set_no_later((at_ms - self._now_ms()) / 1000)

    def _sleep(self, seconds: float) -> None:
        if not self._scope.is_over:
            self._alarm.set(seconds)

    def _wake(self) -> None:
        self._slow = 0
        self._look += 1
        now = self._now_ms()
        due, next_look = self._schedule.take_due(now, _BATCH, self._book.next_pending)
        self._sleep(LONGEST_SLEEP if next_look is None else (next_look - now) / 1000)
        asked = self._handle(due)
        if next_look is not None and next_look <= now:
            self._wait_for(asked)

    def _wait_for(self, peers: Iterable[IPeer]) -> None:
        """Asks about those that are due, too, once the producers that were asked keep up."""
        waiting = [peer for peer in peers if peer.connected]
        self._slow = len(waiting)
        look = self._look
        for peer in waiting:
            peer.when_ready(lambda: self._keeps_up(look))
        if self._slow:
            self._sleep(SLOW_PRODUCER)

    def _keeps_up(self, look: int) -> None:
        if look == self._look and self._slow:
            self._slow -= 1
            if not self._slow:
                self._sleep(0)

    # What

    def _handle(self, due: list[int]) -> set[IPeer]:
        """Puts back, or gives up, the half messages that are due; returns the producers that will
        be asked."""
        size = 0
        asked: set[IPeer] = set()
        silent: dict[str, int] = {}
        for start in range(0, len(due), _BLOCK):
            block = due[start : start + _BLOCK]
            if size > _BATCH_BYTES:
                for offset in block:
                    self._schedule.add(offset, self._now_ms() - RETRY_USUAL_MS, RETRY_CHECK)
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
                    log.failure(
                        "looking at half message {offset} failed; trying again", offset=offset
                    )
                    self.again(offset)
                else:
                    if peer is not None:
                        asked.add(peer)
                    elif self._book.state(offset) is State.MOVED:
                        silent[half.group] = silent.get(half.group, 0) + 1
        if silent:
            log.warn(
                "no producer of these groups is connected to be asked about half messages:"
                " {groups}",
                groups=silent,
            )
        return asked

    def _read(self, offsets: list[int], read: dict[int, StoredMessage]) -> Half | None:
        """Returns the half message at the first of `offsets`; None where it is settled, or the log
        has it no more. Those next to it are read, too, into `read`."""
        offset = offsets[0]
        if not self._book.is_pending(offset):
            return None
        if offset not in read:
            count = 1
            while count < len(offsets) and offsets[count] == offset + count:
                count += 1
            found = self._store.read_queue(HALF_TOPIC, QUEUE, offset, count, _BATCH_BYTES)
            read.update((each.queue_offset, each) for each in decode_records(found.data))
        message = read.get(offset)
        if message is not None:
            return Half(message)
        log.error("half message {offset} is no more in the log: given up", offset=offset)
        self._settling.settle(offset, State.SETTLED)
        return None

    def _check(self, half: Half) -> IPeer | None:
        """Has the producer asked, and returns it; None where none is."""
        interval, base_ms = self._interval_of(half)
        now = self._now_ms()
        if due_at(base_ms, self._interval_ms(interval), now) > now:
            # Looked at too early: it was not known when it would be due.
            self.add([half])
            return None
        if (
            half.checks >= self._config.transaction_check_max
            or not may_be_asked_again(half)
            or now - half.born_by() > self._reserved_ms
        ):
            log.warn(
                "half message {offset} of {group} for {topic} was asked about {n} times: given up",
                offset=half.offset,
                group=half.group,
                topic=half.real_topic,
                n=half.checks,
            )
            self._settling.give_up(half).addErrback(_is_tried_again)
            return None
        peer = self._producer(half.group)
        copy, stored = self._settling.put_back(half, half.checks + 1)

        def ask(code: ResponseCode) -> None:
            if code in STORED and peer is not None:
                peer.send_oneway(self._question(half, copy))

        stored.addCallbacks(ask, _is_tried_again)
        return peer

    def _producer(self, group: str) -> IPeer | None:
        """Returns one of the group's connected producers after the other; None where there is
        none."""
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


def _is_tried_again(failure: Failure) -> None:
    """Ends the failure of a store that refused: the half message is pending again by then."""
    failure.trap(RequestError)
