"""Whether a broker can store messages, and whether it could as a master: books without a clock."""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_tw.runtime.listeners import Listeners

#: Seconds for which something must go wrong before the broker counts as one that cannot write: what
#: fails once may succeed with the next try.
GRACE_SECONDS = 3.0


class Health:
    """What the last looks at the disk have found.

    `cannot_write` says why messages cannot be stored, `cannot_lead` why the broker must not become
    a master: the same, or what only a new master needs. Both are empty while all is well.
    """

    def __init__(self) -> None:
        self.cannot_write = ""
        self.cannot_lead = ""
        #: Told after each change of the two.
        self.changed = Listeners[()]("the broker can write again, or cannot")
        #: What goes wrong -> since when, in seconds.
        self._since: dict[str, float] = {}

    def observe(
        self, now: float, *, broken: str, troubles: Mapping[str, str], unready: str
    ) -> None:
        """Takes in a look of the time `now` in seconds. `broken`: why nothing can be stored before
        a restart; `troubles`: what goes wrong by its kind, empty where it works; `unready`: what
        only a new master would lack."""
        self._since = {kind: self._since.get(kind, now) for kind, why in troubles.items() if why}
        lasting = (
            troubles[kind] for kind, since in self._since.items() if now - since >= GRACE_SECONDS
        )
        cannot_write = broken or next(lasting, "")
        # A candidate has time: what may pass keeps it out until it has passed.
        cannot_lead = cannot_write or next(filter(None, troubles.values()), "") or unready
        if (cannot_write, cannot_lead) != (self.cannot_write, self.cannot_lead):
            self.cannot_write, self.cannot_lead = cannot_write, cannot_lead
            self.changed.tell()
