"""A broker keeps the role that the controllers give it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from twisted.internet.defer import Deferred, execute, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.broker.election.enrolment import Enrolment
from rocketmq_tw.broker.election.following import ControllerFollower
from rocketmq_tw.broker.election.identity import IdentityFiles
from rocketmq_tw.broker.election.master_requests import MasterRequests, NotMasterError
from rocketmq_tw.broker.replicas.switching import LogProgress
from rocketmq_tw.broker.role.candidacy import FIRST_PAUSE, Candidacy
from rocketmq_tw.broker.role.health import Health
from rocketmq_tw.broker.role.holder import RoleChanges, RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.client.controller import ElectionResult
from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.net.errors import ConnectError
from rocketmq_tw.runtime.retries import RETRY_USUAL
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.group_state import GroupState, SyncStateSet
from tests.support.broker import fired

ME = "10.0.0.1:10911"


class Controllers:
    """Controllers that know one group; `down`: nobody answers."""

    def __init__(self, group: GroupState) -> None:
        self.state = group
        self.down = False
        self.knows = True
        #: Whether the broker's id was taken out.
        self.is_cleaned = False
        self.registered: list[str] = []
        self.elections = 0
        #: The epochs that were ended.
        self.deposed: list[int] = []
        self.never_begun: list[int] = []
        self.keeps_its_master = False
        #: What a registration is answered, where that is not all that is known.
        self.registration: GroupState | None = None
        self.asked = 0
        self.elected: GroupState | None = None
        #: Every answer waits for it.
        self.answers: Deferred[None] | None = None

    def next_broker_id(self, cluster: str, name: str) -> Deferred[int]:
        return self._answer(lambda: 1)

    def apply_broker_id(
        self, cluster: str, name: str, broker_id: int, check_code: str
    ) -> Deferred[None]:
        return self._answer(lambda: None)

    def register_broker(
        self, cluster: str, name: str, broker_id: int, address: str
    ) -> Deferred[GroupState]:
        def register() -> GroupState:
            self.registered.append(address)
            if self.is_cleaned:
                code = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
                raise refused(code, f"id {broker_id} was not given to anybody")
            self.knows = True
            return self.registration or self.state

        return self._answer(register)

    def replica_info(self, name: str) -> Deferred[GroupState]:
        self.asked += 1

        def look() -> GroupState:
            if not self.knows:
                raise refused(ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, "unknown")
            return self.state

        return self._answer(look)

    def elect_master(self, cluster: str, name: str, broker_id: int) -> Deferred[ElectionResult]:
        def elect() -> ElectionResult:
            self.elections += 1
            if self.elected is None:
                raise refused(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, "nobody")
            self.state = self.elected
            return ElectionResult(True, self.state, {})

        return self._answer(elect)

    def end_epoch(
        self, cluster: str, name: str, epoch: int, *, never_begun: bool = False
    ) -> Deferred[None]:
        def end() -> None:
            if self.keeps_its_master:
                raise refused(ResponseCode.SYSTEM_ERROR, "no decision within 5 s")
            assert epoch == self.state.master_epoch
            self.deposed.append(epoch)
            if never_begun:
                self.never_begun.append(epoch)
            self.state = self.state._replace(
                master_id=None, master_epoch=self.state.master_epoch + 1
            )

        return self._answer(end)

    def alter_sync_state_set(
        self, name: str, broker_id: int, master_epoch: int, members: Collection[int], epoch: int
    ) -> Deferred[SyncStateSet]:
        def alter() -> SyncStateSet:
            assert (master_epoch, epoch) == (self.state.master_epoch, self.state.in_sync.epoch)
            altered = SyncStateSet(frozenset(members), epoch + 1)
            self.state = self.state._replace(in_sync=altered)
            return altered

        return self._answer(alter)

    def _answer(self, decide: Callable[[], Any]) -> Deferred[Any]:
        if self.down:
            return fail(ConnectError("controller", "refused"))
        answer = execute(decide)
        return answer if self.answers is None else self.answers.addCallback(lambda _: answer)


def refused(code: ResponseCode, remark: str) -> BrokerError:
    return BrokerError("10.1.0.1:9878", code, remark)


def group(master: int | None, epoch: int, members: Collection[int] = (), of: int = 1) -> GroupState:
    address = "" if master is None else f"10.0.0.{master}:10911"
    return GroupState(master, address, epoch, SyncStateSet(frozenset(members), of))


def electing(state: GroupState) -> Controllers:
    """Controllers that will have this state: a master that is elected when it is asked for."""
    controllers = Controllers(group(None, state.master_epoch - 1))
    controllers.elected = state
    return controllers


class Joining:
    """A broker that follows `controllers`, with the roles that it took."""

    def __init__(self, controllers: Controllers) -> None:
        self.clock, self.role = Clock(), RoleHolder()
        self.roles: list[tuple[Role, int]] = []
        self.members: list[frozenset[int]] = []
        self.beats = 0
        self.holds_on = False
        self.refuse: Exception | None = None
        #: What this object is as the broker's replication.
        self.sync_state_set: SyncStateSet | None = None
        self.progress = LogProgress(0, 0, 0)
        identity = IdentityFiles(MemoryFiles(), "/store/brokerIdentity", "cluster", "broker-a")
        self.health = Health()
        self.candidacy = Candidacy(self.clock, self.health, self.role)
        known: Any = SimpleNamespace(
            client=controllers, heartbeat=self._beat, candidacy=self.candidacy
        )
        host: Any = SimpleNamespace(
            reactor=self.clock,
            store_config=SimpleNamespace(async_learner=False),
            named=lambda log: log,
        )
        addresses: Any = SimpleNamespace(broker=ME)
        replication: Any = self
        self.changes = changes = RoleChanges()
        changes.change = self._take

        def in_thread(work: Callable[[], Any]) -> Deferred[Any]:
            return execute(work)

        self.follower = ControllerFollower(
            host,
            known,
            Enrolment(identity, known.client, in_thread, lambda: 7),
            addresses,
            self.role,
            changes,
            replication,
        )
        self.requests = MasterRequests(known, self.follower, self.role, replication)

    @property
    def sync_state_set_epoch(self) -> int:
        return 0 if self.sync_state_set is None else self.sync_state_set.epoch

    def _take(self, state: RoleState) -> Deferred[None]:
        assert state.group is not None
        if self.role.role is not Role.ISOLATED:
            self.role.change(RoleState(Role.ISOLATED, state.broker_id))
        if self.refuse is not None:
            return fail(self.refuse)
        self.sync_state_set = state.group.in_sync
        self.role.change(state)
        self.roles.append((state.role, state.group.master_epoch))
        return succeed(None)

    def renew(self, news: GroupState) -> Deferred[None]:
        self.role.renew(news)
        self.sync_state_set = news.in_sync
        self.roles.append((Role.MASTER, news.master_epoch))
        return succeed(None)

    def apply(self, in_sync: SyncStateSet) -> None:
        self.members.append(in_sync.members)
        self.sync_state_set = in_sync

    def _beat(self, broker_id: int, address: str, progress: LogProgress, *, holds_on: bool) -> None:
        self.beats += 1
        self.holds_on = holds_on


def cannot_write(health: Health, why: str) -> None:
    health.observe(0.0, broken=why, troubles={}, unready="")


def test_the_first_broker_of_a_group_asks_to_be_its_master() -> None:
    controllers = Controllers(group(None, 0))
    controllers.elected = group(1, 1, {1})
    joining = Joining(controllers)
    joining.follower.start()
    assert joining.roles == [(Role.MASTER, 1)]
    assert joining.beats == 1
    assert controllers.registered == [ME]


def test_it_follows_a_master_that_is_there() -> None:
    joining = Joining(Controllers(group(2, 3, {2})))
    joining.follower.start()
    assert joining.roles == [(Role.SLAVE, 3)]


def test_without_controllers_it_stays_without_a_role_and_tries_again() -> None:
    controllers = Controllers(group(2, 3))
    controllers.down = True
    joining = Joining(controllers)
    joining.follower.start()
    joining.clock.pump([RETRY_USUAL] * 5)
    assert joining.role.role is Role.ISOLATED
    controllers.down = False
    joining.clock.advance(RETRY_USUAL)
    assert joining.roles == [(Role.SLAVE, 3)]
    assert not joining.clock.getDelayedCalls()


def test_that_no_controller_answers_is_said_once_a_minute() -> None:
    controllers = electing(group(1, 3, {1}))
    controllers.down = True
    joining = Joining(controllers)
    with capturedLogs() as logs:
        joining.follower.start()
        joining.clock.pump([RETRY_USUAL] * 119)
    said = [formatEvent(event) for event in logs]
    assert len(said) == 2 and all("no role from the controllers" in line for line in said)
    controllers.down = False
    joining.clock.advance(RETRY_USUAL)
    assert joining.role.is_master
    controllers.down = True
    with capturedLogs() as logs:
        fired(joining.follower.poll())
        fired(joining.follower.poll())
    assert ["no news" in formatEvent(event) for event in logs] == [True]


def test_a_broker_with_a_role_keeps_it_while_controllers_are_down() -> None:
    controllers = electing(group(1, 3, {1}))
    joining = Joining(controllers)
    joining.follower.start()
    controllers.down = True
    fired(joining.follower.poll())
    assert joining.role.is_master


def test_a_failed_election_is_asked_for_again() -> None:
    controllers = Controllers(group(None, 4))
    joining = Joining(controllers)
    joining.follower.start()
    joining.clock.pump([RETRY_USUAL] * 3)
    assert (joining.roles, controllers.elections) == ([], 4)
    controllers.elected = group(1, 5, {1})
    joining.clock.advance(RETRY_USUAL)
    assert joining.roles == [(Role.MASTER, 5)]


def test_news_change_the_role_whether_told_or_asked_for() -> None:
    controllers = Controllers(group(2, 3))
    joining = Joining(controllers)
    joining.follower.start()
    controllers.state = group(1, 4, {1})
    joining.follower.told(4)
    controllers.state = group(2, 5)
    fired(joining.follower.poll())
    controllers.state = group(1, 4, {1})
    fired(joining.follower.poll())
    assert joining.roles == [(Role.SLAVE, 3), (Role.MASTER, 4), (Role.SLAVE, 5)]


def test_a_master_takes_a_new_set_once() -> None:
    controllers = electing(group(1, 3, {1}, 1))
    joining = Joining(controllers)
    joining.follower.start()
    controllers.state = group(1, 3, {1, 2}, 2)
    fired(joining.follower.poll())
    fired(joining.follower.poll())
    assert joining.members == [{1, 2}]
    decided = fired(joining.requests.propose({1}))
    assert decided == SyncStateSet(frozenset({1}), 3)
    joining.sync_state_set = decided
    fired(joining.follower.poll())
    assert joining.members == [{1, 2}]


def test_a_proposal_that_nobody_decides_changes_nothing() -> None:
    controllers = electing(group(1, 3, {1}, 1))
    joining = Joining(controllers)
    joining.follower.start()
    controllers.down = True
    with pytest.raises(ConnectError):
        fired(joining.requests.propose({1, 2}))
    controllers.down = False
    fired(joining.follower.poll())
    assert joining.members == []


def test_a_yes_to_a_master_of_an_epoch_that_is_over_counts_for_nothing() -> None:
    controllers = electing(group(1, 3, {1}, 1))
    joining = Joining(controllers)
    joining.follower.start()
    controllers.answers = Deferred()
    asked = joining.requests.propose({1, 2})
    joining.role.renew(group(1, 4, {1}))
    controllers.answers.callback(None)
    with pytest.raises(NotMasterError, match="epoch 3"):
        fired(asked)


@pytest.mark.parametrize("error", [OSError("the disk is full"), ValueError("of any part")])
def test_a_role_that_could_not_be_taken_is_given_up_and_taken_later(error: Exception) -> None:
    controllers = electing(group(1, 3, {1}))
    joining = Joining(controllers)
    joining.refuse = error
    joining.follower.start()
    assert (joining.roles, controllers.deposed) == ([], [3])
    joining.refuse = None
    controllers.elected = group(1, 5, {1})
    joining.clock.pump([RETRY_USUAL] * 5)
    fired(joining.follower.poll())
    assert (joining.roles, controllers.elections) == ([], 1)
    joining.clock.advance(FIRST_PAUSE)
    assert joining.roles == [(Role.MASTER, 5)]
    assert controllers.never_begun == [3]


def test_an_epoch_that_was_given_up_is_not_begun_where_that_was_not_heard() -> None:
    controllers = electing(group(1, 3, {1}))
    joining = Joining(controllers)
    joining.refuse = OSError("the disk is full")
    controllers.keeps_its_master = True
    joining.follower.start()
    joining.refuse = None
    joining.clock.advance(FIRST_PAUSE)
    assert joining.roles == []
    controllers.keeps_its_master = False
    controllers.elected = group(1, 5, {1})
    fired(joining.follower.poll())
    assert (joining.roles, controllers.never_begun) == ([(Role.MASTER, 5)], [3])


def test_a_master_that_cannot_write_gives_up_an_epoch_that_it_began() -> None:
    controllers = electing(group(1, 3, {1, 2}))
    joining = Joining(controllers)
    joining.follower.start()
    cannot_write(joining.health, "the disk failed")
    assert (controllers.deposed, controllers.never_begun) == ([3], [])
    assert not joining.holds_on
    fired(joining.follower.poll())
    assert (controllers.elections, joining.roles) == (1, [(Role.MASTER, 3)])
    controllers.state = group(2, 5)
    fired(joining.follower.poll())
    assert joining.roles[1:] == [(Role.SLAVE, 5)]


def test_a_master_alone_in_sync_holds_on_until_another_one_is() -> None:
    """Were there no master, nobody could be put in sync and elected."""
    controllers = electing(group(1, 3, {1}))
    joining = Joining(controllers)
    joining.follower.start()
    cannot_write(joining.health, "the disk failed")
    fired(joining.follower.poll())
    joining.follower.beat()
    assert (controllers.deposed, joining.holds_on) == ([], True)
    controllers.state = group(1, 3, {1, 2})
    fired(joining.follower.poll())
    assert (controllers.deposed, joining.holds_on) == ([3], False)


def test_who_cannot_write_takes_no_role_that_it_is_given() -> None:
    controllers = Controllers(group(2, 3))
    joining = Joining(controllers)
    joining.follower.start()
    cannot_write(joining.health, "the disk failed")
    controllers.state = group(1, 4, {1})
    fired(joining.follower.poll())
    assert (controllers.never_begun, joining.roles) == ([4], [(Role.SLAVE, 3)])
    controllers.elected = group(1, 6, {1})
    cannot_write(joining.health, "")
    assert joining.roles[1:] == [(Role.MASTER, 6)]


def test_an_epoch_that_is_being_begun_may_have_begun() -> None:
    controllers = electing(group(1, 3, {1}))
    joining = Joining(controllers)
    entering: Deferred[None] = Deferred()
    take = joining.changes.change
    joining.changes.change = lambda state: entering.addCallback(lambda _: take(state))
    joining.follower.start()
    cannot_write(joining.health, "the disk failed")
    assert (controllers.deposed, controllers.never_begun) == ([3], [])
    entering.callback(None)
    assert joining.roles == [(Role.MASTER, 3)]


def test_old_news_do_not_help_a_broker_that_lost_its_role() -> None:
    controllers = Controllers(group(2, 3))
    joining = Joining(controllers)
    joining.follower.start()
    joining.refuse = OSError("the disk is full")
    controllers.state = group(1, 5, {1})
    fired(joining.follower.poll())
    joining.refuse = None
    controllers.state = group(2, 4)
    fired(joining.follower.poll())
    assert joining.role.role is Role.ISOLATED
    controllers.state = group(1, 7, {1})
    joining.clock.advance(FIRST_PAUSE)
    assert joining.role.is_master


def test_a_broker_that_the_controllers_forgot_registers_again() -> None:
    controllers = Controllers(group(2, 3))
    joining = Joining(controllers)
    joining.follower.start()
    controllers.knows = False
    fired(joining.follower.poll())
    assert controllers.registered == [ME, ME]


@pytest.mark.parametrize("joined", [False, True])
def test_nothing_happens_any_more_once_it_stopped(joined: bool) -> None:
    controllers = Controllers(group(2, 3))
    controllers.down = not joined
    joining = Joining(controllers)
    joining.follower.start()
    joining.follower.stop()
    controllers.down = False
    controllers.state = group(1, 9)
    joining.follower.told(9)
    fired(joining.follower.poll())
    joining.clock.advance(10 * RETRY_USUAL)
    assert joining.roles == ([(Role.SLAVE, 3)] if joined else [])
    assert not joining.clock.getDelayedCalls()


def test_an_answer_that_comes_once_it_stopped_changes_nothing() -> None:
    controllers = Controllers(group(2, 3))
    joining = Joining(controllers)
    joining.follower.start()
    controllers.state = group(1, 4, {1})
    late = controllers.answers = Deferred()
    joining.follower.poll()
    joining.follower.stop()
    late.callback(None)
    assert joining.roles == [(Role.SLAVE, 3)]


def test_a_slave_proposes_nothing() -> None:
    joining = Joining(Controllers(group(2, 3)))
    joining.follower.start()
    with pytest.raises(NotMasterError):
        fired(joining.requests.propose({1}))


def test_news_do_not_wait_for_a_controller_that_hangs() -> None:
    controllers = Controllers(group(2, 3))
    joining = Joining(controllers)
    joining.follower.start()
    answers = controllers.answers = Deferred()
    polled = joining.follower.poll()
    controllers.answers = None
    controllers.state = group(1, 4, {1})
    joining.follower.told(4)
    assert joining.role.is_master
    # What it says at last is old by then.
    answers.callback(None)
    fired(polled)
    assert joining.role.is_master


def test_hearsay_is_asked_about_and_never_believed() -> None:
    controllers = Controllers(group(2, 3))
    joining = Joining(controllers)
    joining.follower.start()
    controllers.asked = 0
    answers = controllers.answers = Deferred()
    for epoch in range(100):
        joining.follower.told(4 + epoch)
    assert controllers.asked == 1
    controllers.answers = None
    answers.callback(None)
    assert controllers.asked == 2
    assert joining.roles == [(Role.SLAVE, 3)]
    # It knows of that one.
    joining.follower.told(3)
    assert controllers.asked == 2


def test_a_process_does_not_go_on_in_the_epoch_of_a_former_one() -> None:
    controllers = Controllers(group(1, 3, {1, 2}, 7))
    controllers.elected = group(1, 5, {1}, 8)
    joining = Joining(controllers)
    joining.follower.start()
    # What the former process had proposed for the set of epoch 7 is refused from now on.
    assert controllers.deposed == [3]
    assert joining.roles == [(Role.MASTER, 5)]
    fired(joining.follower.poll())
    assert (controllers.deposed, joining.roles) == ([3], [(Role.MASTER, 5)])


def test_nor_where_its_registration_does_not_tell_of_that_epoch() -> None:
    controllers = Controllers(group(1, 3, {1, 2}, 7))
    controllers.elected = group(1, 5, {1}, 8)
    # As while the controllers have not heard of the master yet.
    controllers.registration = group(None, 0)
    joining = Joining(controllers)
    joining.follower.start()
    assert (controllers.deposed, joining.roles) == ([3], [(Role.MASTER, 5)])


def test_nor_where_its_first_question_is_lost_and_a_later_one_is_answered() -> None:
    controllers = Controllers(group(1, 3, {1, 2}, 7))
    controllers.elected = group(1, 5, {1}, 8)
    joining = Joining(controllers)
    with patch.object(
        controllers, "replica_info", lambda name: fail(ConnectError("controller", "lost"))
    ):
        joining.follower.start()
    fired(joining.follower.poll())
    assert (controllers.deposed, joining.roles) == ([3], [(Role.MASTER, 5)])


def test_nor_where_another_one_is_elected_then() -> None:
    controllers = Controllers(group(1, 3, {1, 2}, 7))
    controllers.elected = group(2, 5, {2}, 8)
    joining = Joining(controllers)
    joining.follower.start()
    assert (controllers.deposed, joining.roles) == ([3], [(Role.SLAVE, 5)])


@pytest.mark.parametrize(
    ("news", "roles"),
    [
        # Another one is the master by now, or this one in a later epoch.
        (group(2, 4), [(Role.MASTER, 3), (Role.SLAVE, 4)]),
        (group(1, 4, {1}, 2), [(Role.MASTER, 3), (Role.MASTER, 4)]),
        # The set is a newer one, so it is known who is in sync.
        (group(1, 3, {1, 2}, 2), [(Role.MASTER, 3)]),
    ],
)
def test_a_master_ends_no_epoch_but_its_own(
    news: GroupState, roles: list[tuple[Role, int]]
) -> None:
    controllers = electing(group(1, 3, {1}, 1))
    joining = Joining(controllers)
    joining.follower.start()
    controllers.state = news
    fired(joining.requests.renounce())
    assert controllers.deposed == []
    assert joining.roles == roles


def test_an_epoch_that_cannot_be_ended_is_not_begun_either() -> None:
    controllers = Controllers(group(1, 3, {1}))
    controllers.elected = group(1, 5, {1})
    controllers.keeps_its_master = True
    joining = Joining(controllers)
    joining.follower.start()
    joining.clock.pump([RETRY_USUAL] * 3)
    assert joining.roles == []
    controllers.keeps_its_master = False
    joining.clock.advance(RETRY_USUAL)
    assert joining.roles == [(Role.MASTER, 5)]


def test_a_slave_that_was_taken_out_while_it_lives_says_so_now_and_then() -> None:
    controllers = Controllers(group(2, 3, {1, 2}))
    joining = Joining(controllers)
    joining.follower.start()
    controllers.is_cleaned = True
    controllers.state = group(2, 3, {2}, 2)
    with capturedLogs() as logs:
        for _ in range(90):
            joining.clock.advance(1)
            fired(joining.follower.poll())
    told = [formatEvent(event) for event in logs]
    assert len(told) == 3
    assert all("do not know id 1" in line and "brokerIdentity" in line for line in told)
    assert joining.roles == [(Role.SLAVE, 3)]


def test_who_is_in_sync_or_waits_for_it_is_known() -> None:
    controllers = Controllers(group(2, 3, {1, 2}))
    joining = Joining(controllers)
    joining.follower.start()
    for seconds in (29, 2, 29):
        joining.clock.advance(seconds)
        fired(joining.follower.poll())
    assert controllers.registered == [ME]
    controllers.state = group(2, 3, {2}, 2)
    fired(joining.follower.poll())
    assert controllers.registered == [ME, ME]
