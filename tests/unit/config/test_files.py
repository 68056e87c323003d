"""How files of settings are read, whatever they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocketmq_tw.config.properties import ConfigError, read_config_file
from rocketmq_tw.services.options import read_file


def test_the_mark_that_editors_put_in_front_is_not_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "b.conf"
    path.write_bytes(b"\xef\xbb\xbfbrokerName=b\n")
    assert [setting[:2] for setting in read_file(str(path))] == [("brokerName", "b")]


def test_a_pipe_that_nobody_writes_to_is_refused_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="it is a pipe that nobody writes to: give another"):
        read_config_file(path, ": give another")


def test_a_pipe_is_read_to_its_end() -> None:
    """As a shell gives it for `-c <(command)`."""
    read, write = os.pipe()
    os.write(write, b"brokerName=b\n")
    os.close(write)
    try:
        assert read_config_file(f"/dev/fd/{read}") == "brokerName=b\n"
    finally:
        os.close(read)


@pytest.mark.parametrize("text", ["[]", " null\n", '["a"]'])
def test_json_that_is_no_object_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "rmq-proxy.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="give an object with a value for each key"):
        read_file(str(path))
