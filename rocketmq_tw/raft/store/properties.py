"""The two small files beside the entries, `currterm` and `checkpoint`: key=value lines as stock
writes them, replaced atomically."""

from rocketmq_tw.files.atomic import settle, write_atomic
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.raft.core.member_state import HardState
from rocketmq_tw.raft.store.format import COPY_AGAIN
from rocketmq_tw.store.errors import StoreError
from rocketmq_tw.structs import msgspec


class LedgerCheckpoint(msgspec.Struct, frozen=True):
    """Indexes that a restart may rely on; -1 for none. `begin_pos` is ours alone: where the log
    begins if that is inside a data file."""

    end_index: int = -1
    committed_index: int = -1
    begin_pos: int = 0


def _read(files: IFiles, path: str) -> dict[str, str]:
    if not files.exists(path):
        return {}
    fields = {}
    for line in files.read(path).decode("utf-8", "replace").splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith(("#", "!")):
            fields[key.strip()] = value.strip()
    return fields


def _number(path: str, fields: dict[str, str], key: str, default: int) -> int:
    text = fields.get(key, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise StoreError(f"{path}: {key}={text!r} is no number; {COPY_AGAIN}") from None


def _write(files: IFiles, path: str, fields: dict[str, object]) -> None:
    text = "".join(f"{key}={value}\n" for key, value in fields.items())
    write_atomic(files, path, text.encode())


def read_term(files: IFiles, path: str) -> HardState | None:
    """Returns term and vote, which no power loss takes any more; None where they were never
    written."""
    settle(files, path)
    fields = _read(files, path)
    if "currTerm" not in fields:
        if files.exists(path):
            raise StoreError(f"{path} has no currTerm; {COPY_AGAIN}")
        return None
    return HardState(_number(path, fields, "currTerm", 0), fields.get("voteLeader") or None)


def write_term(files: IFiles, path: str, state: HardState) -> None:
    """Replaces the file of term and vote; durable on return."""
    _write(files, path, {"currTerm": state.term, "voteLeader": state.vote_for or ""})


def read_ledger_checkpoint(files: IFiles, path: str) -> LedgerCheckpoint:
    """Reads the checkpoint. Stock writes this file without care, so what cannot be read counts as
    none: an empty `LedgerCheckpoint`."""
    fields = _read(files, path)
    try:
        return LedgerCheckpoint(
            _number(path, fields, "endIndex", -1),
            _number(path, fields, "committedIndex", -1),
            _number(path, fields, "beginPos", 0),
        )
    except StoreError:
        return LedgerCheckpoint()


def write_ledger_checkpoint(files: IFiles, path: str, checkpoint: LedgerCheckpoint) -> None:
    """Replaces the checkpoint; durable on return."""
    _write(
        files,
        path,
        {
            "endIndex": checkpoint.end_index,
            "committedIndex": checkpoint.committed_index,
            "beginPos": checkpoint.begin_pos,
        },
    )
