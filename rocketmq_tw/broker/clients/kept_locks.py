"""The locks of orderly consumers in `config/rebalanceLock.json`, so that they outlive the broker.

A client goes on with the queues that it has locked for half a minute without a word from the
broker. One that started without locks would give them to another client meanwhile, and both would
consume the same queues.
"""

from __future__ import annotations

from typing import Any

from msgspec import field
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.clients.locks import RebalanceLock
from rocketmq_tw.broker.tables.versioned import TableFile
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.wire.bodies.base import Body, decode_table, encode_body
from rocketmq_tw.wire.bodies.queues import MessageQueue

log = Logger()


class ClientLocks(Body):
    """The queues that one client of a group has locked."""

    group: str = ""
    client_id: str = ""
    queues: list[MessageQueue] = field(default_factory=list)


class LockTable(Body):
    """All locks."""

    locks: list[ClientLocks] = field(default_factory=list)


class KeptLocks:
    """Writes locks to `file` when some were taken or freed, and takes those of a file over."""

    def __init__(self, locks: RebalanceLock, file: TableFile, in_thread: InThread) -> None:
        self._locks = locks
        self._file = file
        self._in_thread = in_thread

    def load(self) -> None:
        """Takes what the file has; one that cannot be read is as none."""
        try:
            table = self._file.read(lambda data: decode_table(LockTable, data))
        except Exception:
            log.failure("the locks of orderly consumers cannot be read: they are taken anew")
            return
        for each in table.locks if table is not None else ():
            for queue in each.queues:
                self._locks.take_over(each.group, queue, each.client_id)

    def save(self) -> Deferred[Any]:
        """Fires once the file has all locks; a write that fails is due again."""
        if not self._locks.changed:
            return succeed(None)
        self._locks.changed = False

        def failed(failure: Failure) -> Failure:
            self._locks.changed = True
            return failure

        return self._in_thread(self._write).addErrback(failed)

    def _write(self) -> None:
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
        self._file.write(encode_body(table))
