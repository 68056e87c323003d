"""The quick CRC against zlib's."""

import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_tw.message import crc


@given(st.binary(max_size=3000), st.integers(0, 50))
def test_it_is_zlibs_for_any_bytes(data: bytes, start: int) -> None:
    for kind in (bytes, bytearray, memoryview):
        assert crc.crc32(kind(data)[start:]) == zlib.crc32(data[start:])
    assert crc.crc32(data[start:], crc.crc32(data[:start])) == zlib.crc32(data)


def test_zlibs_own_does_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    namespace: dict[str, object] = {}
    exec(Path(crc.__file__).read_text(), namespace)
    assert namespace["crc32"] is zlib.crc32
