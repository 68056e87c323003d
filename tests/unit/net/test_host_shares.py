"""Counts by host, and which host gives way to another."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rocketmq_tw.net.host_shares import HostShares


def test_a_host_with_nothing_takes_no_memory() -> None:
    shares = HostShares()
    for _ in range(2):
        shares.add("a")
    shares.remove("a")
    shares.remove("a")
    assert (shares.of("a"), shares.largest(), vars(shares)) == (0, None, {"_shares": Counter()})


@given(st.lists(st.sampled_from("abc"), max_size=20), st.sampled_from("abcd"))
def test_one_more_never_makes_a_host_the_largest(hosts: list[str], wants: str) -> None:
    shares = HostShares(hosts)
    counts = Counter(hosts)
    gives_way = shares.giving_way(wants)
    if gives_way is None:
        assert not hosts or counts[wants] + 1 >= max(counts.values())
    else:
        assert counts[gives_way] == max(counts.values()) > counts[wants] + 1
    if hosts:
        largest = shares.largest()
        assert largest is not None and shares.of(largest) == max(counts.values())


def test_amounts_count() -> None:
    shares = HostShares()
    shares.add("a", 5)
    shares.add("b", 7)
    assert shares.largest() == "b"
    shares.remove("b", 4)
    assert (shares.largest(), shares.of("b")) == ("a", 3)
