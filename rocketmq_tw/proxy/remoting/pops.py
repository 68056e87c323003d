"""Pops of classic clients (200050): messages that were popped for a client that is gone come back
soon."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.proxy.messaging.popped import read_popped
from rocketmq_tw.proxy.messaging.renewal import Renewal
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError, WireError

log = Logger()


class UndeliveredPops:
    """Looks whether clients are still there when the answers to their pops come. `renewal` has
    messages come back, those of gRPC clients as well."""

    def __init__(self, renewal: Renewal, config: ProxyConfig) -> None:
        self._renewal = renewal
        #: In ms, when polls are over that brokers hold now for a client that is gone.
        self._longest_poll = config.grpc_client_consumer_max_long_polling_timeout_millis

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
                self._bring_back(response, request, broker_name)
            return response

        return answer.addCallback(look)

    def _bring_back(
        self, response: RemotingCommand, request: RemotingCommand, broker_name: str
    ) -> None:
        topic = request.ext_fields.get("topic", "")
        group = request.ext_fields.get("consumerGroup", "")
        is_orderly = request.ext_fields.get("order", "").lower() == "true"
        try:
            messages = read_popped(response, broker_name, is_orderly=is_orderly)
        except (RequestError, WireError) as error:
            log.warn(
                "messages of {topic} that were popped for a client that is gone come when their"
                " invisible time is over: {error}",
                topic=topic,
                error=error,
            )
            return
        for message in messages:
            # They were popped just now. None of the clients that the proxy registers has them.
            left_ms = message.handle.info.invisible_time
            # The next poll for that client would take it, and one delivery after the other.
            returns_in = self._longest_poll if message.stored.reconsume_times else None
            self._renewal.bring_back_unrenewed(
                "", group, topic, message.handle, left_ms, returns_in
            )
