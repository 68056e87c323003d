"""Quorum arithmetic."""

from collections.abc import Iterable


def quorum_size(members: int) -> int:
    """The smallest majority of `members`."""
    return members // 2 + 1


def is_quorum(count: int, members: int) -> bool:
    return count >= quorum_size(members)


def quorum_index(indexes: Iterable[int]) -> int:
    """The highest index that a majority holds, of one index a member."""
    ordered = sorted(indexes, reverse=True)
    return ordered[len(ordered) // 2]
