"""Names and values: kept over a crash, bounded, and refused where they cannot be kept."""

import pytest

from rocketmq_tw.files.faulty import Fault, FaultyFiles, PowerLoss
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.namesrv import kv_config
from rocketmq_tw.namesrv.kv_config import KvConfig
from rocketmq_tw.store.errors import DamagedStoreError
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.stats import KVTable
from rocketmq_tw.wire.errors import RequestError
from tests.support.broker import fired

PATH = "/ns/kvConfig.json"


def loaded(files: IFiles) -> KvConfig:
    kv = KvConfig(files, PATH)
    kv.load()
    return kv


def table_of(kv: KvConfig, namespace: str = "NS") -> dict[str, str]:
    return decode_body(KVTable, kv.namespace(namespace) or b"{}").table


def test_a_namespace_is_shown_as_it_is_after_each_change() -> None:
    kv = loaded(MemoryFiles())
    for number in range(3):
        fired(kv.put("NS", f"k{number}", "v"))
        assert len(table_of(kv)) == number + 1
    fired(kv.put("OTHER", "k", "v"))
    fired(kv.delete("NS", "k0"))
    assert table_of(kv) == {"k1": "v", "k2": "v"}
    assert kv.namespace("NS") is kv.namespace("NS"), "it is made once"


def test_what_was_put_survives_a_crash() -> None:
    files = MemoryFiles()
    kv = loaded(files)
    fired(kv.put("NS", "k", "v"))
    fired(kv.put("NS", "other", "\u503c"))
    fired(kv.delete("NS", "k"))
    again = loaded(files.crash())
    assert table_of(again) == {"other": "\u503c"}
    assert again.get("NS", "k") is None


def test_the_file_is_stocks() -> None:
    files = MemoryFiles()
    fired(loaded(files).put("NS", "k", "v"))
    assert files.read(PATH) == b'{"configTable":{"NS":{"k":"v"}}}'


def test_the_bak_stands_in_for_a_damaged_file() -> None:
    files = MemoryFiles()
    kv = loaded(files)
    fired(kv.put("NS", "k", "old"))
    fired(kv.put("NS", "k", "new"))
    files.open(PATH).truncate(5)
    assert loaded(files).get("NS", "k") == "old"


def test_a_damaged_file_is_not_overwritten_but_named() -> None:
    files = MemoryFiles()
    fired(loaded(files).put("NS", "k", "v"))
    file = files.open(PATH)
    file.pwrite(b"{{{", 0)
    with pytest.raises(DamagedStoreError, match=rf"{PATH} is damaged: it is no such table in JSON"):
        loaded(files)


@pytest.mark.parametrize(
    ("namespace", "key", "value"),
    [
        ("", "k", "v"),
        ("NS", "", "v"),
        ("n" * 256, "k", "v"),
        ("NS", "k" * 256, "v"),
        ("NS", "k", "v" * (kv_config.MAX_VALUE_BYTES + 1)),
    ],
)
def test_what_is_too_large_is_refused(namespace: str, key: str, value: str) -> None:
    kv = loaded(MemoryFiles())
    with pytest.raises(RequestError, match="bytes"):
        fired(kv.put(namespace, key, value))
    assert kv.namespace(namespace) is None


def test_all_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_config, "MAX_TOTAL_BYTES", 1000)
    kv = loaded(MemoryFiles())
    with pytest.raises(RequestError, match="delete what is not needed"):
        for number in range(1000):
            fired(kv.put("NS", f"key-{number}", "value"))
    assert 10 < len(table_of(kv)) < 100
    fired(kv.delete("NS", "key-0"))
    fired(kv.put("NS", "key-x", "value"))


def test_what_cannot_be_written_does_not_count() -> None:
    files = FaultyFiles(MemoryFiles())
    kv = KvConfig(files, PATH)
    fired(kv.put("NS", "k", "old"))
    files.faults.append(Fault("fsync"))
    with pytest.raises(RequestError, match="cannot be kept"):
        fired(kv.put("NS", "k", "new"))
    assert kv.get("NS", "k") == "old"


def test_a_refused_value_is_not_there_after_its_deletion() -> None:
    """The file was replaced, and only the sync of its directory failed."""
    files = FaultyFiles(MemoryFiles())
    kv = KvConfig(files, PATH)
    fired(kv.put("NS", "k", "v"))
    files.faults.append(Fault("sync_dir"))
    with pytest.raises(RequestError, match="cannot be kept"):
        fired(kv.put("NS", "refused", "v"))
    with pytest.raises(RequestError, match="cannot be kept"):
        fired(kv.delete("NS", "refused"))
    files.faults.clear()
    fired(kv.delete("NS", "refused"))
    again = loaded(files)
    assert (again.get("NS", "refused"), again.get("NS", "k")) == (None, "v")


def test_power_loss_at_any_call_leaves_the_old_value_or_the_new() -> None:
    at, seen = 0, set()
    while True:
        at += 1
        disk = MemoryFiles()
        fired(KvConfig(disk, PATH).put("NS", "k", "old"))
        files = FaultyFiles(disk)
        files.lose_power_at = at
        kv = loaded(files)
        try:
            fired(kv.put("NS", "k", "new"))
        except PowerLoss:
            seen.add(loaded(disk.crash()).get("NS", "k"))
        else:
            break
    assert at > 4
    assert loaded(disk.crash()).get("NS", "k") == "new"
    assert "old" in seen and seen <= {"old", "new"}
