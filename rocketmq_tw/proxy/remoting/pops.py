"""Pops of classic clients (200050): messages that were popped for a client that is gone come back
soon."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.proxy.messaging.popped import RETURN_MS, PopClient, PoppedMessage, read_popped
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError, WireError

log = Logger()


class UndeliveredPops:
    """Looks whether clients are still there when the answers to their pops come."""

    def __init__(self, popped: PopClient) -> None:
        self._popped = popped

    def watch(
        self,
        answer: Deferred[RemotingCommand],
        request: RemotingCommand,
        broker_name: str,
        peer: IPeer,
    ) -> Deferred[RemotingCommand]:
        """Returns `answer`, which has its messages come back where `peer` is gone by then."""

        def look(response: RemotingCommand) -> RemotingCommand:
            if response.code == ResponseCode.SUCCESS and not peer.connected:
                Deferred.fromCoroutine(self._bring_back(response, request, broker_name))
            return response

        return answer.addCallback(look)

    async def _bring_back(
        self, response: RemotingCommand, request: RemotingCommand, broker_name: str
    ) -> None:
        topic = request.ext_fields.get("topic", "")
        group = request.ext_fields.get("consumerGroup", "")
        is_orderly = request.ext_fields.get("order", "").lower() == "true"
        try:
            for message in read_popped(response, broker_name, is_orderly=is_orderly):
                await self._bring_back_one(topic, group, message)
        except (RequestError, WireError, RemotingError) as error:
            log.warn(
                "messages of {topic} that were popped for a client that is gone come when their"
                " invisible time is over: {error}",
                topic=topic,
                error=error,
            )
        except Exception:
            log.failure("bringing back messages of {topic}", topic=topic)

    async def _bring_back_one(self, topic: str, group: str, message: PoppedMessage) -> None:
        try:
            await self._popped.hide(topic, group, message.handle, RETURN_MS)
        except StatusError as error:
            log.warn("a message of {topic} is not brought back: {error}", topic=topic, error=error)
