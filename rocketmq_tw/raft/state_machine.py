"""What a group replicates: a state machine that every member feeds with the same entries."""

from zope.interface import Interface

from rocketmq_tw.raft.core.entry import Entry


class IStateMachine(Interface):
    """Must depend on nothing but the entries: no clock, no randomness, no other input."""

    def apply(entry: Entry) -> object:
        """Takes a committed entry, in order and once; the result goes to the proposer.

        An empty body is a new leader's own entry and changes nothing."""

    def take_snapshot() -> bytes:
        """The whole state after the last applied entry."""

    def load_snapshot(data: bytes) -> None:
        """Replaces the whole state."""
