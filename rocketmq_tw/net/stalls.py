"""Says what kept the reactor from everything else."""

from collections import Counter
from collections.abc import Callable, Iterable

from twisted.logger import Logger

#: Seconds in one go from which something is worth a line: elections and heartbeats wait as long.
STALL_SECONDS = 0.2
#: Seconds after a line in which further stalls are only counted.
QUIET_SECONDS = 10.0


class StallLog:
    """Logs what held the reactor for `STALL_SECONDS` or more, one line in `QUIET_SECONDS`."""

    log = Logger()

    def __init__(self, seconds: Callable[[], float]) -> None:
        """`seconds` is the clock's time."""
        self._seconds = seconds
        self._quiet_until = 0.0
        self._unsaid = 0

    def report(self, took: float, what: str) -> None:
        """Notes that `what` took so many seconds."""
        now = self._seconds()
        if now < self._quiet_until:
            self._unsaid += 1
            return
        unsaid, self._unsaid = self._unsaid, 0
        self._quiet_until = now + QUIET_SECONDS
        self.log.warn(
            "the reactor was held for {took} s by {what}{more}",
            took=f"{took:.2f}",
            what=what,
            more=f"; {unsaid} stalls before were not logged" if unsaid else "",
        )


def count_codes(codes: Iterable[int | None]) -> str:
    """Returns the codes of several requests as text, the most frequent first: `310 x 15, 12`. None
    is one that nobody knows."""
    counts = Counter("unknown" if code is None else code for code in codes).most_common()
    return ", ".join(str(code) if count == 1 else f"{code} x {count}" for code, count in counts)
