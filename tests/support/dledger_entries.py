"""The entries in the files of DLedger members, stock's and ours."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.raft.core.entry import Entry
from rocketmq_tw.raft.store.ledger import open_data
from rocketmq_tw.raft.store.recovery import scan


def read_entries(directory: Path, file_size: int, home: Path) -> list[Entry]:
    """All entries in a member's `directory`; of one that runs those that are there by now.

    Opening may repair, which is not done to the member's own files: they are copied to `home`.
    """
    with TemporaryDirectory(dir=home, prefix="entries-seen") as copy:
        (Path(copy) / "data").mkdir()
        for path in sorted((directory / "data").iterdir()):
            shutil.copyfile(path, Path(copy) / "data" / path.name)
        data = open_data(PosixFiles(), copy, file_size)
        try:
            return list(scan(data, data.starts[0])) if data.starts else []
        finally:
            data.close()
