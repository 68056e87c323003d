"""Messages between members, from the core's values (`core/messages.py`) to DLedger's bodies
(`bodies.py`) and back. What comes in is checked here: the core takes it for well-formed.
"""

from typing import Any

from rocketmq_tw.raft.bodies import (
    DLedgerBody,
    DLedgerBodyError,
    DLedgerRequestCode,
    EntryBody,
    HeartbeatRequestBody,
    HeartbeatResponseBody,
    PushRequestBody,
    PushResponseBody,
    SnapshotRequestBody,
    SnapshotResponseBody,
    TransferRequestBody,
    TransferResponseBody,
    VoteRequestBody,
    VoteResponseBody,
)
from rocketmq_tw.raft.core import messages as m
from rocketmq_tw.raft.core.codes import Code, PushKind, VoteResult
from rocketmq_tw.raft.core.entry import MAGIC, Entry, crc_fits

#: No log gets this far; what is added to a position behind it may not fit in 64 bits.
_FARTHEST = 1 << 62


def entry_to_body(entry: Entry) -> EntryBody:
    return EntryBody(
        magic=entry.magic,
        size=entry.size,
        index=entry.index,
        term=entry.term,
        pos=entry.pos,
        channel=entry.channel,
        chain_crc=entry.chain_crc,
        body_crc=entry.body_crc,
        body=entry.body,
    )


def entry_from_body(body: EntryBody) -> Entry:
    """Reads the entry. Raises `DLedgerBodyError`: INCONSISTENT_STATE where its CRC is wrong."""
    entry = Entry(
        body.index,
        body.term,
        body.pos,
        body.body,
        body.chain_crc,
        body.body_crc,
        body.channel,
        body.magic,
    )
    if body.magic != MAGIC or min(body.index, body.term, body.pos) < 0:
        raise DLedgerBodyError(
            Code.UNEXPECTED_ARGUMENT, f"entry {body.index} at {body.pos} is none"
        )
    if not crc_fits(entry):
        raise DLedgerBodyError(Code.INCONSISTENT_STATE, f"the CRC of entry {body.index} is wrong")
    return entry


def request_to_body(message: m.RaftMessage, group: str) -> tuple[DLedgerRequestCode, DLedgerBody]:
    """Returns the request code and body of a message between members (docs/formats/dledger.md)."""
    base: dict[str, Any] = {
        "group": group,
        "local_id": message.source,
        "remote_id": message.target,
        "leader_id": message.source,
        "term": message.term,
    }
    if isinstance(message, m.VoteRequest):
        return DLedgerRequestCode.VOTE, VoteRequestBody(
            **base, ledger_end_index=message.end_index, ledger_end_term=message.end_term
        )
    if isinstance(message, m.HeartbeatRequest):
        return DLedgerRequestCode.HEART_BEAT, HeartbeatRequestBody(**base)
    if isinstance(message, m.PushRequest):
        entries = [entry_to_body(entry) for entry in message.entries]
        single = len(entries) == 1
        return DLedgerRequestCode.PUSH, PushRequestBody(
            **base,
            type=message.kind.value,
            commit_index=message.commit_index,
            entry=entries[0] if single else None,
            batch_entry=[] if single else entries,
        )
    if isinstance(message, m.SnapshotRequest):
        return DLedgerRequestCode.INSTALL_SNAPSHOT, SnapshotRequestBody(
            **base,
            last_included_index=message.last_index,
            last_included_term=message.last_term,
            data=message.data,
            offset=message.offset,
            done=message.done,
            next_pos=message.next_pos,
        )
    assert isinstance(message, m.TransferRequest)
    return DLedgerRequestCode.LEADERSHIP_TRANSFER, TransferRequestBody(
        **base,
        transfer_id=message.transfer_id,
        transferee_id=message.transferee_id,
        take_leadership_ledger_index=message.ledger_index,
    )


def request_from_body(body: DLedgerBody, rpc: int) -> m.RaftMessage:
    """Reads the message in a request between members. Raises `DLedgerBodyError`. The sender is the
    member that claims to lead, or to be about to: `leaderId`."""
    base: dict[str, Any] = {
        "source": body.leader_id or "",
        "target": body.remote_id or "",
        "term": body.term,
        "rpc": rpc,
    }
    if isinstance(body, VoteRequestBody):
        return m.VoteRequest(**base, end_index=body.ledger_end_index, end_term=body.ledger_end_term)
    if isinstance(body, HeartbeatRequestBody):
        return m.HeartbeatRequest(**base)
    if isinstance(body, PushRequestBody):
        entries = body.batch_entry or ([] if body.entry is None else [body.entry])
        return m.PushRequest(
            **base,
            kind=_push_kind(body.type),
            commit_index=body.commit_index,
            entries=tuple(entry_from_body(entry) for entry in entries),
        )
    if isinstance(body, SnapshotRequestBody):
        if not 0 <= body.next_pos <= _FARTHEST or body.last_included_term > body.term:
            raise DLedgerBodyError(
                Code.UNEXPECTED_ARGUMENT,
                f"a snapshot of term {body.last_included_term} that ends at {body.next_pos}"
                f" is none of a leader in term {body.term}",
            )
        return m.SnapshotRequest(
            **base,
            last_index=body.last_included_index,
            last_term=body.last_included_term,
            next_pos=body.next_pos,
            offset=body.offset,
            data=body.data,
            done=body.done,
        )
    if isinstance(body, TransferRequestBody):
        return m.TransferRequest(
            **{**base, "source": body.local_id or ""},
            transfer_id=body.transfer_id or "",
            transferee_id=body.transferee_id or "",
            ledger_index=body.take_leadership_ledger_index,
        )
    raise DLedgerBodyError(Code.UNSUPPORTED, f"{type(body).__name__} is no message between members")


def _push_kind(name: str) -> PushKind:
    try:
        return PushKind(name)
    except ValueError:
        raise DLedgerBodyError(Code.UNEXPECTED_ARGUMENT, f"{name!r} is no kind of push") from None


def response_to_body(message: m.RaftMessage, group: str, leader_id: str | None) -> DLedgerBody:
    """Returns the body that answers a request between members."""
    base: dict[str, Any] = {
        "group": group,
        "local_id": message.source,
        "remote_id": message.target,
        "leader_id": leader_id,
        "term": message.term,
    }
    if isinstance(message, m.VoteResponse):
        return VoteResponseBody(**base, vote_result=message.result.value)
    if isinstance(message, m.HeartbeatResponse):
        return HeartbeatResponseBody(**base, code=message.code)
    if isinstance(message, m.PushResponse):
        return PushResponseBody(
            **base,
            code=message.code,
            index=message.index,
            count=message.count,
            begin_index=message.begin_index,
            end_index=message.end_index,
        )
    if isinstance(message, m.SnapshotResponse):
        return SnapshotResponseBody(
            **base,
            code=message.code,
            last_included_index=message.last_index,
            received=message.received,
        )
    assert isinstance(message, m.TransferResponse)
    return TransferResponseBody(**base, code=message.code)


def response_from_body(request: m.RaftMessage, body: DLedgerBody) -> m.RaftMessage:
    """Returns the answer in `body`, tied to our `request`."""
    base: dict[str, Any] = {
        "source": request.target,
        "target": request.source,
        "term": body.term,
        "rpc": request.rpc,
    }
    code = Code(body.code)
    if isinstance(body, VoteResponseBody):
        return m.VoteResponse(**base, result=_vote_result(body))
    if isinstance(body, HeartbeatResponseBody):
        return m.HeartbeatResponse(**base, code=code)
    if isinstance(body, PushResponseBody):
        return m.PushResponse(
            **base,
            code=code,
            index=-1 if body.index is None else body.index,
            count=body.count,
            begin_index=body.begin_index,
            end_index=body.end_index,
        )
    if isinstance(body, SnapshotResponseBody):
        return m.SnapshotResponse(
            **base, code=code, last_index=body.last_included_index, received=body.received
        )
    return m.TransferResponse(**base, code=code)


def _vote_result(body: VoteResponseBody) -> VoteResult:
    try:
        return VoteResult(body.vote_result)
    except ValueError:
        return VoteResult.UNKNOWN


def no_answer(request: m.RaftMessage, *, unsupported: bool = False) -> m.RaftMessage:
    """Makes the stand-in for an answer that did not come, or that cannot be read."""
    base: dict[str, Any] = {
        "source": request.target,
        "target": request.source,
        "term": -1,
        "rpc": request.rpc,
    }
    code = Code.UNSUPPORTED if unsupported else Code.NETWORK_ERROR
    if isinstance(request, m.VoteRequest):
        return m.VoteResponse(**base, result=VoteResult.UNKNOWN)
    if isinstance(request, m.HeartbeatRequest):
        return m.HeartbeatResponse(**base, code=code)
    if isinstance(request, m.PushRequest):
        return m.PushResponse(**base, code=code)
    if isinstance(request, m.SnapshotRequest):
        return m.SnapshotResponse(**base, code=code, last_index=request.last_index, received=0)
    return m.TransferResponse(**base, code=code)
