"""The interface of a state machine, which every member of a group feeds with the same entries."""

from twisted.logger import Logger
from zope.interface import Interface

from rocketmq_tw.raft.core.entry import Entry
from rocketmq_tw.raft.store.format import COPY_AGAIN
from rocketmq_tw.raft.store.member import MemberStore
from rocketmq_tw.store.errors import StoreError


class SnapshotError(ValueError):
    """Bytes that are no snapshot of the state machine."""


class IStateMachine(Interface):
    """A state that depends on nothing but the entries: no clock, no randomness, no other input."""

    def apply(entry: Entry) -> object:
        """Takes a committed entry, in order and once; the result goes to the proposer.

        An empty body is a new leader's own entry and changes nothing."""

    def take_snapshot() -> bytes:
        """Returns the whole state after the last applied entry."""

    def check_snapshot(data: bytes) -> None:
        """Raises `SnapshotError` where `load_snapshot` would; changes nothing."""

    def load_snapshot(data: bytes) -> None:
        """Replaces the whole state. Raises `SnapshotError` for what is none; then it stays."""


class SnapshotCheck:
    """Whether bytes that a leader sent are a snapshot that `machine` can load. Called before any
    of it is stored or answered: once stored, each start would fail at it."""

    log = Logger()

    def __init__(self, machine: IStateMachine) -> None:
        self._machine = machine

    def __call__(self, data: bytes) -> bool:
        try:
            self._machine.check_snapshot(data)
        except SnapshotError as error:
            self.log.warn(
                "a snapshot of {size} bytes is refused, it holds no state: {reason}",
                size=len(data),
                reason=error,
            )
            return False
        return True


def load_stored_snapshot(machine: IStateMachine, store: MemberStore) -> None:
    """Loads what `store` has, if it has any. Raises `StoreError` where that is no state."""
    meta = store.snapshot
    if meta is None:
        return
    try:
        machine.load_snapshot(store.read_snapshot(0, meta.size))
    except SnapshotError as error:
        raise StoreError(
            f"the snapshot at entry {meta.index} holds no state ({error}); {COPY_AGAIN}"
        ) from error
