"""The list of cases."""

from tools.bench.__main__ import EVERY
from tools.bench.cases import CASES
from tools.bench.statistics import OURS, STOCK


def test_names_differ_and_every_case_compares() -> None:
    names = [case.name for case in EVERY]
    assert len(set(names)) == len(names)
    assert all({OURS, STOCK} <= set(case.subjects) for case in EVERY)


def test_the_quick_run_needs_one_broker_of_each() -> None:
    quick = [case for case in CASES if case.quick]
    assert quick and all(not case.settings for case in quick)
