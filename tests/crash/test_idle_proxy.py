"""A moment of `tools/proxy_idle.py`: idle clients and slow readers disturb nobody."""

from pathlib import Path

from tools import proxy_idle


def test_idle_clients_and_slow_readers_disturb_nobody(tmp_path: Path) -> None:
    assert proxy_idle.run(tmp_path, 200, 10, 1.0) == []
