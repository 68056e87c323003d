"""The small files beside the log: checkpoint, epochs, deleted topics."""

from __future__ import annotations

import json
import os
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import construct as c

from rocketmq_tw.formats.checkpoint import CHECKPOINT, MAGIC, STOCK, crc_of
from rocketmq_tw.formats.epochs import EPOCH_FILE, epochs_crc
from rocketmq_tw.storecheck.findings import Findings, Remedy
from rocketmq_tw.storecheck.lost import LostParts

_CHECKPOINT = "checkpoint"
EPOCHS = "epochFileCheckpoint"
#: The year 10000, in milliseconds.
_LATEST = 253_402_300_800_000


class CheckpointCheck:
    """The checkpoint of the store at `root`: what it says is safe must be in the log."""

    def __init__(self, root: str, findings: Findings) -> None:
        self._findings = findings
        self.stock: Any = None
        #: Our own fields, where they hold.
        self.ours: Any = None
        data = _read(f"{root}/{_CHECKPOINT}")
        self._is_missing = data is None
        if data is None:
            return
        if len(data) < STOCK.sizeof():
            findings.add(
                "checkpoint", _CHECKPOINT, None,
                f"it has {len(data)} bytes: the start reads the whole log", Remedy.START,
            )  # fmt: skip
            return
        stock = STOCK.parse(data)
        if self._tell_impossible(stock):
            return
        self.stock = stock
        if len(data) >= CHECKPOINT.sizeof():
            ours = CHECKPOINT.parse(data).ours
            # After stock has used the store the CRC does not hold, and nothing is wrong.
            if ours.magic == MAGIC and ours.crc == crc_of(data):
                self.ours = ours

    def _tell_impossible(self, stock: Any) -> bool:
        """Reports values that nobody wrote: no checksum covers them where stock wrote last."""
        times = stock.physic_msg_timestamp, stock.logics_msg_timestamp, stock.index_msg_timestamp
        # Stock has -1 for an offset that it does not know.
        offsets = stock.master_flushed_offset, stock.confirm_phy_offset
        if min(times) < 0:
            text, remedy = f"it says the time {min(times)}: nothing of it counts", Remedy.START
        elif max(times) >= _LATEST:
            text, remedy = f"it says the time {max(times)}, which cannot be", Remedy.REPAIR
        elif min(offsets) < -1:
            text, remedy = f"it says the log offset {min(offsets)}, which cannot be", Remedy.REPAIR
        else:
            return False
        self._findings.add("checkpoint", _CHECKPOINT, None, text, remedy)
        return True

    @property
    def confirmed(self) -> int:
        """Up to where a controller's group has confirmed the log; 0 where that is not known."""
        return 0 if self.stock is None else int(self.stock.confirm_phy_offset)

    @property
    def has_index(self) -> bool:
        """Whether there was an index."""
        return self.stock is not None and self.stock.index_msg_timestamp > 0

    def finish(self, log_start: int, log_end: int, newest: int, *, at_record: bool) -> bool:
        """Compares it with the log, which goes from `log_start` to `log_end` and has records up to
        the store time `newest`; `at_record`: a record or the end is at the safe offset, or was.
        Returns whether the log has lost its end."""
        if self._is_missing and log_end > log_start:
            self._findings.add(
                "checkpoint", _CHECKPOINT, None,
                "it is missing: the start reads the whole log", Remedy.START,
            )  # fmt: skip
        elif self.ours is not None and self.ours.safe_offset > log_end:
            return self._ahead(
                f"the log is safe up to {self.ours.safe_offset}", f"ends at {log_end}"
            )
        elif self.ours is not None and self.ours.safe_offset > log_start and not at_record:
            self._findings.add(
                "checkpoint", _CHECKPOINT, 68,
                f"no record starts at the safe offset {self.ours.safe_offset}",
            )  # fmt: skip
        elif self.stock is not None and self.stock.physic_msg_timestamp > newest > 0:
            time = self.stock.physic_msg_timestamp
            return self._ahead(
                f"messages are safe up to the time {time}", f"has none behind {newest}"
            )
        return False

    def _ahead(self, said: str, found: str) -> bool:
        self._findings.add(
            "checkpoint-ahead", _CHECKPOINT, None,
            f"it says that {said}, and the log {found}: its end is lost", Remedy.RESTORE,
        )  # fmt: skip
        return True


class EpochCheck:
    """The epoch file of the store at `root`, where there is one, against the log, which ends at
    `log_end`; of what is `lost` it may know still."""

    def __init__(self, root: str, findings: Findings, log_end: int, lost: LostParts) -> None:
        #: The file is damaged, and its `.bak` is not.
        self.has_copy = False
        #: Epochs start behind the end of the log, in the file or in what stands in for it.
        self.are_ahead = False
        data = _read(f"{root}/{EPOCHS}")
        if data is None:
            return
        epochs, problem = _epochs_in(data)
        if problem:
            epochs = []
            copy = _read(f"{root}/{EPOCHS}.bak")
            said = "there is no .bak"
            if copy is not None:
                epochs, problem_of_copy = _epochs_in(copy)
                self.has_copy = not problem_of_copy
                said = (
                    "its .bak is read in its place"
                    if self.has_copy
                    else f"its .bak is so too ({problem_of_copy})"
                )
            text = f"it is damaged ({problem}); {said}"
            remedy = Remedy.REPAIR if self.has_copy else Remedy.RESTORE
            findings.add("epochs", EPOCHS, None, text, remedy)
        for epoch, start in epochs:
            if start > log_end and start not in lost:
                self.are_ahead = True
                text = f"epoch {epoch} starts at {start}, and the log ends at {log_end}"
                findings.add("epochs", EPOCHS, None, text, Remedy.REPAIR)


def _epochs_in(data: bytes) -> tuple[list[tuple[int, int]], str]:
    """Returns epochs with the log offsets where they start, and what is wrong; empty: nothing."""
    try:
        file = EPOCH_FILE.parse(data)
    except (c.ConstructError, ValueError) as error:
        return [], str(error).strip().splitlines()[-1]
    epochs = [(each.epoch, each.start) for each in file.epochs]
    crc = epochs_crc(data[file.lines :])
    if file.crc not in (0, crc):
        return [], f"its CRC is {crc}, and it says {file.crc}"
    for (epoch, start), (latter, latter_start) in pairwise(epochs):
        if latter <= epoch or latter_start < start:
            text = f"epoch {latter} from {latter_start} follows {epoch} from {start}"
            return [], text
    return epochs, ""


def deleted_topics(root: str) -> dict[str, int]:
    """Returns topics with the log offset in front of which their messages are deleted."""
    found: dict[str, int] = {}
    for line in (_read(f"{root}/deletedtopics") or b"").split(b"\n"):
        crc, _, text = line.partition(b" ")
        # A line that a power loss tore does not count.
        if crc == b"%08x" % zlib.crc32(text):
            deletion = json.loads(text)
            found[deletion["topic"]] = deletion["offset"]
    return found


def _read(path: str) -> bytes | None:
    return Path(path).read_bytes() if os.path.isfile(path) else None
