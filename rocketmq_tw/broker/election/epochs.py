"""Keeps which epochs of its group's masters a broker knows, and how far it is in its own ones:
pure.

Rules: docs/controller.md, "How decisions are made"; format: docs/formats/auto-switch-ha.md, "The
epoch file".
"""

from __future__ import annotations


class KnownEpochs:
    """The controllers count the epochs; each has one master at most. What is kept of them, and why:

    heard      the newest one that the broker followed, or found without a master:
               news of older ones is out of date
    before     the newest one when this process first asked, None before that: up to it a
               former process of this broker was the master, whose requests may still come
    entering   the one that the broker is about to begin as the master, None otherwise:
               it has begun it, though its role does not say so yet
    ended      the last one of its own that the broker had the controllers end: up to it no
               heartbeat says that it holds on to the role
    given_up   the last one of its own that it ended and had not begun: it never begins that
               one, whatever it still hears of it
    """

    def __init__(self) -> None:
        self.heard = 0
        self.before: int | None = None
        self.entering: int | None = None
        self.ended = 0
        self.given_up: int | None = None

    def note_first(self, epoch: int) -> None:
        """Notes the group's epoch as this process asks for the first time."""
        if self.before is None:
            self.before = epoch

    def note_heard(self, epoch: int) -> None:
        """Notes an epoch that the broker follows."""
        self.heard = max(self.heard, epoch)

    def is_former(self, epoch: int) -> bool:
        """Returns whether an epoch began before this process did."""
        return epoch <= (self.before or 0)

    def end(self, epoch: int, led: int | None) -> bool:
        """Notes that the broker ends an epoch of its own, while its role is of the epoch `led`.
        Returns whether it never began it, nor will."""
        self.ended = epoch
        never_begun = epoch not in (self.entering, led)
        if never_begun:
            self.given_up = epoch
        return never_begun
