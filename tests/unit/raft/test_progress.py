"""What a leader finds out of a follower's log, by comparisons alone."""

import pytest

from rocketmq_tw.raft.core.progress import PeerProgress, Phase


def search(leader_end: int, begin: int, common: int, peer_end: int) -> tuple[PeerProgress, int]:
    """A search for the last common entry, and how many comparisons it took."""
    progress = PeerProgress("n1")
    progress.compare_from(leader_end)
    asked = 0
    while (index := progress.next_probe(begin)) is not None:
        assert begin <= index <= leader_end
        asked += 1
        assert asked < 100
        progress.compared(peer_end)
        if index <= common:
            progress.probe_matched()
        else:
            progress.probe_mismatched(peer_end)
    return progress, asked


@pytest.mark.parametrize("begin", [0, 3])
def test_the_last_common_entry_is_found_whatever_the_follower_holds(begin: int) -> None:
    for leader_end in range(begin, 16):
        for common in range(-1, leader_end + 1):
            for peer_end in range(common, 20):
                progress, _ = search(leader_end, begin, common, peer_end)
                found = progress.common_index
                assert found == common or (found == -1 and common < begin)
                assert progress.match_index == found


def test_a_long_way_back_takes_few_comparisons() -> None:
    for common in (-1, 0, 77, 499_999, 999_998):
        progress, asked = search(999_999, 0, common, 999_999)
        assert progress.common_index == common and asked <= 41


def test_what_a_follower_has_lost_counts_no_more() -> None:
    progress = PeerProgress("n1")
    progress.append_from(7)
    progress.told_commit = 5
    progress.compare_from(9)
    assert progress.next_probe(0) == 9
    progress.compared(7)
    progress.probe_mismatched(7)
    assert (progress.match_index, progress.told_commit) == (7, 5)
    assert progress.next_probe(0) == 7
    progress.compared(-1)
    assert (progress.match_index, progress.told_commit) == (-1, -1)
    progress.probe_mismatched(-1)
    assert progress.next_probe(0) is None
    assert progress.phase is Phase.COMPARE and progress.common_index == -1
