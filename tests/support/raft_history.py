"""Operations of clients on the key-value example, and the check that they are linearizable.

The log is the witness: a write stands at its entry's index, a read at the index that had been
applied when it was served. The history is linearizable with this order if every read returns what
replaying the log up to its place gives, and no operation stands before one that had ended when it
began.
"""

from collections.abc import Mapping

from rocketmq_tw.raft.core.entry import Entry
from rocketmq_tw.structs import msgspec
from tests.support.raft_invariants import Violation
from tests.support.raft_kv import KeyValue


class Operation(msgspec.Struct):
    """One operation; `place` and `ended` stay None where no answer came."""

    key: str
    began: int
    #: The value written; None for a read.
    written: str | None = None
    ended: int | None = None
    place: int | None = None
    result: str | None = None
    term: int = -1


def check_linearizable(operations: list[Operation], committed: Mapping[int, Entry]) -> None:
    """Raises `Violation` where the witness order explains `operations` not."""
    answered = [one for one in operations if one.ended is not None]
    _check_values(answered, committed)
    _check_order(answered)


def _check_values(answered: list[Operation], committed: Mapping[int, Entry]) -> None:
    machine = KeyValue()
    applied = -1
    for operation in sorted(answered, key=lambda one: one.place or 0):
        place = operation.place
        assert place is not None
        while applied < place:
            applied += 1
            machine.apply(committed[applied])
        if operation.written is None and operation.result != machine.values.get(operation.key):
            raise Violation(f"{operation} read what the log does not say")
        if operation.written is not None and committed[place].term != operation.term:
            raise Violation(f"{operation} was acknowledged, but {committed[place]} stands there")


def _check_order(answered: list[Operation]) -> None:
    """Sweeps over the times: the furthest place of all that had ended bounds what begins."""
    by_end = sorted(answered, key=lambda one: one.ended or 0)
    ended, furthest = 0, -1
    for operation in sorted(answered, key=lambda one: one.began):
        while ended < len(by_end) and (by_end[ended].ended or 0) < operation.began:
            furthest = max(furthest, by_end[ended].place or 0)
            ended += 1
        place = operation.place
        assert place is not None
        late = place <= furthest if operation.written is not None else place < furthest
        if late:
            raise Violation(f"{operation} stands before place {furthest}, which had ended")
