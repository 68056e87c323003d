"""Who had a name and id, and may have them back."""

from rocketmq_tw.namesrv.brokers import RETURN_MS, FormerHolders
from tests.support.tables import tables_of


def test_former_holders_are_forgotten_once_they_may_not_return() -> None:
    former = FormerHolders()
    for number in range(100):
        former.left(f"broker-{number}", 0, "10.0.0.1:10911", number)
    assert former.may_return("broker-0", 0, "10.0.0.1:10911", RETURN_MS)
    former.left("late", 0, "10.0.0.1:10911", RETURN_MS + 90)
    assert tables_of(former)["FormerHolders._left"] == 11
    assert former.may_return("broker-90", 0, "10.0.0.1:10911", RETURN_MS + 90)
