"""The findings of a check: what is wrong with a store, and what mends it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum

import attrs


class Remedy(Enum):
    """What mends a finding."""

    START = "start"
    REPAIR = "repair"
    RESTORE = "restore"

    @property
    def advice(self) -> str:
        return _ADVICE[self]


_ADVICE = {
    Remedy.START: "the next start of the broker mends it",
    Remedy.REPAIR: "`rmqadmin store repair` mends it",
    Remedy.RESTORE: "restore the file from a replica or a backup",
}


@attrs.frozen
class Finding:
    """One thing that is wrong. `kind` is a fixed word, `file` a path below the store, `offset` a
    byte of that file; None where the file as a whole is meant."""

    kind: str
    file: str
    offset: int | None
    text: str
    remedy: Remedy

    @property
    def line(self) -> str:
        """Everything in one line."""
        place = self.file if self.offset is None else f"{self.file} at {self.offset}"
        return f"{place}: {self.text} ({self.remedy.value})"


class Findings:
    """Passes findings to `report`, of a kind in one file only the first `most`."""

    def __init__(self, report: Callable[[Finding], None], most: int = 10) -> None:
        self._report = report
        self._most = most
        self._seen: Counter[tuple[str, str]] = Counter()
        #: How many of each kind there are.
        self.kinds: Counter[str] = Counter()
        self.remedies: Counter[Remedy] = Counter()
        #: How many a start or a repair mends, by the directory or file in the store's root.
        self.mendable: Counter[str] = Counter()

    def add(
        self, kind: str, file: str, offset: int | None, text: str, remedy: Remedy = Remedy.REPAIR
    ) -> None:
        """Adds a finding."""
        self.kinds[kind] += 1
        self.remedies[remedy] += 1
        if remedy is not Remedy.RESTORE:
            self.mendable[file.partition("/")[0]] += 1
        self._seen[kind, file] += 1
        if self._seen[kind, file] <= self._most:
            self._report(Finding(kind, file, offset, text, remedy))

    @property
    def count(self) -> int:
        """All findings, also those that were not passed on."""
        return self.kinds.total()
