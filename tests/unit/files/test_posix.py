"""What files of the operating system are made like."""

import os
import stat
from pathlib import Path

from rocketmq_tw.files.posix import PosixFiles


def test_other_users_do_not_get_into_a_store(tmp_path: Path) -> None:
    there_before = tmp_path / "data"
    there_before.mkdir(mode=0o755)
    former = os.umask(0)
    try:
        PosixFiles().make_dirs(str(there_before / "store" / "commitlog"))
    finally:
        os.umask(former)
    modes = [
        stat.S_IMODE(path.stat().st_mode)
        for path in (there_before, there_before / "store", there_before / "store" / "commitlog")
    ]
    assert modes == [0o755, 0o750, 0o750]
