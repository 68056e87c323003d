"""What replication asks of the log that it copies, and what it is asked itself."""

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface


class IReplicatedLog(Interface):
    """A commit log as the HA links see it: bytes between two offsets."""

    start_offset: int = Attribute("Where the oldest file starts.")
    end_offset: int = Attribute("The end of what may be sent: never what is only buffered.")

    def read(offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer at the end of a file."""

    def settled() -> "Deferred[int]":
        """Fires with the log's end once all before it is as safe as this replica's settings
        promise: what a slave may report when a link opens."""

    def append(offset: int, data: bytes) -> "Deferred[int]":
        """A slave's append, exactly at the end (an empty log: at the start of any file). Fires
        with the log's end once the bytes are as safe as this replica's settings promise."""


class IReplicator(Interface):
    """Answers when replicas have what a reply promises."""

    def refusal() -> str:
        """Why no message may be stored now that waits for replicas; empty while they may."""

    def wait(end_offset: int) -> "Deferred[int]":
        """Fires with a response code once enough replicas have the log up to `end_offset`."""
