"""Decides whether another slave may have acted for the master while this broker could not know of
it: it stood still, or has to ask that one what it did before it acts itself. Pure.

Rules: docs/acting.md, "When a slave acts".
"""

from __future__ import annotations

from collections.abc import Callable

from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.wire.bodies.route import MASTER_ID


def forgotten_ms(config: BrokerConfig) -> int:
    """Returns after how many milliseconds without a sign of life name servers may have taken this
    broker for gone: its last heartbeat may have been sent so much before."""
    return config.broker_not_active_timeout_millis - config.broker_heartbeat_interval


class Standstill:
    """Tells whether this process stood still between two looks. `seconds` is the clock."""

    def __init__(self, config: BrokerConfig, seconds: Callable[[], float]) -> None:
        self._config = config
        self._seconds = seconds
        self._looked_at = seconds()

    def looked(self) -> None:
        """Notes that a look begins or ends."""
        self._looked_at = self._seconds()

    def seconds(self, expected_ms: int) -> float:
        """Returns how many seconds ago the last look was, where that is so much longer than
        expected that name servers may have taken this broker for gone; 0 otherwise."""
        elapsed = self._seconds() - self._looked_at
        return elapsed if elapsed * 1000 - expected_ms >= forgotten_ms(self._config) else 0.0


class Away:
    """A slave that stood still, was cut off or was not registered does not know what another one
    did that acted meanwhile: it has to take that over before it acts. `seconds` is the clock."""

    def __init__(self, config: BrokerConfig, seconds: Callable[[], float]) -> None:
        self._config = config
        self._seconds = seconds
        #: Whether another slave may have acted.
        self.was_away = False
        #: Since when what the others did is asked for.
        self._asked_at: float | None = None

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
