"""Who is in sync: what slaves say, what is proposed, and whom senders wait for meanwhile."""

import sys

import pytest

from rocketmq_tw.replication.auto_switch.sync_states import (
    FIRST_PAUSE_MS,
    JOINING_GAP,
    JOINING_MS,
    MAX_PAUSE_MS,
    SyncStates,
)
from rocketmq_tw.wire.group_state import SyncStateSet

OWN = 1


def states(*members: int) -> SyncStates:
    return SyncStates(OWN, SyncStateSet(frozenset(members), 5), not_caught_up_ms=lambda: 15_000)


def connect(of: SyncStates, broker_id: int, *, now_ms: int = 0, is_learner: bool = False) -> None:
    of.connected(broker_id, 1000, now_ms, is_learner=is_learner)


def report(of: SyncStates, broker_id: int, offset: int, now_ms: int = 0, **changes: int) -> None:
    values = {"log_end": 1000, "epoch_start": 0, "promised_end": 1000, **changes}
    of.reported(broker_id, offset, now_ms=now_ms, **values)


class TestExpansion:
    def test_a_slave_that_has_everything_is_proposed(self):
        group = states(1)
        connect(group, 2)
        assert group.expansion() is None
        report(group, 2, 1000)
        assert group.expansion() == {1, 2}

    def test_who_is_near_is_waited_for_until_it_has_what_was_promised_before(self):
        group = states(1)
        connect(group, 2)
        report(group, 2, 990)
        assert group.expansion() is None
        assert group.waited_for == {2}
        # Senders rest as little as before, and it still gets there.
        report(group, 2, 1000, log_end=1500)
        assert group.expansion() == {1, 2}

    def test_who_does_not_get_there_is_waited_for_no_more(self):
        group = states(1)
        connect(group, 2)
        report(group, 2, 990)
        group.tick(JOINING_MS - 1)
        assert group.waited_for == {2}
        group.tick(JOINING_MS)
        assert group.waited_for == frozenset()

    @pytest.mark.parametrize(
        "changes",
        [
            {"epoch_start": 1001},
            {"log_end": 1001 + JOINING_GAP, "promised_end": 1001 + JOINING_GAP},
        ],
    )
    def test_who_is_far_behind_or_in_an_earlier_epoch_is_not_waited_for(self, changes):
        group = states(1)
        connect(group, 2)
        report(group, 2, 1000, **changes)
        assert group.expansion() is None
        assert group.waited_for == frozenset()

    def test_a_learner_never_joins_nor_counts(self):
        group = states(1)
        connect(group, 2, is_learner=True)
        report(group, 2, 1000)
        assert group.expansion() is None
        assert group.copies(2) == -1
        assert group.everyone() == sys.maxsize


class TestPauses:
    def refuse(self, group: SyncStates, broker_id: int, now_ms: int) -> None:
        report(group, broker_id, 1000, now_ms)
        members = group.expansion()
        assert members == group.applied.members | {broker_id}
        group.propose(members)
        group.refused(now_ms)

    def test_one_slave_is_proposed_at_a_time(self):
        group = states(1)
        for broker_id in (999, 2):
            connect(group, broker_id)
            report(group, broker_id, 1000)
        assert group.expansion() == {1, 999}

    def test_who_was_refused_is_not_waited_for_and_comes_last(self):
        group = states(1)
        connect(group, 999)
        connect(group, 2)
        self.refuse(group, 999, 0)
        report(group, 999, 1000, 0)
        assert group.waited_for == frozenset()
        assert group.expansion() is None
        for broker_id in (999, 2):
            report(group, broker_id, 1000, FIRST_PAUSE_MS)
        assert group.expansion() == {1, 2}

    def test_each_refusal_doubles_the_pause_and_a_new_link_does_not_end_it(self):
        group = states(1)
        now_ms = 0
        for pause_ms in (1000, 2000, 4000, 8000, 16_000, MAX_PAUSE_MS, MAX_PAUSE_MS):
            connect(group, 999, now_ms=now_ms)
            self.refuse(group, 999, now_ms)
            group.lost(999, now_ms)
            connect(group, 999, now_ms=now_ms)
            report(group, 999, 1000, now_ms + pause_ms - 1)
            assert group.expansion() is None
            now_ms += pause_ms

    def test_a_member_that_left_is_taken_back_without_a_pause(self):
        group = states(1)
        connect(group, 2)
        self.refuse(group, 2, 0)
        report(group, 2, 1000, FIRST_PAUSE_MS)
        assert group.apply(SyncStateSet(frozenset({1, 2}), 6))
        assert group.apply(SyncStateSet(frozenset({1}), 7))
        report(group, 2, 1000, FIRST_PAUSE_MS)
        assert group.expansion() == {1, 2}

    def test_who_did_not_move_while_it_was_waited_for_is_left_alone_for_longer_each_time(self):
        group = states(1)
        connect(group, 2)
        waited = 0
        for now_ms in range(0, 30_000, 100):
            group.tick(now_ms)
            report(group, 2, 990, now_ms)
            waited += group.waited_for == {2}
        assert waited <= 60

    @pytest.mark.parametrize("same_id", [False, True])
    @pytest.mark.parametrize("closes", [False, True])
    def test_nor_does_a_new_id_or_link_help_who_does_not_move(self, same_id, closes):
        group = states(1)
        waited = 0
        for now_ms in range(0, 60_000, 100):
            broker_id = 2 if same_id else 2 + now_ms // 900
            if now_ms % 900 == 0:
                if closes:
                    group.lost(broker_id - (not same_id), now_ms)
                connect(group, broker_id, now_ms=now_ms)
            report(group, broker_id, 990, now_ms)
            waited += bool(group.waited_for)
            group.tick(now_ms)
        assert waited <= 120

    def test_strangers_keep_nobody_out_who_has_everything_or_was_a_member(self):
        group = states(1, 3)
        group.apply(SyncStateSet(frozenset({1}), 6))
        for broker_id in (2, 3, 4):
            connect(group, broker_id)
        report(group, 2, 990)
        group.tick(JOINING_MS)
        report(group, 4, 990, JOINING_MS)
        assert group.waited_for == frozenset()
        report(group, 3, 990, JOINING_MS)
        assert group.waited_for == {3}
        report(group, 4, 1000, JOINING_MS)
        assert group.expansion() == {1, 4}

    def test_who_moves_is_waited_for_again_at_once(self):
        group = states(1)
        connect(group, 2)
        report(group, 2, 990)
        report(group, 2, 995, 500)
        group.tick(JOINING_MS)
        report(group, 2, 996, JOINING_MS)
        assert group.waited_for == {2}


class TestShrinking:
    def test_a_member_without_a_link_goes(self):
        group = states(1, 2, 3)
        connect(group, 2)
        report(group, 2, 1000)
        assert group.check(1000, 0) == {1, 2}

    def test_a_member_that_has_not_caught_up_for_too_long_goes(self):
        group = states(1, 2)
        connect(group, 2)
        report(group, 2, 1000, 1_000)
        report(group, 2, 1500, 9_000, log_end=2000)
        assert group.check(2000, 16_000) is None
        assert group.check(2000, 16_001) == {1}

    def test_a_slave_that_is_always_a_little_behind_keeps_up(self):
        group = states(1, 2)
        connect(group, 2)
        for second in range(60):
            report(group, 2, 1000 * second, second * 1000, log_end=1000 * second + 500)
        assert group.check(60_000, 60_000) is None

    def test_a_slave_that_has_everything_is_in_sync_however_long_it_was_silent(self):
        group = states(1, 2)
        connect(group, 2)
        report(group, 2, 1000)
        assert group.check(1000, 100_000) is None

    def test_a_member_that_is_a_learner_now_goes(self):
        # Its new link may be there before the end of the old one is seen.
        group = states(1, 2)
        connect(group, 2)
        report(group, 2, 1000)
        connect(group, 2, is_learner=True)
        report(group, 2, 1000)
        assert group.check(1000, 0) == {1}
        assert group.waited_for == {2}
        assert group.apply(SyncStateSet(frozenset({1}), 6))
        assert group.waited_for == frozenset()

    def test_a_learner_and_the_master_itself_are_no_reason(self):
        group = states(1)
        connect(group, 2, is_learner=True)
        assert group.check(1000, 100_000) is None


class TestProposals:
    def test_old_and_new_members_count_until_the_controller_has_decided(self):
        group = states(1, 2)
        connect(group, 2)
        connect(group, 3)
        report(group, 2, 1000)
        report(group, 3, 700, log_end=700, promised_end=700)
        group.propose({1, 3})
        assert group.waited_for == {2, 3}
        assert group.everyone() == 700
        assert group.count == 2
        assert group.apply(SyncStateSet(frozenset({1, 3}), 6))
        assert group.waited_for == {3}
        for proposed, count in (({1}, 2), ({1, 2, 3}, 3)):
            group.propose(proposed)
            assert group.count == count

    def test_what_is_not_answered_is_asked_again_and_nothing_else(self):
        group = states(1, 2)
        connect(group, 3)
        report(group, 3, 1000)
        group.propose({1})
        assert group.expansion() is None
        assert group.check(1000, 0) == {1}

    def test_a_refusal_brings_the_former_members_back(self):
        group = states(1, 2)
        group.propose({1})
        group.refused(0)
        assert group.proposed is None
        assert group.waited_for == {2}

    @pytest.mark.parametrize("epoch", [4, 5])
    def test_old_news_change_nothing(self, epoch):
        group = states(1, 2)
        group.propose({1})
        assert not group.apply(SyncStateSet(frozenset({1, 3}), epoch))
        assert group.applied.members == {1, 2}
        assert group.proposed == {1}


class TestOffsets:
    def test_everyone_waited_for_must_be_there_and_have_said_something(self):
        group = states(1, 2, 3)
        connect(group, 2)
        report(group, 2, 500)
        assert group.everyone() == -1
        connect(group, 3)
        assert group.everyone() == -1
        report(group, 3, 400)
        assert group.everyone() == 400
        group.lost(3, 0)
        assert group.everyone() == -1

    def test_a_number_of_copies_may_be_anywhere(self):
        group = states(1)
        for broker_id, offset in [(2, 500), (3, 400)]:
            connect(group, broker_id)
            report(group, broker_id, offset)
        assert [group.copies(replicas) for replicas in (2, 3, 4)] == [500, 400, -1]


def test_a_missed_answer_leaves_a_doubt_about_an_open_proposal_only():
    """A newer set ends what was proposed before, also what was asked once more."""
    group = states(1)
    group.propose({1, 2})
    group.apply(SyncStateSet(frozenset({1, 3}), 6))
    group.unanswered()
    assert not group.may_be_taken
    group.propose({1, 2})
    group.unanswered()
    assert group.may_be_taken
