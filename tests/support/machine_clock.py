"""The clocks of the machine, which a test sets."""

import time

import pytest


class MachineClock:
    """Stands in for what the machine tells of its time, as long as `patch` holds."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._wall = 1_700_000_000.0
        self._since_start = 5_000.0
        self._awake = 4_000.0
        patch.setattr(time, "time", lambda: self._wall)
        patch.setattr(time, "monotonic", lambda: self._awake)
        patch.setattr(time, "clock_gettime", self._read)

    def set_by(self, seconds: float) -> None:
        """Somebody sets the time of day ahead, or back where it is negative."""
        self._wall += seconds

    def pass_by(self, seconds: float) -> None:
        """Time passes."""
        self.sleep(seconds)
        self._awake += seconds

    def sleep(self, seconds: float) -> None:
        """Time passes while the machine sleeps."""
        self._wall += seconds
        self._since_start += seconds

    def _read(self, clock: int) -> float:
        assert clock == time.CLOCK_BOOTTIME
        return self._since_start
