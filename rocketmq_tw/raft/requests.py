"""DLedger's requests as handlers of a remoting server.

Every answer is a response with code 200 whose body says the rest, as stock answers. Whatever is
wrong with a request is answered with the code of the protocol, logged, and changes nothing.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.net.changes import changed, who
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.raft.bodies import (
    REQUEST_BODIES,
    RESPONSE_BODIES,
    AppendRequest,
    AppendResponse,
    DLedgerBody,
    DLedgerBodyError,
    DLedgerRequestCode,
    GetRequest,
    GetResponse,
    MetadataResponse,
    PushRequestBody,
    TransferRequestBody,
    VoteResponseBody,
    decode_dledger_body,
    encode_dledger_body,
)
from rocketmq_tw.raft.core import messages as m
from rocketmq_tw.raft.core.codes import Code, PushKind, Refused, VoteResult
from rocketmq_tw.raft.member_addresses import MemberAddresses
from rocketmq_tw.raft.node import RaftNode
from rocketmq_tw.raft.pending import Applied
from rocketmq_tw.raft.translation import (
    entry_to_body,
    request_from_body,
    response_to_body,
)
from rocketmq_tw.wire.command import RemotingCommand

#: Answers that an election or the start of a leader's reign brings about; the others are logged.
_ROUTINE = {
    Code.SUCCESS.name,
    Code.TERM_NOT_READY.name,
    VoteResult.ACCEPT.name,
    VoteResult.REJECT_TERM_NOT_READY.name,
    VoteResult.REJECT_ALREADY_VOTED.name,
    VoteResult.REJECT_ALREADY_HAS_LEADER.name,
}
#: What members send each other.
_BETWEEN_MEMBERS = (
    DLedgerRequestCode.VOTE,
    DLedgerRequestCode.HEART_BEAT,
    DLedgerRequestCode.PUSH,
    DLedgerRequestCode.LEADERSHIP_TRANSFER,
    DLedgerRequestCode.INSTALL_SNAPSHOT,
)


class DLedgerRequests:
    """The handlers of one group; `table()` has one for each request code. Without `serves_clients`
    only members are served, and the request for the group's metadata. `members` says from where
    the word of a member counts."""

    log = Logger()

    def __init__(
        self, node: RaftNode, members: MemberAddresses, *, serves_clients: bool = True
    ) -> None:
        self._node = node
        self._members = members
        self._serves_clients = serves_clients
        self._group = node.config.group
        self._self_id = node.core.config.self_id

    def table(self) -> dict[int, Handler]:
        """Returns the handlers by request code."""
        serve: dict[DLedgerRequestCode, Callable[[Any], Deferred[DLedgerBody]]] = {
            DLedgerRequestCode.METADATA: self._metadata,
            DLedgerRequestCode.PULL: self._pull,
        }
        if self._serves_clients:
            serve[DLedgerRequestCode.APPEND] = self._append
            serve[DLedgerRequestCode.GET] = self._get
        serve.update(dict.fromkeys(_BETWEEN_MEMBERS, self._step))
        return {code.value: self._handler(code, action) for code, action in serve.items()}

    def _handler(
        self, code: DLedgerRequestCode, action: Callable[[Any], "Deferred[DLedgerBody]"]
    ) -> Handler:
        def handle(command: RemotingCommand, peer: IPeer) -> Any:
            body: DLedgerBody | None = None
            try:
                body = decode_dledger_body(REQUEST_BODIES[code], command.body)
                self._check_addressee(body)
                if code in _BETWEEN_MEMBERS:
                    self._check_sender(body, peer)
                answer = action(body)
            except (DLedgerBodyError, Refused) as error:
                return command.response(
                    Code.SUCCESS, body=encode_dledger_body(self._refusal(code, body, error, peer))
                )
            answer.addCallback(self._note, code, body, peer)
            answer.addErrback(self._failed, code, body, peer)
            return answer.addCallback(
                lambda response: command.response(Code.SUCCESS, body=encode_dledger_body(response))
            )

        return handle

    def _check_addressee(self, body: DLedgerBody) -> None:
        if body.remote_id != self._self_id:
            raise Refused(
                Code.UNKNOWN_MEMBER, f"{body.remote_id} is asked for, {self._self_id} is here"
            )
        if body.group != self._group:
            raise Refused(Code.UNKNOWN_GROUP, f"group {body.group} is not {self._group}")

    def _check_sender(self, body: DLedgerBody, peer: IPeer) -> None:
        speakers = [body.local_id, body.leader_id]
        if isinstance(body, TransferRequestBody) and body.transferee_id == self._self_id:
            # A client orders from the leader; only the leader's own word makes this member lead.
            speakers.append(body.transfer_id)
        for member in speakers:
            if member and not self._members.may_speak(member, peer.address):
                raise Refused(
                    Code.UNKNOWN_MEMBER,
                    f"{peer.address} speaks for {member}, whose address is"
                    f" {self._node.config.peers[member]}: where that member reaches others from"
                    " another address, name it in memberAddresses",
                )

    def _failed(
        self, failure: Failure, code: DLedgerRequestCode, body: DLedgerBody, peer: IPeer
    ) -> DLedgerBody:
        failure.trap(Refused)
        error = failure.value
        assert isinstance(error, Refused)
        return self._refusal(code, body, error, peer)

    def _refusal(
        self,
        code: DLedgerRequestCode,
        body: DLedgerBody | None,
        error: "DLedgerBodyError | Refused",
        peer: IPeer,
    ) -> DLedgerBody:
        """Makes the body of a refusal; it repeats the request's fields as stock does."""
        # A member without room tells that once, and others ask it again and again.
        if error.code is not Code.DISK_FULL:
            self._warn(code, peer, error.code.name, str(error))
        body = body or DLedgerBody()
        return RESPONSE_BODIES[code](
            group=body.group,
            remote_id=body.remote_id,
            local_id=body.local_id,
            term=body.term,
            code=error.code,
            leader_id=self._node.leader_id,
        )

    def _note(
        self, response: DLedgerBody, code: DLedgerRequestCode, body: DLedgerBody, peer: IPeer
    ) -> DLedgerBody:
        """Logs an order that was obeyed, and what the core refuses, except a COMPARE that finds a
        difference, which is usual."""
        said = Code(response.code).name
        if isinstance(response, VoteResponseBody):
            said = response.vote_result or said
        compares = isinstance(body, PushRequestBody) and body.type == PushKind.COMPARE.value
        if said not in _ROUTINE and not (compares and said == Code.INCONSISTENT_STATE.name):
            self._warn(
                code,
                peer,
                said,
                f"{body.leader_id or body.local_id} is in term {body.term}, we in"
                f" {self._node.core.term} with leader {self._node.leader_id}",
            )
        elif isinstance(body, TransferRequestBody) and body.transfer_id == self._self_id:
            self.log.info(
                "{peer} had {group} led by another member: {change}",
                peer=who(peer),
                group=self._group,
                change=changed(body.transferee_id, self._self_id),
            )
        return response

    def _warn(self, code: DLedgerRequestCode, peer: IPeer, said: str, reason: str) -> None:
        self.log.warn(
            "{group}/{member}: {request} of {peer} is answered with {code}: {reason}",
            group=self._group,
            member=self._self_id,
            request=code.name,
            peer=peer.address,
            code=said,
            reason=reason,
        )

    def _step(self, body: DLedgerBody) -> "Deferred[DLedgerBody]":
        answered = self._node.answer(lambda token: request_from_body(body, token))
        return answered.addCallback(self._stepped)

    def _stepped(self, message: m.RaftMessage) -> DLedgerBody:
        return response_to_body(message, self._group, self._node.leader_id)

    def _metadata(self, body: DLedgerBody) -> "Deferred[DLedgerBody]":
        return succeed(
            MetadataResponse(
                group=self._group,
                peers=self._node.config.peers,
                leader_id=self._node.leader_id,
            )
        )

    def _append(self, body: AppendRequest) -> "Deferred[DLedgerBody]":
        bodies = [body.body] if body.body is not None else body.batch_msgs
        if not bodies:
            raise Refused(Code.REQUEST_WITH_EMPTY_BODYS, "neither body nor batchMsgs is given")
        proposed = self._node.propose(bodies)
        if len(proposed) == 1:
            return proposed[0].addCallback(self._appended)
        together = gatherResults(proposed, consumeErrors=True)
        return together.addCallbacks(lambda applied: self._appended(applied[-1]), _first_failure)

    def _appended(self, applied: Applied) -> DLedgerBody:
        return AppendResponse(
            group=self._group,
            leader_id=self._self_id,
            term=applied.term,
            index=applied.index,
            pos=applied.pos,
        )

    def _get(self, body: GetRequest) -> "Deferred[DLedgerBody]":
        if not self._node.is_leader:
            raise Refused(Code.NOT_LEADER, f"{self._node.leader_id} leads the group")
        if body.begin_index is None:
            raise Refused(Code.UNEXPECTED_ARGUMENT, "beginIndex is missing")
        entry = self._node.committed_entry(body.begin_index)
        return succeed(GetResponse(group=self._group, entries=[entry_to_body(entry)]))

    def _pull(self, body: DLedgerBody) -> "Deferred[DLedgerBody]":
        raise Refused(Code.UNSUPPORTED, "stock defines PULL and serves it nowhere")


def _first_failure(failure: Failure) -> Failure:
    """Unwraps the first failure that `gatherResults` reports."""
    return failure.value.subFailure  # type: ignore[union-attr]
