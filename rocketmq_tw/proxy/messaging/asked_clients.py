"""Requests of brokers to gRPC clients (39, 307, 309): each becomes a command of the client's
Telemetry stream, and what the client answers there a response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count

from twisted.internet.defer import Deferred, TimeoutError, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.message.record import decode_record
from rocketmq_tw.proxy.clients import ProxyClient
from rocketmq_tw.proxy.messaging.messages import message_of
from rocketmq_tw.proxy.messaging.subscriptions import consume_type_of, subscriptions_of
from rocketmq_tw.proxy.messaging.unpacking import Unpacking
from rocketmq_tw.proxy.proto.messages import (
    Code,
    PrintThreadStackTraceCommand,
    TelemetryCommand,
    VerifyMessageCommand,
)
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.clients import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError, WireError
from rocketmq_tw.wire.headers.clients import GetConsumerRunningInfoRequestHeader

#: Questions that one client has open.
MAX_OPEN = 16
#: Characters of a stack trace that are taken.
MAX_TRACE = 1 << 20
#: What a client's status is for the tool that had a message consumed.
_RESULTS = {
    Code.OK: "CR_SUCCESS",
    Code.FAILED_TO_CONSUME_MESSAGE: "CR_LATER",
    Code.MESSAGE_CORRUPTED: "CR_RETURN_NULL",
}

#: Asks a client about a transaction, as a broker wants to know (39).
Recover = Callable[[ProxyClient, RemotingCommand], Deferred[RemotingCommand]]


class AskedClients:
    """Hands requests of brokers on to gRPC clients; `recover` those about transactions."""

    def __init__(
        self, clock: IReactorTime, recover: Recover, unpacking: Unpacking, config: ProxyConfig
    ) -> None:
        self._clock = clock
        self._recover = recover
        self._unpacking = unpacking
        self._most_seconds = config.grpc_proxy_relay_request_timeout_in_seconds
        self._nonces = count(1)
        self._open: dict[ProxyClient, dict[str, Deferred[TelemetryCommand]]] = {}

    def hand_on(
        self, client: ProxyClient, request: RemotingCommand, timeout: float
    ) -> Deferred[RemotingCommand]:
        """Asks a client, as `IProxyClient.ask` says."""
        seconds = min(timeout, self._most_seconds)
        return Deferred.fromCoroutine(self._handed_on(client, request, seconds))

    def answered(self, client: ProxyClient, command: TelemetryCommand) -> None:
        """Takes an answer of a client; one that nobody waits for is dropped."""
        kind = command.WhichOneof("command")
        nonce = getattr(command, kind).nonce if kind else ""
        waiting = self._open.get(client, {}).get(nonce)
        if waiting is not None and not waiting.called:
            waiting.callback(command)

    async def _handed_on(
        self, client: ProxyClient, request: RemotingCommand, timeout: float
    ) -> RemotingCommand:
        try:
            return await self._hand_on(client, request, timeout)
        except RequestError:
            raise
        except (WireError, ValueError) as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"{request.code}: {error}") from error

    async def _hand_on(
        self, client: ProxyClient, request: RemotingCommand, timeout: float
    ) -> RemotingCommand:
        if request.code == RequestCode.CHECK_TRANSACTION_STATE:
            return await self._recover(client, request)
        if request.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            return await self._running_info(client, request, timeout)
        if request.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            stored = decode_record(request.body)

            async def verify(nonce: str) -> TelemetryCommand:
                message = message_of(await self._unpacking.unpacked(stored, client.address))
                return TelemetryCommand(
                    verify_message_command=VerifyMessageCommand(nonce=nonce, message=message)
                )

            return _consumed(request, await self._ask(client, verify, timeout))
        if request.code in (
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
        ):
            # Its queues are divided, and its offsets kept, by the broker alone.
            return request.response()
        raise RequestError(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            f"{client.client_id} is a gRPC client: it is not asked {request.code}",
        )

    def _running_info(
        self, client: ProxyClient, request: RemotingCommand, timeout: float
    ) -> Deferred[RemotingCommand]:
        header = request.header(GetConsumerRunningInfoRequestHeader)
        info = ConsumerRunningInfo(
            properties={
                "PROP_CLIENT_VERSION": client.language,
                "PROP_CONSUME_TYPE": consume_type_of(client),
            },
            subscription_set=subscriptions_of(client),
        )
        if not header.jstack_enable:
            return succeed(request.response(body=encode_body(info)))

        def traced(answer: TelemetryCommand) -> RemotingCommand:
            if answer.status.code != Code.OK:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR,
                    f"{client.client_id} gave no stack: {answer.status.message}",
                )
            info.jstack = answer.thread_stack_trace.thread_stack_trace[:MAX_TRACE]
            return request.response(body=encode_body(info))

        asked = self._ask(
            client,
            lambda nonce: succeed(
                TelemetryCommand(
                    print_thread_stack_trace_command=PrintThreadStackTraceCommand(nonce=nonce)
                )
            ),
            timeout,
        )
        return asked.addCallback(traced)

    def _ask(
        self,
        client: ProxyClient,
        make: Callable[[str], Awaitable[TelemetryCommand]],
        timeout: float,
    ) -> Deferred[TelemetryCommand]:
        """Asks what `make` returns for the number of the question; it counts as open while that is
        made."""
        nonce = str(next(self._nonces))
        questions = self._open.setdefault(client, {})
        if len(questions) >= MAX_OPEN:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                f"{client.client_id} has {MAX_OPEN} questions open: ask again later",
            )
        answer: Deferred[TelemetryCommand] = Deferred()
        questions[nonce] = answer

        async def tell() -> None:
            command = await make(nonce)
            if not answer.called:
                _tell(client, command)

        def failed(failure: Failure) -> None:
            if not answer.called:
                answer.errback(failure)

        def close(_: None) -> None:
            del questions[nonce]
            if not questions:
                self._open.pop(client, None)

        def ended(result: object) -> object:
            # What it would be told may be in the making still.
            telling.addCallback(close)
            if isinstance(result, Failure) and result.check(TimeoutError):
                raise RequestError(
                    ResponseCode.CONSUME_MSG_TIMEOUT,
                    f"{client.client_id} did not answer within {timeout} s",
                )
            return result

        answer.addTimeout(timeout, self._clock)
        telling = Deferred.fromCoroutine(tell()).addErrback(failed)
        return answer.addBoth(ended)


def _tell(client: ProxyClient, command: TelemetryCommand) -> None:
    if not client.tell(command):
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"{client.client_id} has no open stream: ask again later"
        )


def _consumed(request: RemotingCommand, answer: TelemetryCommand) -> RemotingCommand:
    result = ConsumeMessageDirectlyResult(
        consume_result=_RESULTS.get(answer.status.code, "CR_THROW_EXCEPTION"),
        remark=answer.status.message or "from gRPC client",
    )
    return request.response(body=encode_body(result))
