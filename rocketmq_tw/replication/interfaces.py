"""What replication asks of the log that it copies."""

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface


class IReplicatedLog(Interface):
    """A commit log as the HA links see it: bytes between two offsets."""

    start_offset: int = Attribute("Where the oldest file starts.")
    end_offset: int = Attribute("The end of what is written and may be sent.")

    def read(offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer at the end of a file."""

    def append(offset: int, data: bytes) -> "Deferred[int]":
        """A slave's append, exactly at the end (an empty log: at the start of any file). Fires
        with the log's end once the bytes are as safe as this replica's settings promise."""
