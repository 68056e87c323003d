"""Requests 324 and 325: a reply is passed on to the client that waits for it.

The requester is the producer client that the property REPLY_TO_CLIENT names. It gets the reply over
its own connection (326), and the replier is answered once the requester has answered. The stored
copy serves consumers that look for the reply later; where it cannot be stored, that is only logged.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.clients.registry import ClientRegistry
from rocketmq_tw.broker.sending.checks import SendChecks, any_queue
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.writing.own_properties import answered_properties
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.broker.writing.redirects import Draft
from rocketmq_tw.broker.writing.sink import PutResult
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.model import COMPRESSED, COMPRESSION_TYPE, StoredMessage
from rocketmq_tw.message.properties import join_properties, parse_properties
from rocketmq_tw.message.types import message_type
from rocketmq_tw.net.address import join_address, split_address
from rocketmq_tw.net.errors import ConnectionLost, RequestTimeout
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    read_send_header,
)

#: Seconds that the requester gets to say that it has the reply, as in stock.
REQUESTER_TIMEOUT = 10.0

log = Logger()


class ReplyRequests:
    """Passes replies on, then stores them where `storeReplyMessageEnable` says so.

    Bodies of replies that wait for their requester count into what sends may have in flight.
    """

    def __init__(
        self,
        host: Host,
        writing: Writing,
        tables: Tables,
        clients: ClientRegistry,
        addresses: Addresses,
        checks: SendChecks,
    ) -> None:
        self._config = host.config
        self._now_ms = host.now_ms
        self._sink = writing.sink
        self._incoming = writing.incoming
        self._redirects = writing.redirects
        self._announcements = tables.announcements
        self._clients = clients
        self._addresses = addresses
        self._checks = checks

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.reply,
        }

    def reply(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Fires with SUCCESS once the requester has the reply, else with SYSTEM_ERROR; raises
        `RequestError` where the message is one that may not be sent."""
        header = read_send_header(request.code, request.ext_fields)
        topic = self._checks.check(header, request.body, peer)
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = any_queue(topic)
        self._checks.in_flight += len(request.body)

        def passed_on(problem: str) -> Deferred[dict[str, str]]:
            self._checks.in_flight -= len(request.body)
            problems.append(problem)
            return self._store(header, queue_id, request.body, peer)

        def answer(stored: dict[str, str]) -> RemotingCommand | Deferred[RemotingCommand]:
            problem = problems[0]
            response = request.response(ResponseCode.SYSTEM_ERROR if problem else 0, problem)
            if not problem:
                # Stock's clients fail to read an answer without an id.
                response.ext_fields |= {"msgId": "0", "queueOffset": "0"}
                response.ext_fields["queueId"] = str(queue_id)
            response.ext_fields |= stored
            response.ext_fields |= answered_properties(self._config)
            return self._announcements.hold(response, header.topic)

        problems: list[str] = []
        return self._pass_on(header, request.body, peer).addCallback(passed_on).addCallback(answer)

    def _pass_on(self, header: SendMessageRequestHeader, body: bytes, peer: IPeer) -> Deferred[str]:
        """Fires with what is wrong; with nothing once the requester has the reply."""
        properties = parse_properties(header.properties or "")
        requester = properties.get(props.REPLY_TO_CLIENT)
        if requester is None:
            return succeed(f"the reply names no requester: set its {props.REPLY_TO_CLIENT}")
        found = self._clients.producer_peer(requester)
        if found is None:
            return succeed(f"the requester {requester} is not connected to this broker")
        now = self._now_ms()
        properties[props.PUSH_REPLY_TIME] = str(now)
        push = ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            born_host=peer.address,
            store_host=join_address(*self._addresses.store_host),
            properties=join_properties(properties).decode("utf-8"),
            reconsume_times=header.reconsume_times,
            unit_mode=bool(header.unit_mode),
            store_timestamp=now,
        )
        command = RemotingCommand.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, push, body)

        def took(response: RemotingCommand) -> str:
            if response.code == ResponseCode.SUCCESS:
                return ""
            return f"the requester {requester} refused the reply: {response.remark}"

        def failed(failure: Failure) -> str:
            failure.trap(RequestTimeout, ConnectionLost)
            return f"the reply did not reach the requester {requester}: {failure.value}"

        return found.request(command, REQUESTER_TIMEOUT).addCallbacks(took, failed)

    def _store(
        self, header: SendMessageRequestHeader, queue_id: int, body: bytes, peer: IPeer
    ) -> Deferred[dict[str, str]]:
        """Fires with the answer's fields about the stored copy; with none where there is none."""
        if not self._config.store_reply_message_enable:
            return succeed({})
        # The properties as they came: what the broker adds to other messages is not in a reply.
        properties = parse_properties(header.properties or "")
        message = StoredMessage(
            topic=header.topic,
            queue_id=queue_id,
            body=body,
            flag=header.flag,
            sys_flag=header.sys_flag & (COMPRESSED | COMPRESSION_TYPE),
            born_timestamp=header.born_timestamp,
            born_host=split_address(peer.address),
            store_host=self._addresses.store_host,
            reconsume_times=header.reconsume_times or 0,
        )
        draft = Draft(message, properties)

        def put() -> Deferred[PutResult]:
            self._redirects.route_by_property(draft)
            draft.write_properties()
            return self._sink.put(message, wait=props.waits_for_store(properties))

        def ended(result: PutResult) -> dict[str, str]:
            if not result.is_stored:
                raise RequestError(result.code, result.code.name)
            type_ = message_type(properties)
            self._incoming.count(message.topic, type_, 1, result.appended)
            return {
                "msgId": result.appended.message_ids,
                "queueId": str(queue_id),
                "queueOffset": str(result.appended.queue_offset),
            }

        def not_stored(failure: Failure) -> dict[str, str]:
            failure.trap(RequestError)
            log.warn(
                "a reply to {topic} is not stored: {why}", topic=header.topic, why=failure.value
            )
            return {}

        return maybeDeferred(put).addCallback(ended).addErrback(not_stored)
