"""Keeps whether a broker can store messages, and whether it could as a master: books without a
clock.

Rules: docs/durability.md, "A broker that cannot write".
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_tw.runtime.listeners import Listeners

#: Seconds for which something must go wrong before the broker counts as one that cannot write: what
#: fails once may succeed with the next try.
GRACE_SECONDS = 3.0
#: The kind of trouble that a disk is too full.
_FULL = "room"


class Health:
    """Keeps what the last looks at the disk have found.

    `cannot_write` says why messages cannot be stored, `cannot_lead` why the broker must not become
    a master: the same, or what only a new master needs. `fails_to_write` and `unfit_to_lead` are
    the same without a disk that is too full, which keeps nobody from entering the role: such a
    master refuses messages and serves readers. All are empty while all is well.
    """

    def __init__(self) -> None:
        self.cannot_write = ""
        self.cannot_lead = ""
        self.fails_to_write = ""
        self.unfit_to_lead = ""
        #: Told after each change of them.
        self.changed = Listeners[()]("the broker can write again, or cannot")
        #: What goes wrong -> since when, in seconds.
        self._since: dict[str, float] = {}

    def observe(
        self,
        now: float,
        *,
        broken: str,
        troubles: Mapping[str, str],
        unready: str,
        full: str = "",
    ) -> None:
        """Takes in a look of the time `now` in seconds. `broken`: why nothing can be stored before
        a restart; `troubles`: what goes wrong by its kind, empty where it works; `unready`: what
        only a new master would lack; `full`: that a disk is too full."""
        found = {**troubles, _FULL: full}
        self._since = {kind: self._since.get(kind, now) for kind, why in found.items() if why}
        lasting = {
            kind: found[kind] for kind, since in self._since.items() if now - since >= GRACE_SECONDS
        }
        fails = broken or next((lasting[kind] for kind in troubles if kind in lasting), "")
        # A candidate has time: what may pass keeps it out until it has passed.
        unfit = fails or next(filter(None, troubles.values()), "") or unready
        former = self._verdict
        self.fails_to_write, self.unfit_to_lead = fails, unfit
        self.cannot_write = fails or lasting.get(_FULL, "")
        self.cannot_lead = self.cannot_write or unfit or full
        if self._verdict != former:
            self.changed.tell()

    @property
    def _verdict(self) -> tuple[str, str, str, str]:
        return self.cannot_write, self.cannot_lead, self.fails_to_write, self.unfit_to_lead
