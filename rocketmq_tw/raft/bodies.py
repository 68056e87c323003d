"""The JSON bodies of DLedger's requests 50000-51006 (docs/formats/dledger.md).

Bodies of `byte[]` are base64. Unknown fields are passed over, missing ones get stock's defaults.
"""

from enum import IntEnum
from typing import Annotated, Any, TypeVar

from rocketmq_tw.raft.core.codes import Code
from rocketmq_tw.raft.core.entry import MAGIC
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.errors import WireError
from rocketmq_tw.wire.fastjson import check_values
from rocketmq_tw.wire.headers.base import Int, Long


class DLedgerRequestCode(IntEnum):
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


#: A term, or -1 for none.
Term = Annotated[int, msgspec.Meta(ge=-1, le=(1 << 63) - 1)]


class DLedgerBody(msgspec.Struct, rename="camel", kw_only=True):
    """The fields of every request and response. `code` is SUCCESS in requests."""

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


class MetadataRequest(DLedgerBody):
    pass


class MetadataResponse(DLedgerBody):
    peers: dict[str, str] | None = None


class AppendRequest(DLedgerBody):
    """One body, or several that become entries of their own and are answered together."""

    body: bytes | None = None
    batch_msgs: list[bytes] | None = None


class AppendResponse(DLedgerBody):
    index: Long = -1
    pos: Long = -1


class GetRequest(DLedgerBody):
    begin_index: Long | None = None
    max_size: Int = 0
    index_list: list[Long] | None = None


class GetResponse(DLedgerBody):
    entries: list[EntryBody] = []


class VoteRequestBody(DLedgerBody):
    ledger_end_index: Long = -1
    ledger_end_term: Term = -1


class VoteResponseBody(DLedgerBody):
    vote_result: str | None = None


class HeartbeatRequestBody(DLedgerBody):
    pass


class HeartbeatResponseBody(DLedgerBody):
    pass


class PullRequestBody(DLedgerBody):
    node_id: str | None = None
    begin_index: Long | None = None


class PullResponseBody(DLedgerBody):
    entries: list[EntryBody] = []


class PushRequestBody(DLedgerBody):
    commit_index: Long = -1
    type: str = "APPEND"
    entry: EntryBody | None = None
    batch_entry: list[EntryBody] | None = None


class PushResponseBody(DLedgerBody):
    index: Long | None = None
    begin_index: Long = 0
    end_index: Long = 0
    count: Int = 0


class TransferRequestBody(DLedgerBody):
    transfer_id: str | None = None
    transferee_id: str | None = None
    take_leadership_ledger_index: Long = 0


class TransferResponseBody(DLedgerBody):
    pass


class SnapshotRequestBody(DLedgerBody):
    """A chunk of a snapshot: stock's fields, and this suite's: the chunk's `offset`, `done` for the
    last one, and where the entry behind the snapshot lies."""

    last_included_index: Long = -1
    last_included_term: Term = -1
    data: bytes = b""
    offset: Long = 0
    done: bool = True
    next_pos: Long = 0


class SnapshotResponseBody(DLedgerBody):
    last_included_index: Long = -1
    received: Long = 0


REQUEST_BODIES: dict[DLedgerRequestCode, type[DLedgerBody]] = {
    DLedgerRequestCode.METADATA: MetadataRequest,
    DLedgerRequestCode.APPEND: AppendRequest,
    DLedgerRequestCode.GET: GetRequest,
    DLedgerRequestCode.VOTE: VoteRequestBody,
    DLedgerRequestCode.HEART_BEAT: HeartbeatRequestBody,
    DLedgerRequestCode.PULL: PullRequestBody,
    DLedgerRequestCode.PUSH: PushRequestBody,
    DLedgerRequestCode.LEADERSHIP_TRANSFER: TransferRequestBody,
    DLedgerRequestCode.INSTALL_SNAPSHOT: SnapshotRequestBody,
}

RESPONSE_BODIES: dict[DLedgerRequestCode, type[DLedgerBody]] = {
    DLedgerRequestCode.METADATA: MetadataResponse,
    DLedgerRequestCode.APPEND: AppendResponse,
    DLedgerRequestCode.GET: GetResponse,
    DLedgerRequestCode.VOTE: VoteResponseBody,
    DLedgerRequestCode.HEART_BEAT: HeartbeatResponseBody,
    DLedgerRequestCode.PULL: PullResponseBody,
    DLedgerRequestCode.PUSH: PushResponseBody,
    DLedgerRequestCode.LEADERSHIP_TRANSFER: TransferResponseBody,
    DLedgerRequestCode.INSTALL_SNAPSHOT: SnapshotResponseBody,
}

#: A body longer than `SMALL_BODY` bytes is looked at before it is read: `{}` is an entry of a push
#: that takes a hundred bytes in memory. Honest pushes have some thousand values.
SMALL_BODY = 1024 * 1024
MAX_BODY_VALUES = 200_000

B = TypeVar("B", bound=DLedgerBody)
_decoders: dict[type, msgspec.json.Decoder[Any]] = {
    body_type: msgspec.json.Decoder(body_type)
    for body_type in (*REQUEST_BODIES.values(), *RESPONSE_BODIES.values())
}
encode_dledger_body = msgspec.json.Encoder().encode


class DLedgerBodyError(ValueError):
    """A body that is not JSON of its kind, or has impossible values; the answer carries `code`."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


def decode_dledger_body(body_type: type[B], data: bytes) -> B:
    """Returns the typed body. Raises `DLedgerBodyError`."""
    try:
        if len(data) > SMALL_BODY:
            check_values(data, MAX_BODY_VALUES)
        body: B = _decoders[body_type].decode(data)
    except (WireError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DLedgerBodyError(
            Code.UNEXPECTED_ARGUMENT, f"{body_type.__name__}: {error}"
        ) from error
    return body
