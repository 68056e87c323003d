"""AckMessage: the client is done with messages that it received."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.proxy.clients import ProxyClients
from rocketmq_tw.proxy.grpc.interfaces import ICall, Methods, RequestLimits
from rocketmq_tw.proxy.messaging.checks import client_group, client_id_of, client_topic
from rocketmq_tw.proxy.messaging.claims import Claim, Claims, handle_of
from rocketmq_tw.proxy.messaging.methods import path, unary
from rocketmq_tw.proxy.messaging.popped import PopClient, can_be_batched
from rocketmq_tw.proxy.messaging.receipt_handles import ReceiptHandle
from rocketmq_tw.proxy.messaging.statuses import StatusError, ok, overall, status, status_of
from rocketmq_tw.proxy.proto.messages import (
    AckMessageRequest,
    AckMessageResponse,
    Code,
    Status,
)
from rocketmq_tw.wire.errors import RequestError

#: Messages of one request.
MAX_HANDLES = 1024
#: With handles of half their largest size.
_LIMITS = RequestLimits(largest=MAX_HANDLES * 1024)
#: Requests to brokers for one of a client's, at a time.
_AT_ONCE = 32
#: Messages of one request to a broker for several: 1024 take the broker, and a proxy in its
#: process, a tenth of a second.
_IN_BATCH = 64


class Acknowledging:
    """Answers acknowledgements, each entry for itself."""

    def __init__(
        self,
        clock: IReactorTime,
        popped: PopClient,
        claims: Claims,
        clients: ProxyClients,
        config: ProxyConfig,
    ) -> None:
        self._clock = clock
        self._popped = popped
        self._claims = claims
        self._clients = clients
        self._config = config

    def methods(self) -> Methods:
        """Returns the methods by path."""
        return {path("AckMessage"): unary(AckMessageRequest, AckMessageResponse, self.ack, _LIMITS)}

    async def ack(self, request: AckMessageRequest, call: ICall) -> AckMessageResponse:
        """Answers with a status for each entry, in their order. Others are served between some
        entries and the next."""
        topic, group = client_topic(request.topic), client_group(request.group)
        count = len(request.entries)
        if not 0 < count <= MAX_HANDLES:
            raise StatusError(
                Code.BAD_REQUEST, f"{count} entries: acknowledge 1 to {MAX_HANDLES} messages"
            )
        work = _Acknowledgement(
            self._popped, self._claims, self._clients, topic, group, call, self._config
        )
        response = AckMessageResponse()
        every: list[Status] = []
        for start in range(0, count, work.size):
            if start:
                await deferLater(self._clock, 0)
            some = request.entries[start : start + work.size]
            statuses = await work.statuses([entry.receipt_handle for entry in some])
            every += statuses
            for entry, found in zip(some, statuses, strict=True):
                # Filled in its place: parts that are made by themselves are copied.
                answer = response.entries.add()
                answer.message_id = entry.message_id
                answer.receipt_handle = entry.receipt_handle
                answer.status.CopyFrom(found)
        response.status.CopyFrom(overall(every))
        return response


class _Acknowledgement:
    """The acknowledgement of messages of one topic. Each is claimed just before its broker is
    asked: what is claimed is not renewed."""

    def __init__(
        self,
        popped: PopClient,
        claims: Claims,
        clients: ProxyClients,
        topic: str,
        group: str,
        call: ICall,
        config: ProxyConfig,
    ) -> None:
        self._popped = popped
        self._claims = claims
        self._client_id = client_id_of(call)
        self._client = clients.get(self._client_id)
        self._topic = topic
        self._group = group
        self._call = call
        self._batches = config.enable_batch_ack
        #: How many messages are acknowledged together at most.
        self.size = _IN_BATCH if self._batches else _AT_ONCE
        #: What became of each of these, by its place among them.
        self._found: dict[int, Status] = {}

    async def statuses(self, texts: Sequence[str]) -> list[Status]:
        """Returns what became of the message of each of some handles."""
        self._found = {}
        handles: dict[int, ReceiptHandle] = {}
        for index, text in enumerate(texts):
            try:
                handles[index] = handle_of(text)
            except StatusError as error:
                self._found[index] = status_of(error)
        if self._batches:
            for some in _of_one_broker(handles):
                if not self._call.is_over:
                    await self._batch(some)
        await self._rest([(i, handles[i]) for i in handles if i not in self._found])
        return [self._found[index] for index in range(len(texts))]

    async def _batch(self, handles: Mapping[int, ReceiptHandle]) -> None:
        """Asks a broker once for all of its messages that lie close together. Where it does not
        take all of them, they are asked for one by one."""
        waiting = [Deferred.fromCoroutine(self._claim(*item)) for item in handles.items()]
        claims = [claim for claim in await gatherResults(waiting) if claim is not None]
        batch = []
        for index, claim in claims:
            # It waited for the other claims.
            if can_be_batched(claim.handle) and not claim.is_late:
                batch.append((index, claim))
            else:
                claim.give_back()
        if len(batch) > 1:
            acknowledged = [claim.handle for _, claim in batch]
            try:
                await self._popped.acknowledge_all(
                    self._topic, self._group, acknowledged, self._client
                )
            except (StatusError, RequestError, RemotingError):
                pass
            else:
                for index, claim in batch:
                    claim.done()
                    self._found[index] = ok()
                return
        for _, claim in batch:
            claim.give_back()

    async def _claim(self, index: int, handle: ReceiptHandle) -> tuple[int, Claim] | None:
        try:
            return index, await self._sure_claim(handle)
        except Exception as error:
            self._found[index] = status_of(error)
            return None

    async def _sure_claim(self, handle: ReceiptHandle) -> Claim:
        claim = await self._claims.claim(self._client_id, self._topic, self._group, handle)
        try:
            await claim.make_sure()
        except Exception as error:
            claim.failed(error)
            raise
        return claim

    async def _rest(self, handles: Sequence[tuple[int, ReceiptHandle]]) -> None:
        """Asks brokers for one message after the other, a few at a time, until the caller is
        gone."""
        if len(handles) == 1:
            # As most clients ask: what waits for several costs as much as the request itself.
            await self._one(*handles[0])
            return
        for start in range(0, len(handles), _AT_ONCE):
            some = handles[start : start + _AT_ONCE]
            if self._call.is_over:
                for index, _ in some:
                    self._found[index] = status(Code.REQUEST_TIMEOUT, "the call ended before")
            else:
                await gatherResults([Deferred.fromCoroutine(self._one(*item)) for item in some])

    async def _one(self, index: int, handle: ReceiptHandle) -> None:
        try:
            claim = await self._sure_claim(handle)
            try:
                await self._popped.acknowledge(self._topic, self._group, claim.handle, self._client)
            except Exception as error:
                claim.failed(error)
                raise
        except Exception as error:
            self._found[index] = status_of(error)
        else:
            claim.done()
            self._found[index] = ok()


def _of_one_broker(handles: Mapping[int, ReceiptHandle]) -> Iterable[dict[int, ReceiptHandle]]:
    """Yields the messages of each broker that has two or more of them."""
    brokers: dict[str, dict[int, ReceiptHandle]] = {}
    for index, handle in handles.items():
        brokers.setdefault(handle.info.broker_name, {})[index] = handle
    return [some for some in brokers.values() if len(some) > 1]
