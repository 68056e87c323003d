"""Who of a group reads which queues: every member computes the same division by itself."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def allocate_averagely(queues: Sequence[T], members: Sequence[str], member: str) -> list[T]:
    """The share of `member`: consecutive queues, the first members one more where it does not
    come out even. `queues` and `members` are sorted, as all members sort them."""
    if member not in members:
        return []
    index = members.index(member)
    share, extra = divmod(len(queues), len(members))
    start = index * share + min(index, extra)
    return list(queues[start : start + share + (index < extra)])
