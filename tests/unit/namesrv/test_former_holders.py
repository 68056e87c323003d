"""Who had a name and id, and may have them back."""

import pytest

from rocketmq_tw.namesrv import broker_ids
from rocketmq_tw.namesrv.broker_ids import RETURN_MS, FormerHolder, FormerHolders
from tests.support.tables import tables_of

ADDRESS = "10.0.0.1:10911"


def gone(heard_at: int, host: str = "10.0.0.1") -> FormerHolder:
    return FormerHolder(ADDRESS, heard_at, 0, host)


def test_former_holders_are_forgotten_once_they_may_not_return() -> None:
    former = FormerHolders()
    for number in range(100):
        former.left(f"broker-{number}", 0, gone(number))
    assert former.may_return("broker-0", 0, ADDRESS, RETURN_MS)
    former.left("late", 0, gone(RETURN_MS + 90))
    assert tables_of(former)["FormerHolders._left"] == 11
    assert former.may_return("broker-90", 0, ADDRESS, RETURN_MS + 90)


def test_nobody_makes_the_others_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """And takes the place of one that is only started again."""
    monkeypatch.setattr(broker_ids, "MAX_FORMER", 10)
    former = FormerHolders()
    former.left("broker-a", 0, gone(1))
    for number in range(100):
        former.left(f"stranger-{number}", 0, gone(2, "10.66.0.1"))
    assert former.may_return("broker-a", 0, ADDRESS, 3)
    tables = tables_of(former)
    assert tables["FormerHolders._left"] == 10 and tables["HostShares._shares"] == 2
    former.came("broker-a", 0, ADDRESS)
    assert tables_of(former)["HostShares._shares"] == 1
