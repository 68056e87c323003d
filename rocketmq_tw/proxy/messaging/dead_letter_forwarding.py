"""Messages that consumers give up are stored as dead letters, each once: their consumers ask again
until they are told of success."""

from __future__ import annotations

from typing import NamedTuple

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.proxy.brokers import IProxyClient
from rocketmq_tw.proxy.messaging.hiding import may_be_done
from rocketmq_tw.proxy.messaging.popped import PopClient
from rocketmq_tw.proxy.messaging.receipt_handles import ReceiptHandle
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.proto.messages import Code
from rocketmq_tw.runtime.shared_results import JoinedResults
from rocketmq_tw.wire.errors import RequestError

#: Seconds for which the answer of a broker is waited for, however long its client waits: one that
#: is missed leaves unknown whether there is a dead letter.
_ANSWER_SECONDS = 15.0
#: Dead letters that are remembered, the last ones, some 1 KiB each, and that are being stored.
MOST_REMEMBERED = 10_000

_log = Logger()


class GivenUp(NamedTuple):
    """A delivery of a message that a consumer gives up; `handle` is the consumer's."""

    topic: str
    group: str
    handle: ReceiptHandle


class DeadLetterForwarding:
    """Has brokers store dead letters, and remembers which they have stored."""

    def __init__(self, popped: PopClient) -> None:
        self._popped = popped
        self._under_way = JoinedResults[GivenUp, None]()
        #: What became of others: True where they are stored, False where nobody knows; the longest
        #: ago is first.
        self._is_stored: dict[GivenUp, bool] = {}

    def forward(
        self, given_up: GivenUp, handle: ReceiptHandle, message_id: str, client: IProxyClient | None
    ) -> Deferred[None]:
        """Fires once a message is stored as a dead letter, by now or before; fails as
        `PopClient.forward` does. `handle` is what brokers accept for it now. Where it is cancelled,
        the broker's answer counts all the same for those that ask later."""
        if self._is_stored.get(given_up):
            return succeed(None)
        if given_up not in self._under_way and len(self._under_way) >= MOST_REMEMBERED:
            return fail(
                StatusError(Code.TOO_MANY_REQUESTS, "brokers are slow to store dead letters")
            )

        def store() -> Deferred[None]:
            stored = Deferred.fromCoroutine(self._store(given_up, handle, message_id, client))
            return stored.addErrback(self._failed, given_up)

        return self._under_way.get(given_up, store)

    async def _store(
        self, given_up: GivenUp, handle: ReceiptHandle, message_id: str, client: IProxyClient | None
    ) -> None:
        topic, group, told = given_up
        is_doubted = given_up in self._is_stored
        if not is_doubted or not await self._popped.is_dead_letter(group, told, message_id, client):
            try:
                await self._popped.forward(
                    topic, group, handle, message_id, client, _ANSWER_SECONDS
                )
            except (StatusError, RequestError, RemotingError) as error:
                if may_be_done(error):
                    self._remember(given_up, is_stored=False)
                raise
        self._remember(given_up, is_stored=True)

    def _remember(self, given_up: GivenUp, *, is_stored: bool) -> None:
        self._is_stored.pop(given_up, None)
        self._is_stored[given_up] = is_stored
        if len(self._is_stored) > MOST_REMEMBERED:
            del self._is_stored[next(iter(self._is_stored))]

    def _failed(self, failure: Failure, given_up: GivenUp) -> Failure:
        if not self._under_way.waiting(given_up):
            _log.warn(
                "a message of {topic} is no dead letter of {group}: {error}",
                topic=given_up.topic,
                group=given_up.group,
                error=failure.value,
            )
        return failure
