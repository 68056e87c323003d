import pytest
from twisted.logger import capturedLogs

from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.wire.group_state import GroupState, SyncStateSet

#: Between a master and a copy there is always a time without a role; an acting master is a slave.
ALLOWED = {
    (Role.ISOLATED, Role.MASTER),
    (Role.ISOLATED, Role.SLAVE),
    (Role.MASTER, Role.ISOLATED),
    (Role.SLAVE, Role.ISOLATED),
    (Role.SLAVE, Role.ACTING_MASTER),
    (Role.ACTING_MASTER, Role.SLAVE),
}


def group(epoch: int) -> GroupState:
    return GroupState(1, "10.0.0.1:10911", epoch, SyncStateSet(frozenset({1}), 1))


def state(role: Role, epoch: int | None = None, confirmed_offset: int | None = None) -> RoleState:
    known = None if epoch is None else group(epoch)
    return RoleState(role, 0, confirmed_offset=confirmed_offset, group=known)


@pytest.mark.parametrize("before", Role)
@pytest.mark.parametrize("after", Role)
def test_which_role_may_follow_which(before: Role, after: Role) -> None:
    holder = RoleHolder(state(before))
    if (before, after) in ALLOWED:
        holder.change(state(after))
        assert holder.role is after
    else:
        with pytest.raises(ValueError, match=f"{before.value} cannot be {after.value}"):
            holder.change(state(after))
        assert holder.role is before


def test_the_attributes_of_each_role() -> None:
    assert [
        (holder.is_master, holder.copies_log, holder.delivers)
        for holder in (RoleHolder(state(role)) for role in Role)
    ] == [
        (False, False, False),
        (True, False, True),
        (False, True, False),
        (False, True, True),
    ]


def test_only_a_master_writes_a_log_of_its_own() -> None:
    assert [role for role in Role if role.writes_log] == [Role.MASTER]


def test_the_scope_of_a_role_ends_with_it_before_anybody_hears_of_the_next() -> None:
    holder, told = RoleHolder(), []
    isolated = holder.scope
    holder.changed.add(lambda former, now: told.append((former.role, now.role)))
    isolated.on_end(lambda: told.append(("over", holder.role, holder.scope is not isolated)))
    holder.change(state(Role.MASTER))
    assert isolated.is_over and not holder.scope.is_over
    assert told == [("over", Role.MASTER, True), (Role.ISOLATED, Role.MASTER)]


def test_the_scope_of_a_slave_goes_on_while_it_is_the_acting_master() -> None:
    holder = RoleHolder(state(Role.SLAVE))
    slave = holder.scope
    holder.change(state(Role.ACTING_MASTER))
    acting = holder.scope
    assert acting is not slave and not slave.is_over
    holder.change(state(Role.SLAVE))
    assert acting.is_over and holder.scope is slave and not slave.is_over
    holder.change(state(Role.ISOLATED))
    assert slave.is_over and holder.scope not in (slave, acting)


def test_a_scope_outlasts_another_election_of_the_same_master() -> None:
    holder = RoleHolder(state(Role.MASTER, epoch=3))
    scope = holder.scope
    holder.renew(group(4))
    holder.confirm(5)
    holder.cut(2)
    assert holder.scope is scope and not scope.is_over
    holder.change(state(Role.ISOLATED))
    assert scope.is_over


def test_subscribers_are_told_in_order_until_they_unsubscribe() -> None:
    holder, told = RoleHolder(), []
    first = holder.changed.add(lambda before, after: told.append(("first", after.role)))
    holder.changed.add(lambda before, after: told.append(("second", after.role)))
    holder.change(state(Role.MASTER))
    first()
    first()
    holder.change(state(Role.ISOLATED))
    assert told == [
        ("first", Role.MASTER),
        ("second", Role.MASTER),
        ("second", Role.ISOLATED),
    ]


def test_a_subscriber_that_fails_keeps_it_from_nobody() -> None:
    holder, told = RoleHolder(), []

    def fail(before: RoleState, after: RoleState) -> None:
        raise OSError("no disk")

    holder.changed.add(fail)
    holder.changed.add(lambda before, after: told.append(after.role))
    with capturedLogs() as logs:
        holder.change(state(Role.SLAVE))
    assert told == [Role.SLAVE] and len(logs) == 1


def test_a_confirmed_offset_only_grows() -> None:
    holder = RoleHolder(state(Role.MASTER, epoch=3, confirmed_offset=10))
    told = []
    holder.changed.add(lambda before, after: told.append(after))
    holder.confirm(12)
    holder.confirm(12)
    with pytest.raises(ValueError, match="12 cannot go back to 11"):
        holder.confirm(11)
    assert holder.state == state(Role.MASTER, epoch=3, confirmed_offset=12)
    assert not told, "the role is what it was"


def test_no_confirmed_offset_where_nobody_gives_one() -> None:
    with pytest.raises(ValueError, match="has no confirmed offset"):
        RoleHolder(state(Role.MASTER)).confirm(1)


def test_what_was_cut_off_is_not_confirmed_any_more() -> None:
    holder = RoleHolder(state(Role.SLAVE, epoch=3))
    holder.cut(5)
    assert holder.state.confirmed_offset is None
    holder.confirm(12)
    holder.cut(20)
    assert holder.state.confirmed_offset == 12
    holder.cut(8)
    holder.confirm(9)
    assert holder.state.confirmed_offset == 9


def test_a_master_that_is_elected_again_has_a_later_epoch() -> None:
    holder = RoleHolder(state(Role.MASTER, epoch=3))
    holder.renew(group(4))
    assert holder.state.epoch == 4
    with pytest.raises(ValueError, match="epoch 4 cannot follow 4"):
        holder.renew(group(4))
    with pytest.raises(ValueError, match="cannot follow None"):
        RoleHolder(state(Role.MASTER)).renew(group(1))
