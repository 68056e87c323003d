"""Questions of brokers about transactions whose decision did not come (39): each becomes a command
of the client's Telemetry stream."""

from __future__ import annotations

from collections import Counter

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.message.model import COMPRESSED, StoredMessage
from rocketmq_tw.message.properties import PGROUP, UNIQ_KEY, parse_properties
from rocketmq_tw.message.record import RecordError, decode_record
from rocketmq_tw.net.address import join_address
from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.clients import ProxyClient
from rocketmq_tw.proxy.messaging.messages import message_of
from rocketmq_tw.proxy.messaging.streams import when_ready
from rocketmq_tw.proxy.messaging.transaction_ids import TransactionId
from rocketmq_tw.proxy.messaging.transactions import HalfPlaces
from rocketmq_tw.proxy.messaging.unpacking import Unpacking
from rocketmq_tw.proxy.proto.messages import (
    RecoverOrphanedTransactionCommand,
    TelemetryCommand,
)
from rocketmq_tw.runtime.fairness import SerialQueue
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import CheckTransactionStateRequestHeader

#: Packed half messages that wait for one client. Brokers ask about others again, every 30 to 60 s.
MAX_PACKED = 64

_log = Logger()


class OrphanQuestions:
    """Hands questions on. Half messages that are packed are told one at a time to each client,
    which keeps up: unpacked, they take up to forty times a message's room."""

    def __init__(self, brokers: IBrokers, halves: HalfPlaces, unpacking: Unpacking) -> None:
        self._brokers = brokers
        self._halves = halves
        self._unpacking = unpacking
        self._of_client = SerialQueue[ProxyClient]()
        self._waiting = Counter[ProxyClient]()

    def recover(self, client: ProxyClient, request: RemotingCommand) -> Deferred[RemotingCommand]:
        """Asks a client about a transaction whose decision did not come, as a broker wants to know.
        Fires once the client is told, fails with `RequestError` where it cannot be."""
        return Deferred.fromCoroutine(self._recover(client, request))

    async def _recover(self, client: ProxyClient, request: RemotingCommand) -> RemotingCommand:
        header = request.header(CheckTransactionStateRequestHeader)
        try:
            half = decode_record(request.body)
        except RecordError as error:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"the half message cannot be read: {error}"
            ) from error
        properties = parse_properties(half.properties)
        transaction_id = header.transaction_id or properties.get(UNIQ_KEY)
        topic = properties.get(PGROUP, half.topic)
        broker_name = header.bname or await self._broker_of(half)
        if not transaction_id or not broker_name:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                "the question names no transaction, or comes from an unknown broker",
            )
        told_id = TransactionId(
            transaction_id,
            broker_name,
            header.tran_state_table_offset,
            header.commit_log_offset,
        )
        self._halves.remember(topic, told_id)
        if half.sys_flag & COMPRESSED:
            await self._tell_packed(client, half, properties, told_id)
        else:
            _tell(client, half, properties, told_id)
        _log.debug("{client} is asked about {id}", client=client.client_id, id=transaction_id)
        return request.response()

    async def _tell_packed(
        self,
        client: ProxyClient,
        half: StoredMessage,
        properties: dict[str, str],
        told_id: TransactionId,
    ) -> None:
        if self._waiting[client] >= MAX_PACKED:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                f"{MAX_PACKED} questions wait for {client.client_id}: ask again later",
            )

        async def tell() -> None:
            if client.stream is not None:
                await when_ready(client.stream)
            if not client.has_stream:
                raise _no_stream(client)
            shown = await self._unpacking.unpacked(half, client.address)
            _tell(client, shown, properties, told_id)

        self._waiting[client] += 1
        try:
            await self._of_client.run(client, lambda: Deferred.fromCoroutine(tell()))
        finally:
            self._waiting[client] -= 1
            if not self._waiting[client]:
                del self._waiting[client]

    async def _broker_of(self, half: StoredMessage) -> str | None:
        """Returns the name of the broker that stores a half message; older ones do not say it."""
        route = await self._brokers.route(half.topic)
        address = join_address(*half.store_host)
        for data in route.broker_datas if route is not None else ():
            if address in data.broker_addrs.values():
                return data.broker_name
        return None


def _tell(
    client: ProxyClient, half: StoredMessage, properties: dict[str, str], told_id: TransactionId
) -> None:
    command = RecoverOrphanedTransactionCommand(
        message=message_of(half, properties), transaction_id=str(told_id)
    )
    if not client.tell(TelemetryCommand(recover_orphaned_transaction_command=command)):
        raise _no_stream(client)


def _no_stream(client: ProxyClient) -> RequestError:
    return RequestError(
        ResponseCode.SYSTEM_ERROR, f"the client {client.client_id} has no stream to ask by"
    )
