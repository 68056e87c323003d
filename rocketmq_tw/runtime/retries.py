"""After how long what failed is tried again. A module has a pause of its own only where a peer's
rules or its own work want another one."""

#: Seconds, where somebody waits and a moment may be enough: a connection, another leader.
RETRY_SOON = 0.2
#: Seconds, as a rule: a store, a disk or another server may refuse for hours.
RETRY_USUAL = 1.0
#: The same in milliseconds.
RETRY_USUAL_MS = 1_000
#: Seconds, where all goes on as it is meanwhile.
RETRY_SLOW = 10.0


class GrowingPause:
    """Computes how long what failed is left alone: `first` behind the first failure in a row, twice
    as long behind each further one, and `longest` at most, which may be set; in any unit."""

    __slots__ = ("_first", "failures", "longest")

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self.longest = longest
        #: In a row.
        self.failures = 0

    @property
    def next(self) -> float:
        """The pause behind the next failure."""
        # Python's numbers have no end, so the exponent gets one.
        return min(self._first * 2 ** min(self.failures, 32), self.longest)

    def failed(self) -> float:
        """Notes a failure; returns the pause behind it."""
        pause = self.next
        self.failures += 1
        return pause

    def worked(self) -> None:
        """Has the next failure count as a first one."""
        self.failures = 0
