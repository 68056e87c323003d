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
    assert (shares.of("a"), shares.largest(), shares.total) == (0, None, 0)
    assert vars(shares) == {"_shares": Counter(), "total": 0}


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


def test_beyond_the_limit_there_is_always_something_for_others() -> None:
    shares = HostShares()
    shares.add("greedy", 1000)
    assert not shares.has_room("greedy", 1, 1000)
    assert shares.has_room("a", 250, 1000) and not shares.has_room("a", 251, 1000)
    taken = []
    for number in range(7):
        while shares.has_room(f"10.0.0.{number}", 1, 1000):
            shares.add(f"10.0.0.{number}")
        taken.append(shares.of(f"10.0.0.{number}"))
    assert taken == [250, 125, 62, 31, 16, 8, 4]
    assert shares.total < 1500
