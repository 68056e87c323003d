"""The conditions that "DLedger leader election" names, paragraph by paragraph, and the row or test
that shows each: those of `test_conditions.py` and `test_rounds.py`."""

import importlib.util
from pathlib import Path

import pytest

CONDITIONS = [
    # paragraph, what it says, where it is shown
    ("roles", "every member starts as a candidate", "every_member_starts_as_one_and_votes_at_once"),
    ("candidate 1 (1)", "not before the next vote time", "candidate_1_waits_for_the_next_vote"),
    ("candidate 1 (2)", "or at once, if the term is to rise", "1_and_3_a_greater_term_is_gone_to"),
    ("candidate 2", "only as a candidate", "candidate_2_who_follows_or_leads_asks_for_no_votes"),
    ("candidate 3 (1)", "WAIT_TO_VOTE_NEXT: the next term", "[case 7: split votes]"),
    ("candidate 3 (2)", "needIncreaseTermImmediately: the next term", "1_and_3_a_greater_term"),
    ("candidate 3", "otherwise the same term", "candidate_3_the_term_stays_after_wait_to_revote"),
    ("candidate 4", "asks every member", "vote_dispatch_1_to_5"),
    ("vote dispatch 1-4", "its last entry, itself, its term", "vote_dispatch_1_to_5"),
    ("vote dispatch 5", "its own vote without the network", "every_member_starts_as_one"),
    ("vote request 1", "REJECT_UNKNOWN_LEADER", "[vote request 1: not one of the group]"),
    ("vote request 1", "REJECT_UNEXPECTED_LEADER", "[vote request 1: ourselves from outside]"),
    ("vote request 2", "REJECT_EXPIRED_LEDGER_TERM", "[vote request 2: older last term]"),
    (
        "vote request 2",
        "REJECT_SMALL_LEDGER_END_INDEX",
        "[vote request 2: same last term, shorter]",
    ),
    ("vote request 2", "comes before the terms", "[vote request 2 before 3]"),
    ("vote request 3", "smaller: REJECT_EXPIRED_VOTE_TERM", "[vote request 3: smaller term]"),
    ("vote request 3", "equal, no vote yet", "[vote request 3: equal, no vote yet]"),
    ("vote request 3", "equal, voted for it", "[vote request 3: equal, the same again]"),
    (
        "vote request 3",
        "equal, REJECT_ALREADY_HAS_LEADER",
        "[vote request 3: equal, another has it and leads]",
    ),
    ("vote request 3", "equal, REJECT_ALREADY_VOTED", "[vote request 3: equal, another has it]"),
    ("vote request 3", "greater: REJECT_TERM_NOT_READY", "[vote request 3: greater term]"),
    (
        "vote request 4",
        "REJECT_TERM_SMALL_THAN_LEDGER",
        "[vote request 4: a term below our last entry's]",
    ),
    ("vote request 5", "ACCEPT", "[vote request 5: newer last term]"),
    (
        "vote responses",
        "REJECT_TAKING_LEADERSHIP",
        "[vote request 5: a preferred leader that takes over]",
    ),
    ("vote responses", "what each of them counts as", "what_each_answer_counts_as"),
    ("vote responses", "2000 ms and a random part", "a_round_ends_after_its_time_or_with_its_last"),
    ("vote responses, case 1", "WAIT_TO_VOTE_NEXT", "[vote responses, case 1: a higher term]"),
    ("vote responses, case 1", "in the highest term", "[case 1: a higher term is taken over]"),
    (
        "vote responses, case 2",
        "WAIT_TO_REVOTE",
        "[vote responses, case 2: somebody has a leader]",
    ),
    ("vote responses, case 2", "the next vote time", "[case 2: wait for that leader]"),
    ("vote responses, case 3", "WAIT_TO_REVOTE", "[vote responses, case 3: too few answers]"),
    ("vote responses, case 3", "the next vote time", "[case 3: too few answers]"),
    ("vote responses, case 4", "WAIT_TO_REVOTE", "[vote responses, case 4: too many longer logs]"),
    ("vote responses, case 4", "maxVoteIntervalMs more", "[case 4: longer]"),
    ("vote responses, case 5", "PASSED", "[vote responses, case 5: a quorum accepts]"),
    (
        "vote responses, case 5",
        "though some logs are longer",
        "[vote responses, case 5: few longer logs do not hinder]",
    ),
    ("vote responses, case 5", "it leads", "case_5_the_winner_leads_and_sends_heartbeats_at_once"),
    (
        "vote responses, case 6",
        "REVOTE_IMMEDIATELY",
        "[vote responses, case 6: a quorum with those not ready]",
    ),
    ("vote responses, case 6", "at once", "[case 6: again at once]"),
    ("vote responses, case 7", "WAIT_TO_VOTE_NEXT", "[vote responses, case 7: votes are split]"),
    ("vote responses, case 7", "the next vote time", "[case 7: split votes]"),
    (
        "becoming leader",
        "a heartbeat in each interval",
        "sending_heartbeats_1_to_3_in_each_interval",
    ),
    ("sending heartbeats 1-3", "to all others, with its term", "sending_heartbeats_1_to_3"),
    ("heartbeat request 1", "UNKNOWN_MEMBER", "[heartbeat request 1: not one of the group]"),
    ("heartbeat request 2", "UNEXPECTED_MEMBER", "[heartbeat request 2: ourselves]"),
    ("heartbeat request 3", "smaller: EXPIRED_TERM", "[heartbeat request 3: smaller term]"),
    ("heartbeat request 3", "equal, ours: SUCCESS", "[heartbeat request 3: equal, our leader]"),
    (
        "heartbeat request, again 1",
        "smaller: EXPIRED_TERM",
        "[heartbeat request 3: smaller term]",
    ),
    (
        "heartbeat request, again 2 (1)",
        "no leader yet: follows, SUCCESS",
        "[heartbeat request, again 2 (1): no leader yet]",
    ),
    (
        "heartbeat request, again 2 (2)",
        "our leader: SUCCESS",
        "[heartbeat request 3: equal, our leader]",
    ),
    (
        "heartbeat request, again 2 (3)",
        "INCONSISTENT_LEADER",
        "[heartbeat request, again 2 (3): another leader]",
    ),
    (
        "heartbeat request, again 3",
        "greater: a candidate, TERM_NOT_READY",
        "[heartbeat request, again 3: greater term]",
    ),
    ("heartbeat responses", "what each counts as", "what_each_answer_to_a_heartbeat_counts_as"),
    ("heartbeat responses 1", "a quorum: the time is kept", "[heartbeat responses 1: a quorum]"),
    (
        "heartbeat responses 2 (1)",
        "with those not ready: again at once",
        "[2 (1): not ready]",
    ),
    ("heartbeat responses 2 (2)", "a higher term: a candidate", "[2 (2): a higher term]"),
    ("heartbeat responses 2 (2)", "that goes there", "2_2_the_higher_term_is_the_next_rounds"),
    ("heartbeat responses 2 (3)", "inconsistent: a candidate", "[2 (3): inconsistent]"),
    (
        "heartbeat responses 2 (4)",
        "silent for maxHeartBeatLeak intervals: a candidate",
        "2_4_silence_for_three_intervals_ends_a_leader",
    ),
    ("follower", "twice the interval", "[follower: but never before two intervals]"),
    ("follower", "maxHeartBeatLeak intervals", "[follower: the leak, stock's default]"),
]


def shown() -> list[str]:
    """The tests of both files, one for each row of a table: `test_vote[vote request 5: ...]`."""
    names = []
    for file in ("test_conditions.py", "test_rounds.py"):
        path = Path(__file__).with_name(file)
        spec = importlib.util.spec_from_file_location(f"paragraphs_{path.stem}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name, test in vars(module).items():
            if name.startswith("test_"):
                rows = [mark.kwargs["ids"] for mark in getattr(test, "pytestmark", ())]
                names += [f"{name}[{row}]" for row in rows[0]] if rows else [name]
    return names


SHOWN = shown()


@pytest.mark.parametrize(
    ("paragraph", "says", "where"), CONDITIONS, ids=[f"{row[0]}: {row[1]}" for row in CONDITIONS]
)
def test_a_condition_has_its_row(paragraph: str, says: str, where: str) -> None:
    assert [name for name in SHOWN if where in name], f"{paragraph}, {says}: nothing shows {where}"
