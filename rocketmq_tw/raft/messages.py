"""The JSON bodies of DLedger's requests 50000-51006 (docs/formats/dledger.md).

Bodies of `byte[]` are base64. Unknown fields are passed over, missing ones get stock's defaults.
"""

from enum import IntEnum
from typing import Annotated, Any, TypeVar

import msgspec

from rocketmq_tw.raft.core import messages as m
from rocketmq_tw.raft.core.codes import Code, PushKind, VoteResult
from rocketmq_tw.raft.core.entry import MAGIC, Entry, crc_fits


class RequestCode(IntEnum):
    """DLedger's request codes. INSTALL_SNAPSHOT is known to later versions of stock only."""

    METADATA = 50000
    APPEND = 50001
    GET = 50002
    VOTE = 51001
    HEART_BEAT = 51002
    PULL = 51003
    PUSH = 51004
    LEADERSHIP_TRANSFER = 51005
    INSTALL_SNAPSHOT = 51006


#: Java's int and long: what the files have room for. A term leaves room for the next ones.
Int = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Long = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Term = Annotated[int, msgspec.Meta(ge=-1, le=1 << 62)]


class Body(msgspec.Struct, rename="camel", kw_only=True):
    """What every request and response has. `code` is SUCCESS in requests."""

    group: str | None = None
    remote_id: str | None = None
    local_id: str | None = None
    code: Int = 200
    leader_id: str | None = None
    term: Term = -1


class EntryBody(msgspec.Struct, rename="camel", kw_only=True):
    """An entry; `size` counts its header of 48 bytes."""

    magic: Int = MAGIC
    size: Int = 0
    index: Long = 0
    term: Term = 0
    pos: Long = 0
    channel: Int = 0
    chain_crc: Int = 0
    body_crc: Int = 0
    body: bytes = b""


class MetadataRequest(Body):
    pass


class MetadataResponse(Body):
    peers: dict[str, str] | None = None


class AppendRequest(Body):
    """One body, or several that become entries of their own and are answered together."""

    body: bytes | None = None
    batch_msgs: list[bytes] | None = None


class AppendResponse(Body):
    index: Long = -1
    pos: Long = -1


class GetRequest(Body):
    begin_index: Long | None = None
    max_size: Int = 0
    index_list: list[Long] | None = None


class GetResponse(Body):
    entries: list[EntryBody] = []


class VoteRequestBody(Body):
    ledger_end_index: Long = -1
    ledger_end_term: Term = -1


class VoteResponseBody(Body):
    vote_result: str | None = None


class HeartbeatRequestBody(Body):
    pass


class HeartbeatResponseBody(Body):
    pass


class PullRequestBody(Body):
    node_id: str | None = None
    begin_index: Long | None = None


class PullResponseBody(Body):
    entries: list[EntryBody] = []


class PushRequestBody(Body):
    commit_index: Long = -1
    type: str = "APPEND"
    entry: EntryBody | None = None
    batch_entry: list[EntryBody] | None = None


class PushResponseBody(Body):
    index: Long | None = None
    begin_index: Long = 0
    end_index: Long = 0
    count: Int = 0


class TransferRequestBody(Body):
    transfer_id: str | None = None
    transferee_id: str | None = None
    take_leadership_ledger_index: Long = 0


class TransferResponseBody(Body):
    pass


class SnapshotRequestBody(Body):
    """Stock's fields, and ours: a chunk from `offset`, the last one where `done`, and where the
    entry behind the snapshot lies."""

    last_included_index: Long = -1
    last_included_term: Term = -1
    data: bytes = b""
    offset: Long = 0
    done: bool = True
    next_pos: Long = 0


class SnapshotResponseBody(Body):
    last_included_index: Long = -1
    received: Long = 0


REQUEST_BODIES: dict[RequestCode, type[Body]] = {
    RequestCode.METADATA: MetadataRequest,
    RequestCode.APPEND: AppendRequest,
    RequestCode.GET: GetRequest,
    RequestCode.VOTE: VoteRequestBody,
    RequestCode.HEART_BEAT: HeartbeatRequestBody,
    RequestCode.PULL: PullRequestBody,
    RequestCode.PUSH: PushRequestBody,
    RequestCode.LEADERSHIP_TRANSFER: TransferRequestBody,
    RequestCode.INSTALL_SNAPSHOT: SnapshotRequestBody,
}

RESPONSE_BODIES: dict[RequestCode, type[Body]] = {
    RequestCode.METADATA: MetadataResponse,
    RequestCode.APPEND: AppendResponse,
    RequestCode.GET: GetResponse,
    RequestCode.VOTE: VoteResponseBody,
    RequestCode.HEART_BEAT: HeartbeatResponseBody,
    RequestCode.PULL: PullResponseBody,
    RequestCode.PUSH: PushResponseBody,
    RequestCode.LEADERSHIP_TRANSFER: TransferResponseBody,
    RequestCode.INSTALL_SNAPSHOT: SnapshotResponseBody,
}

B = TypeVar("B", bound=Body)
_decoders: dict[type, msgspec.json.Decoder[Any]] = {
    body_type: msgspec.json.Decoder(body_type)
    for body_type in (*REQUEST_BODIES.values(), *RESPONSE_BODIES.values())
}
encode_body = msgspec.json.Encoder().encode


class BodyError(ValueError):
    """A body that is no JSON of its kind, or says what cannot be; `code` answers it."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


def decode_body(body_type: type[B], data: bytes) -> B:
    """The typed body. Raises `BodyError`."""
    try:
        body: B = _decoders[body_type].decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BodyError(Code.UNEXPECTED_ARGUMENT, f"{body_type.__name__}: {error}") from error
    return body


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
    """The entry. Raises `BodyError`: INCONSISTENT_STATE where its CRC is wrong."""
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
        raise BodyError(Code.UNEXPECTED_ARGUMENT, f"entry {body.index} at {body.pos} is none")
    if not crc_fits(entry):
        raise BodyError(Code.INCONSISTENT_STATE, f"the CRC of entry {body.index} is wrong")
    return entry


def request_to_body(message: m.Message, group: str) -> tuple[RequestCode, Body]:
    """The request code and body of a message between members."""
    base: dict[str, Any] = {
        "group": group,
        "local_id": message.source,
        "remote_id": message.target,
        "leader_id": message.source,
        "term": message.term,
    }
    if isinstance(message, m.VoteRequest):
        return RequestCode.VOTE, VoteRequestBody(
            **base, ledger_end_index=message.end_index, ledger_end_term=message.end_term
        )
    if isinstance(message, m.HeartbeatRequest):
        return RequestCode.HEART_BEAT, HeartbeatRequestBody(**base)
    if isinstance(message, m.PushRequest):
        entries = [entry_to_body(entry) for entry in message.entries]
        single = len(entries) == 1
        return RequestCode.PUSH, PushRequestBody(
            **base,
            type=message.kind.value,
            commit_index=message.commit_index,
            entry=entries[0] if single else None,
            batch_entry=[] if single else entries,
        )
    if isinstance(message, m.SnapshotRequest):
        return RequestCode.INSTALL_SNAPSHOT, SnapshotRequestBody(
            **base,
            last_included_index=message.last_index,
            last_included_term=message.last_term,
            data=message.data,
            offset=message.offset,
            done=message.done,
            next_pos=message.next_pos,
        )
    assert isinstance(message, m.TransferRequest)
    return RequestCode.LEADERSHIP_TRANSFER, TransferRequestBody(
        **base,
        transfer_id=message.transfer_id,
        transferee_id=message.transferee_id,
        take_leadership_ledger_index=message.ledger_index,
    )


def request_from_body(body: Body, rpc: int) -> m.Message:
    """The message in a request between members. Raises `BodyError`.

    The sender is who claims to lead, or to be about to: `leaderId`.
    """
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
        if body.next_pos < 0 or body.last_included_term > body.term:
            raise BodyError(
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
    raise BodyError(Code.UNSUPPORTED, f"{type(body).__name__} is no message between members")


def _push_kind(name: str) -> PushKind:
    try:
        return PushKind(name)
    except ValueError:
        raise BodyError(Code.UNEXPECTED_ARGUMENT, f"{name!r} is no kind of push") from None


def response_to_body(message: m.Message, group: str, leader_id: str | None) -> Body:
    """The body that answers a request between members."""
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


def response_from_body(request: m.Message, body: Body) -> m.Message:
    """The answer in `body`, tied to our `request`."""
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


def no_answer(request: m.Message, *, unsupported: bool = False) -> m.Message:
    """What stands for an answer that did not come, or that cannot be read."""
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
