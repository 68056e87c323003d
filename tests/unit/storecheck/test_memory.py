"""The memory of a check does not grow with the store."""

from pathlib import Path

from rocketmq_tw.storecheck.check import check_store
from rocketmq_tw.storecheck.layout import Store
from tests.support.large_stores import SIZES, make_large_store
from tests.support.traced_memory import traced_memory

#: Bytes that a check of a store four times as large may take more: a list of where its messages
#: are would be larger.
MORE = 16_384


def make(root: Path, messages: int) -> Store:
    make_large_store(root, messages)
    return Store(str(root), SIZES)


def peak_of_a_check(store: Store, messages: int) -> int:
    with traced_memory() as traced:
        summary, findings = check_store(store, lambda finding: None)
        peak = traced.peak
    assert (summary.records, findings.count) == (messages, 0)
    return peak


def test_a_check_of_a_larger_store_takes_no_more_memory(tmp_path: Path) -> None:
    small, large = make(tmp_path / "small", 2000), make(tmp_path / "large", 8000)
    # What is made once in a process.
    peak_of_a_check(small, 2000)
    assert peak_of_a_check(large, 8000) < peak_of_a_check(small, 2000) + MORE
