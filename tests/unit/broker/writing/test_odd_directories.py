"""Stores in which something else has the name of a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketmq_tw.files.posix import PosixFiles
from tests.support.broker import BrokerInMemory


def test_a_broker_does_not_start_without_the_directory_of_its_tables(tmp_path: Path) -> None:
    """As where the link that it is leads to a disk that is not there: all tables would be missing,
    and topics be made up from the log."""
    store = tmp_path / "store"
    plane = BrokerInMemory(PosixFiles(), store_path_root_dir=str(store))
    plane.stop()
    (store / "config").rename(tmp_path / "config")
    (store / "config").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError) as refused:
        BrokerInMemory(PosixFiles(), store_path_root_dir=str(store))
    assert refused.value.filename == str(store / "config")
