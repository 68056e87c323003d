"""Which terms another member can have reached while we did not hear of it."""

#: A member raises its term once in an election, and the shortest wait between two of them is 300 ms
#: by default: a group that elects without end needs forty years for so many. Stock believes any
#: term, so that one request with the largest one ends all elections of a group for ever.
MAX_TERM_STEP = 1 << 32


def is_reachable(term: int, own_term: int) -> bool:
    """Whether a member that was left behind in `own_term` can meet a peer in `term`."""
    return term <= own_term + MAX_TERM_STEP
