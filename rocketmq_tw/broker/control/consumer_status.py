"""Request 223: the offsets that connected consumers work with, each of which is asked (221)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger

from rocketmq_tw.broker.clients.registry import Client, ClientRegistry
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.runtime.slices import InSlices, every
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.queues import ConsumerStatusBody
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.offsets import GetConsumerStatusRequestHeader

log = Logger()

#: Seconds that a client gets to answer with its offsets.
STATUS_TIMEOUT = 5.0
#: Bytes of the answer of one client, enough for some 10,000 queues, and of all of them together,
#: for which a frame of stock's clients has room.
MAX_STATUS_BYTES = 1 << 20
MAX_ALL_BYTES = 12 << 20
#: Bytes of answers that are parsed and encoded outside a thread.
_SMALL_ANSWER = 4096


class ConsumerStatusRequests:
    """Asks clients in steps and parses their answers in a thread, since there may be many and long
    ones."""

    def __init__(
        self,
        clients: ClientRegistry,
        in_slices: InSlices,
        in_thread: InThread,
    ) -> None:
        self._clients = clients
        self._in_slices = in_slices
        self._in_thread = in_thread

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.consumer_status}

    def consumer_status(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Answers 223: the offsets of each connected consumer, or of the named one."""
        header = request.header(GetConsumerStatusRequestHeader)
        group = self._clients.consumer_group(header.group)
        clients = [
            client
            for client in (() if group is None else group.clients.values())
            if header.client_addr in (None, "", client.client_id)
        ]
        if not clients:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"no consumer of group {header.group} is connected to this broker: start one, or"
                " ask another broker",
            )
        question = GetConsumerStatusRequestHeader(topic=header.topic, group=header.group)
        answers = _Answers()
        answered: list[Deferred[Any]] = []
        asked = self._in_slices(_ask(clients, question, answers, answered))
        asked.addCallback(lambda _: DeferredList(answered))
        return asked.addCallback(lambda _: self._answer(request, answers))

    def _answer(
        self, request: RemotingCommand, answers: _Answers
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        if answers.size > MAX_ALL_BYTES:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the consumers tell offsets of more than {MAX_ALL_BYTES} bytes, which no answer"
                " has room for: ask one client at a time",
            )
        if answers.size <= _SMALL_ANSWER:
            return request.response(body=answers.joined())
        return self._in_thread(answers.joined).addCallback(lambda body: request.response(body=body))


class _Answers:
    """The answers of clients, by their ids."""

    def __init__(self) -> None:
        self.size = 0
        self._bodies: dict[str, bytes] = {}

    def take(self, reply: RemotingCommand, client: Client) -> None:
        """Keeps the body while it and all have room; raises `ValueError` for one too large."""
        size = len(reply.body)
        if size > MAX_STATUS_BYTES:
            raise ValueError(f"{size} bytes, {MAX_STATUS_BYTES} are the limit")
        self.size += size
        if self.size > MAX_ALL_BYTES:
            self._bodies.clear()
        elif reply.code == ResponseCode.SUCCESS and size:
            self._bodies[client.client_id] = reply.body

    def joined(self) -> bytes:
        """Returns the body of the response; may be called in any thread. Answers that cannot be
        parsed are left out."""
        body = ConsumerStatusBody()
        for client_id, data in self._bodies.items():
            try:
                status = decode_body(ConsumerStatusBody, data)
            except ValueError as error:
                _warn(client_id, str(error))
            else:
                body.consumer_table[client_id] = status.message_queue_table
        return encode_body(body)


def _ask(
    clients: Sequence[Client],
    question: GetConsumerStatusRequestHeader,
    answers: _Answers,
    answered: list[Deferred[Any]],
) -> Iterator[None]:
    """Asks all clients, in steps; adds to `answered` what fires once a client has answered."""
    for number, client in enumerate(clients):
        command = RemotingCommand.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, question)
        answer = client.peer.request(command, STATUS_TIMEOUT)
        answer.addCallback(answers.take, client)
        answer.addErrback(
            lambda failure, client: _warn(client.client_id, failure.getErrorMessage()), client
        )
        answered.append(answer)
        if every(number):
            yield


def _warn(client_id: str, why: str) -> None:
    log.warn("client {client} does not tell its offsets: {why}", client=client_id, why=why)
