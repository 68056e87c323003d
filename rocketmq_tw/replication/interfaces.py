"""The interfaces that replication asks of the log that it copies, and that a sender asks of
replication."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface


class IReplicatedLog(Interface):
    """A commit log as the HA links see it: bytes between two offsets."""

    start_offset: int = Attribute("Where the oldest file starts.")
    end_offset: int = Attribute("The end of what may be sent: never what is only buffered.")

    def read(offset: int, size: int) -> bytes:
        """Returns up to `size` bytes; fewer at the end of a file."""

    def settled() -> Deferred[int]:
        """Fires with the log's end once all before it is as safe as this replica's settings
        promise: what a slave may report when a link opens."""

    def append(offset: int, data: bytes) -> Deferred[int]:
        """Appends at a slave, exactly at the end (an empty log: at the start of any file). Fires
        with the log's end once the bytes are as safe as this replica's settings promise."""


class ISwitchedLog(IReplicatedLog):
    """A log whose end may be another one after a change of master."""

    confirmed_offset: int = Attribute("Behind the last record that is known to be confirmed.")

    def end_at_whole_record() -> Deferred[None]:
        """Cuts off a last record of which only a part came."""

    def truncate(end: int) -> Deferred[None]:
        """Ends the log at `end`, where a record starts, with all that is made from it; durable when
        it fires."""

    def confirm(offset: int) -> None:
        """Takes that no change of master takes back the log in front of `offset`, so that readers
        may see it. An offset in front of an earlier one changes nothing."""


class IReplicator(Interface):
    """Answers when replicas have what a reply promises."""

    def refusal() -> str:
        """Says why no message that waits for replicas may be stored now; empty while it may."""

    def wait(end_offset: int) -> Deferred[int]:
        """Fires with a response code once enough replicas have the log up to `end_offset`."""
