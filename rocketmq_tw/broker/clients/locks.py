"""Locks of orderly consumers: which client of a group may consume which queue.

Requests 41 and 42 take and free them. They are kept in `config/rebalanceLock.json`
(docs/formats/config-files.md), so that they outlive the broker: a client goes on with the queues
that it has locked for half a minute without a word from the broker. One that started without locks
would give them to another client meanwhile, and both would consume the same queues.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sized
from typing import TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.broker.clients.group_locks import GroupLocks
from rocketmq_tw.broker.tables.versioned import TableFile
from rocketmq_tw.broker.tables.write_behind import WriteBehindTable
from rocketmq_tw.message import names
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.structs import field
from rocketmq_tw.wire.bodies.base import Body, decode_request, decode_table, encode_body
from rocketmq_tw.wire.bodies.queues import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UnlockBatchRequestBody,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

Q = TypeVar("Q", bound=Hashable)

#: Milliseconds after which a lock is free that its client has not renewed.
LOCK_EXPIRES_MS = 60_000
#: Milliseconds for which a client goes on with its queues without an answer of the broker.
LOCK_OUTLIVES_MS = 30_000
#: Locks of all groups together. Once all are taken, further queues count as locked by another
#: client.
MAX_LOCKS = 200_000
#: Locks that one step of the scan for expired ones visits.
_STEP = 1000
#: Queues of one request; a consumer asks for its queues of one topic.
_MAX_QUEUES = 10_000
#: Values in its body: a queue has three, and each stands in braces and behind a comma.
_MAX_VALUES = 6 * _MAX_QUEUES

log = Logger()


class RebalanceLock:
    """The locks of all groups; a queue is any hashable value, here the wire's message queue."""

    def __init__(self, now_ms: Callable[[], int], expires_ms: int = LOCK_EXPIRES_MS) -> None:
        self._now_ms = now_ms
        self._expires_ms = expires_ms
        self._groups: dict[str, dict[Hashable, tuple[str, int]]] = {}
        self._count = 0
        #: When the broker's last role as the master ended.
        self._role_ended: int | None = None
        #: Whether locks were taken or freed since this was last False; a renewal is neither.
        self.changed = False

    def held(self) -> list[tuple[str, list[tuple[Hashable, str]]]]:
        """Returns each group with its locked queues and their clients; may be called in any
        thread."""
        return [
            (group, [(queue, owner[0]) for queue, owner in list(queues.items())])
            for group, queues in list(self._groups.items())
        ]

    def take_over(self, group: str, queue: Hashable, client_id: str) -> None:
        """Takes a lock that was granted before the broker started: its client may still go on for
        `LOCK_OUTLIVES_MS`, and renews it by then if it is there."""
        if self._count >= MAX_LOCKS:
            return
        held = self._groups.setdefault(group, {})
        self._count += queue not in held
        held[queue] = (client_id, self._now_ms() + LOCK_OUTLIVES_MS - self._expires_ms)

    def end_role(self) -> None:
        """Notes that the broker is the master no more: locks that were granted by now hold for
        another `LOCK_OUTLIVES_MS` at most, since another master grants them from here on."""
        self._role_ended = self._now_ms()

    def lock(self, group: str, queues: Iterable[Q], client_id: str) -> list[Q]:
        """Takes the locks that are free and renews those that the client has; returns these queues,
        in order."""
        now = self._now_ms()
        held = self._groups.setdefault(group, {})
        locked = []
        for queue in queues:
            owner = held.get(queue)
            if owner is None:
                if self._count >= MAX_LOCKS:
                    continue
                self._count += 1
                self.changed = True
            elif owner[0] != client_id:
                if self._holds(owner[1], now):
                    continue
                self.changed = True
            held[queue] = (client_id, now)
            locked.append(queue)
        if not held:
            del self._groups[group]
        return locked

    def unlock(self, group: str, queues: Iterable[Hashable], client_id: str) -> None:
        """Releases the locks on `queues` that the client holds."""
        held = self._groups.get(group)
        if held is None:
            return
        for queue in queues:
            owner = held.get(queue)
            if owner is not None and owner[0] == client_id:
                del held[queue]
                self._count -= 1
                self.changed = True
        if not held:
            del self._groups[group]

    def owner(self, group: str, queue: Hashable) -> str | None:
        """Returns the client that holds the queue; None where it is free."""
        owner = self._groups.get(group, {}).get(queue)
        if owner is None or not self._holds(owner[1], self._now_ms()):
            return None
        return owner[0]

    def holds_any(self, group: str) -> bool:
        """Returns whether a member of the group holds a lock, as members of orderly groups do."""
        now = self._now_ms()
        held = self._groups.get(group, {})
        return any(self._holds(since, now) for _, since in held.values())

    def forget_expired(self) -> Iterator[None]:
        """Removes locks that were not renewed for too long; a step for each thousand, between which
        locks may change."""
        now = self._now_ms()
        for group in list(self._groups):
            queues = list(self._groups.get(group, ()))
            for first in range(0, len(queues), _STEP):
                held = self._groups.get(group)
                if held is None:
                    break
                for queue in queues[first : first + _STEP]:
                    owner = held.get(queue)
                    if owner is not None and not self._holds(owner[1], now):
                        del held[queue]
                        self._count -= 1
                        self.changed = True
                if not held:
                    del self._groups[group]
                yield

    def _holds(self, since: int, now: int) -> bool:
        """Returns whether a lock that was taken or renewed at `since` is still held."""
        ended = self._role_ended
        if ended is not None and since <= ended and now - ended > LOCK_OUTLIVES_MS:
            return False
        return now - since <= self._expires_ms


class ClientLocks(Body):
    """The queues that one client of a group has locked."""

    group: str = ""
    client_id: str = ""
    queues: list[MessageQueue] = field(default_factory=list)


class LockTable(Body):
    """All locks of a broker, as its file has them."""

    locks: list[ClientLocks] = field(default_factory=list)


class LockFile(WriteBehindTable):
    """The file of `locks`, written when some were taken or freed."""

    def __init__(self, locks: RebalanceLock, file: TableFile) -> None:
        super().__init__(file.write)
        self._locks = locks
        self._file = file

    def load(self) -> None:
        """Takes what the file has; one that cannot be read counts as empty."""
        try:
            table = self._file.read(lambda data: decode_table(LockTable, data))
        except Exception:
            log.failure("the locks of orderly consumers cannot be read: they are taken anew")
            return
        for each in table.locks if table is not None else ():
            for queue in each.queues:
                self._locks.take_over(each.group, queue, each.client_id)

    def pending_write(self) -> Callable[[], bytes] | None:
        self._dirty |= self._locks.changed
        self._locks.changed = False
        return super().pending_write()

    def _encoder(self) -> Callable[[], bytes]:
        return self._encode

    def _encode(self) -> bytes:
        table = LockTable()
        for group, queues in self._locks.held():
            clients: dict[str, ClientLocks] = {}
            for queue, client_id in queues:
                if not isinstance(queue, MessageQueue):
                    continue
                if client_id not in clients:
                    clients[client_id] = ClientLocks(group=group, client_id=client_id)
                    table.locks.append(clients[client_id])
                clients[client_id].queues.append(queue)
        return encode_body(table)


class LockRequests:
    """Takes or renews locks on queues (41) and frees them (42); `group` asks the other brokers of
    the group where that is wanted."""

    def __init__(self, locks: RebalanceLock, group: GroupLocks) -> None:
        self._locks = locks
        self._group = group

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
        }

    def lock(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 41: locks queues for a client and returns those that it has now."""
        body = decode_request(LockBatchRequestBody, request.body, max_values=_MAX_VALUES)
        _check_number(body.mq_set)
        names.check_group(body.consumer_group)
        names.check_length("clientId", body.client_id)
        for queue in body.mq_set:
            names.check_length("topic", queue.topic)
            names.check_length("brokerName", queue.broker_name)
        locked = self._locks.lock(body.consumer_group, body.mq_set, body.client_id)
        if body.only_this_broker or self._group.quorum <= 1:
            return _locked(request, locked)
        granted = self._group.granted(body, locked)
        return granted.addCallback(lambda queues: _locked(request, queues))

    def unlock(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 42: releases a client's locks on queues."""
        body = decode_request(UnlockBatchRequestBody, request.body, max_values=_MAX_VALUES)
        _check_number(body.mq_set)
        self._locks.unlock(body.consumer_group, body.mq_set, body.client_id)
        if not body.only_this_broker:
            self._group.unlock(body)
        return request.response()


def _locked(request: RemotingCommand, queues: list[MessageQueue]) -> RemotingCommand:
    return request.response(body=encode_body(LockBatchResponseBody(lock_ok_mq_set=queues)))


def _check_number(queues: Sized) -> None:
    if len(queues) > _MAX_QUEUES:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER, f"{len(queues)} queues at once: ask for {_MAX_QUEUES}"
        )
