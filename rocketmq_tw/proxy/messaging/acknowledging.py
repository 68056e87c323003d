"""AckMessage: the client is done with messages that it received."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from twisted.internet.defer import Deferred, gatherResults

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.proxy.brokers import IProxyClient
from rocketmq_tw.proxy.clients import ProxyClients
from rocketmq_tw.proxy.grpc.interfaces import ICall, Methods, RequestLimits
from rocketmq_tw.proxy.messaging.checks import check_group, check_topic, client_id_of
from rocketmq_tw.proxy.messaging.claims import Claim, Claims
from rocketmq_tw.proxy.messaging.methods import path, unary
from rocketmq_tw.proxy.messaging.popped import PopClient, can_be_batched
from rocketmq_tw.proxy.messaging.statuses import StatusError, ok, overall, status_of
from rocketmq_tw.proxy.proto.messaging_pb2 import (
    AckMessageRequest,
    AckMessageResponse,
    AckMessageResultEntry,
    Code,
    Status,
)
from rocketmq_tw.wire.errors import RequestError

#: Messages of one request.
MAX_ENTRIES = 1024
#: With handles of half their largest size.
_LIMITS = RequestLimits(largest=MAX_ENTRIES * 1024)
#: Requests to brokers for one of a client's, at a time.
_AT_ONCE = 32


class Acknowledging:
    """Answers acknowledgements, each entry for itself."""

    def __init__(
        self, popped: PopClient, claims: Claims, clients: ProxyClients, config: ProxyConfig
    ) -> None:
        self._popped = popped
        self._claims = claims
        self._clients = clients
        self._config = config

    def methods(self) -> Methods:
        """Returns the methods by path."""
        return {path("AckMessage"): unary(AckMessageRequest, AckMessageResponse, self.ack, _LIMITS)}

    async def ack(self, request: AckMessageRequest, call: ICall) -> AckMessageResponse:
        """Answers with a status for each entry, in their order."""
        client = self._clients.get(client_id_of(call))
        topic, group = check_topic(request.topic), check_group(request.group)
        count = len(request.entries)
        if not 0 < count <= MAX_ENTRIES:
            raise StatusError(
                Code.BAD_REQUEST, f"{count} entries: acknowledge 1 to {MAX_ENTRIES} messages"
            )
        entries: list[Status | Claim] = []
        for entry in request.entries:
            try:
                entries.append(await self._claims.claim(topic, group, entry.receipt_handle))
            except StatusError as error:
                entries.append(status_of(error))
        work = _Acknowledgement(self._popped, topic, group, client)
        if self._config.enable_batch_ack:
            await work.batches(entries)
        await work.rest(entries)
        statuses = [found for found in entries if isinstance(found, Status)]
        return AckMessageResponse(
            status=overall(statuses),
            entries=[
                AckMessageResultEntry(
                    message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=found
                )
                for entry, found in zip(request.entries, statuses, strict=True)
            ],
        )


class _Acknowledgement:
    """The acknowledgement of messages of one topic: it puts a status in the place of each claim."""

    def __init__(
        self, popped: PopClient, topic: str, group: str, client: IProxyClient | None
    ) -> None:
        self._popped = popped
        self._topic = topic
        self._group = group
        self._client = client

    async def batches(self, entries: list[Status | Claim]) -> None:
        """Asks each broker once for all of its messages that lie close together, and leaves those
        of brokers that do not take all of theirs: they are asked for one by one."""
        for indexes in _of_one_broker(entries):
            claims = [entry for i in indexes if isinstance(entry := entries[i], Claim)]
            handles = [claim.handle for claim in claims]
            try:
                await self._popped.acknowledge_all(self._topic, self._group, handles, self._client)
            except (StatusError, RequestError, RemotingError):
                continue
            for claim in claims:
                claim.done()
            for index in indexes:
                entries[index] = ok()

    async def rest(self, entries: list[Status | Claim]) -> None:
        """Asks brokers for one message after the other, a few at a time."""
        claims = [(i, entry) for i, entry in enumerate(entries) if isinstance(entry, Claim)]
        if len(claims) == 1:
            # As most clients ask: what waits for several costs as much as the request itself.
            ((index, claim),) = claims
            entries[index] = await self._one(claim)
            return
        for start in range(0, len(claims), _AT_ONCE):
            some = claims[start : start + _AT_ONCE]
            waiting = [Deferred.fromCoroutine(self._one(claim)) for _, claim in some]
            for (index, _), found in zip(some, await gatherResults(waiting), strict=True):
                entries[index] = found

    async def _one(self, claim: Claim) -> Status:
        try:
            await self._popped.acknowledge(self._topic, self._group, claim.handle, self._client)
        except Exception as error:
            claim.failed(error)
            return status_of(error)
        claim.done()
        return ok()


def _of_one_broker(entries: Sequence[Status | Claim]) -> Iterable[list[int]]:
    """Yields the indexes of messages that one request can acknowledge: two or more."""
    brokers: dict[str, list[int]] = {}
    for index, entry in enumerate(entries):
        if isinstance(entry, Claim) and can_be_batched(entry.handle):
            brokers.setdefault(entry.handle.info.broker_name, []).append(index)
    return [indexes for indexes in brokers.values() if len(indexes) > 1]
