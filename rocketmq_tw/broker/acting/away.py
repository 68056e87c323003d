"""Decides whether another slave may have acted for the master while this one could not know of it,
and has to be asked what it did before this one acts. Pure.

Rules: docs/acting.md, "When a slave acts".
"""

from __future__ import annotations

from collections.abc import Callable

from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.wire.bodies.route import MASTER_ID


class Away:
    """A slave that stood still, was cut off or was not registered does not know what another one
    did that acted meanwhile: it has to take that over before it acts. `seconds` is the clock."""

    def __init__(self, config: BrokerConfig, seconds: Callable[[], float]) -> None:
        self._config = config
        self._seconds = seconds
        self._looked_at = seconds()
        #: Whether another slave may have acted.
        self.was_away = False
        #: Since when what the others did is asked for.
        self._asked_at: float | None = None

    def stood_still(self, expected_ms: int) -> bool:
        """Returns whether `looked` was called so much longer ago than expected that name servers
        may have taken this broker for gone."""
        config, elapsed = self._config, (self._seconds() - self._looked_at) * 1000
        least = config.broker_not_active_timeout_millis - config.broker_heartbeat_interval
        return elapsed - expected_ms >= least

    def looked(self) -> None:
        """Notes that a look begins or ends."""
        self._looked_at = self._seconds()

    def note(self, smallest: int | None, own: int) -> None:
        """Takes in the smallest id that lives, None where nobody knows, and this broker's."""
        if smallest == MASTER_ID:
            # That one has taken over what slaves did, and this one copies it.
            self.is_back()
        elif smallest is None or smallest > own:
            # Those that were asked before may have done more since.
            self.was_away, self._asked_at = True, None

    def is_back(self) -> None:
        """Notes that this broker has what others did."""
        self.was_away, self._asked_at = False, None

    def waited(self) -> bool:
        """Returns whether a slave that does not tell was asked for so long that name servers would
        not list it, were it gone."""
        if self._asked_at is None:
            self._asked_at = self._seconds()
        elapsed = (self._seconds() - self._asked_at) * 1000
        return elapsed >= self._config.broker_not_active_timeout_millis
