"""Real brokers in a group with a controller, which a test plays: masters change, logs agree."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.broker.cluster.name_server_links import Master
from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.replicas.replicated_log import SwitchedLog
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.group_state import GroupState, SyncStateSet
from rocketmq_tw.wire.headers.broker import ExchangeHAInfoRequestHeader
from tests.support.broker import fired
from tests.support.noted_sends import log_of
from tests.support.played_group import PlayedGroup, led
from tests.support.stores import ROOT


def test_without_a_controller_a_broker_waits_unseen() -> None:
    group = PlayedGroup(1)
    group.settle(40)
    assert group[1].broker.role.role is Role.ISOLATED
    group.send(1)
    assert ResponseCode.SUCCESS not in group.codes


def test_a_new_master_tells_its_topics_once_its_log_is_in_the_queues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = led(2, slave_timeout=200)
    group.refusal = ConnectionError("no controller")
    group[2].stop()
    group.send(1, 7)
    group.settle(2)
    group[1].stop()
    broker = group.brokers[0] = group.make(1)
    told = (RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    with monkeypatch.context() as patch:
        # Others come first.
        patch.setattr(broker.store, "dispatch", lambda: 0)
        group.elect(1, tell=(1,))
        for code in told:
            with pytest.raises(RequestError, match="ask again"):
                broker.ask(code)
    broker.commit.confirmed()
    group.settle()
    for code in told:
        assert broker.ask(code).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_masters_change_and_all_logs_are_one(flush: str) -> None:
    group = led(flush_disk_type=flush)
    assert group.members.members == {1, 2, 3}
    for master in (2, 3, 1, 3):
        group.send(master if group.epoch > 1 else 1)
        group.elect(master)
        group.send(master, 10)
        group.settle(1)
    assert len(group.acknowledged) >= 40
    # Only a master has a set.
    assert [group.switching(number).sync_state_set for number in (1, 2)] == [None, None]
    assert group.members.members == {1, 2, 3}
    group.check_equal()
    assert [entry.epoch for entry in group.switching(2).epochs.table.entries] == [1, 2, 3, 4, 5]


def test_a_former_masters_unconfirmed_tail_is_cut_with_its_queues() -> None:
    group = led()
    group.send(1)
    end = group[1].store.end_offset
    # It is master for itself only, by now.
    group.elect(2, tell=(2, 3))
    group.send(1, 7)
    group.settle(4)
    assert group[1].store.end_offset > end
    assert group.codes.count(ResponseCode.FLUSH_SLAVE_TIMEOUT) == 7
    assert len(group.bodies(1)) == 5, "readers see only what is confirmed"
    group.send(2, 9)
    group.tell(1, 2)
    group.settle(4)
    group.check_equal()
    assert len(group.bodies(1)) == 14


def test_a_slave_shows_what_is_confirmed_and_no_more() -> None:
    group = led()
    group.network.stop(group[3].address)
    for slave in (2, 3):
        follower = group[slave].broker[Replicas].slave
        assert follower is not None and follower.client.linked
    group.send(1)
    assert len(group.bodies(2)) == len(group.bodies(3)) == 5
    confirmed = group.switching(1).progress.confirmed
    assert confirmed == group[1].store.end_offset == group.switching(2).progress.confirmed
    assert group[2].broker.role.state.confirmed_offset == confirmed


def test_a_slave_follows_whom_the_controller_names_and_nobody_else() -> None:
    group = led(2)
    follower = group[2].broker[Replicas].slave
    assert follower is not None
    followed = follower.client.master_address
    follower.learned(Master("10.0.0.9:10911", "10.0.0.9:10912"))
    assert follower.client.master_address == followed
    group.send(1)
    group.check_equal()


def test_what_is_cut_off_is_confirmed_no_more() -> None:
    group = led(2)
    group.send(1)
    broker = group[2].broker
    end = group[2].store.end_offset
    assert broker.role.state.confirmed_offset == end
    group[1].stop()
    cut = broker[Writing].truncation.cut(0)
    group.settle(0.1)
    fired(cut)
    assert broker.role.state.confirmed_offset == 0 == group.switching(2).progress.confirmed


def test_nothing_is_confirmed_between_two_roles() -> None:
    group = led(2)
    group.send(1)
    broker, store = group[2].broker, group[2].store
    group.network.stop(group[1].address)
    confirmed, changed = store.dispatched_offset, []
    assert store.dispatch_limit == confirmed
    log = SwitchedLog(broker[Writing], store.config, broker.role)
    broker.role.changed.add(lambda former, now: changed.append(log.confirm(confirmed + 1)))
    broker.role.change(RoleState(Role.ISOLATED, 2))
    assert changed == [None]
    assert store.dispatch_limit == confirmed


def test_who_has_its_answer_finds_its_message() -> None:
    group = led()
    seen: list[tuple[int, int]] = []
    request = group[1].send_request(b"x", queue_id=0)
    answered = group.client.request(group[1].address, request, 5)
    answered.addCallback(
        lambda response: seen.append((response.code, len(group[1].consume("Topic", 0))))
    )
    group.settle()
    assert seen == [(ResponseCode.SUCCESS, 1)]


def test_a_slave_that_is_gone_holds_senders_until_the_controller_says_so() -> None:
    group = led(slave_timeout=60_000)
    group.refusal = ConnectionError("no controller")
    group[3].stop()
    group.send(1)
    group.settle(3)
    assert group.codes == []
    assert group.bodies(1) == [], "nor does anyone see what they sent"
    group.refusal = None
    group.settle(3)
    assert group.codes == [ResponseCode.SUCCESS] * 5
    assert group.members.members == {1, 2}
    assert len(group.bodies(1)) == 5


def test_too_few_in_sync_and_nothing_is_stored() -> None:
    group = led(min_in_sync_replicas=3)
    group.send(1)
    end = group[1].store.end_offset
    group[3].stop()
    group.settle(3)
    with pytest.raises(RequestError, match="in-sync replicas not enough") as refused:
        group[1].handlers[RequestCode.SEND_MESSAGE_V2](group[1].send_request(b"x"), group[1].peer)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    assert group[1].store.end_offset == end


def test_a_number_of_copies_is_enough_without_all_ack() -> None:
    group = led(all_ack_in_sync_state_set=False, in_sync_replicas=2)
    group.refusal = ConnectionError("no controller")
    group[3].stop()
    group.send(1)
    assert group.codes == [ResponseCode.SUCCESS] * 5


def test_a_learner_copies_and_never_counts() -> None:
    group = PlayedGroup(2, async_learner=True)
    group.elect(1)
    group[1].add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
    group.settle(6)
    assert group.members.members == {1}
    group.send(1)
    group.settle(1)
    assert group.codes == [ResponseCode.SUCCESS] * 5
    group.check_equal()


@pytest.mark.parametrize("from_last, starts", [(False, 0), (True, 1 << 16)])
def test_where_an_empty_slave_starts(from_last: bool, starts: int) -> None:
    group = led(1, mapped_file_size_commit_log=1 << 16, sync_from_last_file=from_last)
    group[1].put("Topic", *[b"x" * 1000] * 80)
    group.files.append(MemoryFiles())
    group.brokers.append(group.make(2))
    group.tell(2, 1)
    group.settle(6)
    assert group[2].store.min_physical_offset == starts
    assert group[2].store.end_offset == group[1].store.end_offset
    assert group.members.members == {1, 2}


@pytest.mark.parametrize("later_epoch", [False, True])
def test_a_slave_whose_data_the_master_has_no_more_is_told_what_to_do(later_epoch: bool) -> None:
    group = led(2, mapped_file_size_commit_log=1 << 16)
    group.send(1)
    group[2].stop()
    end = group[2].store.end_offset
    if later_epoch:
        # The slave ends where an epoch begins that becomes the oldest.
        group.elect(1, tell=(1,))
    group[1].put("Topic", *[b"x" * 1000] * 130)
    group.settle(1)
    store = group[1].store
    store.checkpoint()
    while store.min_physical_offset <= end:
        assert sum(store.clean(group[1].now_ms() + 10**10, at_any_hour=True))
    group.settle(11)
    group.brokers[1] = group.make(2)
    with capturedLogs() as logs:
        group.tell(2, 1)
        group.settle(5)
    follower = group[2].broker[Replicas].slave
    assert follower is not None
    assert not follower.client.linked
    assert group[2].store.end_offset == end
    said = [formatEvent(event) or "" for event in logs]
    (told,) = [line for line in said if "what lies between is gone" in line]
    assert "but for brokerIdentity" in told and "docs/controller.md" in told
    # What it says helps.
    group[2].stop()
    group.files[1] = MemoryFiles()
    group.brokers[1] = group.make(2)
    group.tell(2, 1)
    group.settle(6)
    held = [(one.store.min_physical_offset, one.store.end_offset) for one in group.brokers]
    assert held[0] == held[1]
    assert group.members.members == {1, 2}


@pytest.mark.parametrize("all_ack", [False, True])
def test_a_master_that_lost_its_store_takes_nobody_elses(all_ack: bool) -> None:
    group = led(2, all_ack_in_sync_state_set=all_ack)
    group.send(1)
    group.settle(1)
    bodies = group.bodies(2)
    assert len(bodies) == 5
    for number in (1, 2):
        group[number].stop()
    group.files[0] = MemoryFiles()
    group.brokers[:] = [group.make(1), group.make(2)]
    group.elect(1)
    group.settle(5)
    assert group.bodies(2) == bodies
    follower = group[2].broker[Replicas].slave
    assert follower is not None
    assert "which may be here alone" in follower.client._noted


def test_epochs_go_with_their_files() -> None:
    group = led(1, mapped_file_size_commit_log=1 << 16)
    for _ in range(3):
        group[1].put("Topic", *[b"x" * 1000] * 70)
        group.elect(1)
    assert len(group.switching(1).epochs.table.entries) == 4
    store = group[1].store
    store.checkpoint()
    sum(store.clean(group[1].now_ms() + 10**10, at_any_hour=True))
    assert store.min_physical_offset > 0
    group.settle(11)
    entries = group.switching(1).epochs.table.entries
    assert 0 < len(entries) < 4
    assert entries[-1].epoch == 4
    assert all(entry.start >= store.min_physical_offset for entry in entries[1:])


def test_a_master_that_is_elected_again_goes_on() -> None:
    group = led()
    group.send(1)
    links = list(group[1].broker[Replicas].master.service.slaves)
    group.epoch += 1
    members = SyncStateSet(group.members.members, group.members.epoch + 1)
    group.switching(1).renew(GroupState(1, group[1].address, group.epoch, members))
    group.members = members
    group.send(1)
    assert group.codes == [ResponseCode.SUCCESS] * 10
    assert group[1].broker[Replicas].master.service.slaves == links
    group.check_equal()
    assert group.switching(3).progress.epoch == group.epoch == 2


def test_under_new_controllers_logs_lead_once_their_epochs_are_forgotten() -> None:
    """What docs/controller.md has an administrator do."""
    group = led(2)
    for master in (2, 1):
        group.elect(master)
        group.send(master)
    group.epoch, group.members = 0, SyncStateSet(frozenset(), 0)
    with pytest.raises(ValueError, match=r"docs/controller\.md"):
        group.elect(1)
    for number in (1, 2):
        group[number].stop()
        for name in ("epochFileCheckpoint", "epochFileCheckpoint.bak"):
            group.files[number - 1].remove(f"{ROOT}/{name}")
        group.brokers[number - 1] = group.make(number)
    group.epoch = 0
    group.elect(1)
    group.send(1)
    assert group.codes == [ResponseCode.SUCCESS] * 15
    assert log_of(group[1]) == log_of(group[2])
    assert group.acknowledged == set(group.bodies(1)) == set(group.bodies(2))


def test_a_stale_election_is_refused() -> None:
    group = led(1)
    with pytest.raises(ValueError, match="is over"):
        group.epoch = -1
        group.elect(1)
    assert group[1].broker.role.role is Role.ISOLATED


def test_after_a_start_only_what_was_confirmed_is_seen() -> None:
    group = led(2, slave_timeout=200)
    group.send(1)
    group.refusal = ConnectionError("no controller")
    group[2].stop()
    group.send(1, 7)
    group.settle(2)
    group[1].stop()
    group.brokers[0] = group.make(1)
    broker = group[1]
    assert broker.store.dispatched_offset < broker.store.end_offset
    group.refusal = None
    group.elect(1, tell=(1,))
    assert len(group.bodies(1)) == 12


def test_a_store_of_classic_ha_gets_epochs_for_what_it_has() -> None:
    group = PlayedGroup(2)
    group[1].put("Topic", b"a", b"b", b"c")
    group[2].store.append_raw(0, log_of(group[1]))
    group[2].store.write_pending()
    group.elect(1)
    group[1].add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
    group.settle(3)
    assert group.members.members == {1, 2}
    assert [tuple(entry) for entry in group.switching(1).epochs.table.entries] == [
        (0, 0),
        (1, group[1].store.end_offset),
    ]
    group.send(1)
    group.settle(2)
    assert log_of(group[1]) == log_of(group[2])


def test_a_damaged_epoch_file_ends_the_start() -> None:
    group = led(1)
    group[1].stop()
    files = group.files[0]
    for suffix in ("", ".bak"):
        path = f"{ROOT}/epochFileCheckpoint{suffix}"
        file = files.open(path, create=True)
        file.truncate(0)
        file.pwrite(b"nonsense", 0)
    with pytest.raises(Exception, match="epoch file is damaged"):
        group.make(1)


def test_a_master_tells_where_its_log_is() -> None:
    group = led(2)
    command = RemotingCommand.request(
        RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoRequestHeader()
    )
    answers: list[Any] = []
    for number in (1, 2):
        asked = group.client.request(group[number].address, command, 5)
        asked.addCallback(lambda response: answers.append(response.ext_fields))
        group.settle(0.2)
    assert answers[0]["masterHaAddress"] == group[1].broker.addresses.ha
    assert not (answers[1] or {}).get("masterHaAddress")
