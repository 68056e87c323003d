"""Requests of one member to another, as messages of the core."""

from collections.abc import Mapping

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.net.interfaces import IRemotingClient
from rocketmq_tw.raft.bodies import (
    RESPONSE_BODIES,
    DLedgerBodyError,
    DLedgerRequestCode,
    decode_dledger_body,
    encode_dledger_body,
)
from rocketmq_tw.raft.core import messages as m
from rocketmq_tw.raft.translation import no_answer, request_to_body, response_from_body
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand


class PeerCalls:
    """Sends a message to its target's address, `peers[message.target]`, and reads the answer."""

    log = Logger()

    def __init__(
        self, client: IRemotingClient, group: str, peers: Mapping[str, str], timeout: float
    ) -> None:
        """`timeout` is how long a peer may take to answer, in seconds."""
        self._client = client
        self._group = group
        self._peers = peers
        self._timeout = timeout

    def call(self, message: m.RaftMessage) -> "Deferred[m.RaftMessage]":
        """Fires with the answer, or with `no_answer` where none comes or it cannot be read."""
        code, body = request_to_body(message, self._group)
        command = RemotingCommand.request(code, body=encode_dledger_body(body))
        answered = self._client.request(self._peers[message.target], command, self._timeout)
        return answered.addCallback(self._read, message, code).addErrback(
            self._log_no_answer, message
        )

    def _read(
        self, response: RemotingCommand, request: m.RaftMessage, code: DLedgerRequestCode
    ) -> m.RaftMessage:
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return no_answer(request, unsupported=True)
        try:
            body = decode_dledger_body(RESPONSE_BODIES[code], response.body)
        except DLedgerBodyError as error:
            self.log.warn(
                "{peer} answered request {code} with {response}: {reason}",
                peer=request.target,
                code=code,
                response=response.code,
                reason=error,
            )
            return no_answer(request)
        return response_from_body(request, body)

    def _log_no_answer(self, failure: Failure, request: m.RaftMessage) -> m.RaftMessage:
        self.log.debug(
            "no answer of {peer}: {reason}",
            peer=request.target,
            reason=failure.getErrorMessage(),
        )
        return no_answer(request)
