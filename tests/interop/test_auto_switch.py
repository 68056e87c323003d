"""Auto-switch HA with stock 5.3.3 on the other end: a stock controller leads brokers of both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from re import sub

import pytest

from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.cluster import OURS, make_name_server
from tests.support.controlled import ControlledGroup
from tests.support.controllers import STOCK_VERSION, ControllerGroup, running_controllers
from tests.support.load import send_request
from tests.support.processes import NameServerProcess
from tests.support.remoting import ask
from tests.support.replicas import log_digest, log_end, send_volume, wait_equal, wait_topic
from tests.support.tails import SETTINGS, hand_over_with_tail
from tests.support.wait import wait_until


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServerProcess]:
    server = make_name_server(OURS, tmp_path_factory.mktemp("names"))
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def controllers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerGroup]:
    with running_controllers(tmp_path_factory.mktemp("controllers"), ["stock"]) as group:
        yield group


def epochs(group: ControlledGroup) -> list[str]:
    """The lines of each broker's epoch file, without counts and checksums."""
    return [
        "\n".join((broker.store / "epochFileCheckpoint").read_text().splitlines()[2:])
        for broker in group.brokers
    ]


def told_epochs(group: ControlledGroup) -> list[tuple[object, ...]]:
    """What each broker answers to 1007, byte for byte but for its own id."""
    told: list[tuple[object, ...]] = []
    for broker in group.brokers:
        answer = ask(broker.address, RemotingCommand.request(RequestCode.GET_BROKER_EPOCH_CACHE))
        body = sub(rb'"brokerId":[0-9]+', b"", answer.body)
        assert body != answer.body, answer
        told.append((answer.code, answer.remark, str(answer.ext_fields or {}), body))
    return told


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param([STOCK_VERSION, OURS], marks=pytest.mark.more),
        [OURS, STOCK_VERSION],
        [OURS, OURS],
    ],
)
def test_hand_overs_between_stock_and_ours(
    kinds: list[str],
    name_server: NameServerProcess,
    controllers: ControllerGroup,
    tmp_path: Path,
    names,
) -> None:
    # A send waits for the slave as long as a busy machine may need.
    settings = {"mappedFileSizeCommitLog": str(1 << 20), "slaveTimeout": "50000"}
    with ControlledGroup(
        names.new("b"), tmp_path, name_server, controllers, kinds, settings
    ) as group:
        group.start()
        topic = names.topic
        for master in (1, 2, 1, 2):
            if group.master.broker_id != master:
                group.hand_over(master)
            group.wait_accepts(master, topic)
            send_volume(group[master].address, topic, 3 << 19)
            group.check_equal(master)
        assert log_end(group[1]) > 3 << 20
        wait_until(lambda: len(set(epochs(group))) == 1, "the epoch files to be one")
        # One for each master with messages; a busy machine may have had more masters than four.
        assert 4 <= len(epochs(group)[0].splitlines()) <= group.master.epoch
        wait_until(lambda: len(set(told_epochs(group))) == 1, "1007 to be answered in one way")
        wait_topic(group[1], topic)


@pytest.mark.parametrize("kinds", [[STOCK_VERSION, OURS], [OURS, STOCK_VERSION]])
def test_a_group_without_messages_changes_its_master(
    kinds: list[str],
    name_server: NameServerProcess,
    controllers: ControllerGroup,
    tmp_path: Path,
    names,
) -> None:
    with ControlledGroup(names.new("b"), tmp_path, name_server, controllers, kinds) as group:
        group.start()
        for master in (2, 1, 2, 1):
            group.hand_over(master)
        topic = names.topic
        group.wait_accepts(1, topic)
        assert group.check_equal(1) > 0


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "elected"])
def test_a_former_master_cuts_off_a_tail_that_nobody_has(
    killed: bool,
    name_server: NameServerProcess,
    controllers: ControllerGroup,
    tmp_path: Path,
    names,
) -> None:
    kinds = [STOCK_VERSION, OURS]
    with ControlledGroup(
        names.new("b"), tmp_path, name_server, controllers, kinds, SETTINGS
    ) as group:
        group.start()
        topic = names.topic
        group.wait_accepts(1, topic)
        group.check_equal(1)
        for _ in kinds:
            assert hand_over_with_tail(group, topic, killed=killed) > 1 << 20


def code_of_send(group: ControlledGroup, topic: str, *, waits: bool = True) -> int:
    """What the master answers to a message."""
    request = send_request(topic, 0, b"x", queues=4)
    request.ext_fields["i"] = "" if waits else "WAIT\x01false\x02"
    return ask(group[1].address, request).code


@pytest.mark.parametrize("kinds", [[STOCK_VERSION, OURS], [OURS, STOCK_VERSION]])
@pytest.mark.parametrize(
    ("settings", "alone"),
    [
        ({"allAckInSyncStateSet": "true", "inSyncReplicas": "3"}, ResponseCode.SUCCESS),
        ({"allAckInSyncStateSet": "true", "minInSyncReplicas": "2"}, ResponseCode.SYSTEM_ERROR),
        (
            {"allAckInSyncStateSet": "false", "inSyncReplicas": "2"},
            ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ),
        (
            {
                "allAckInSyncStateSet": "false",
                "inSyncReplicas": "2",
                "minInSyncReplicas": "2",
            },
            ResponseCode.SYSTEM_ERROR,
        ),
    ],
    ids=["every", "every of two", "two copies", "two copies of two"],
)
def test_the_code_where_copies_do_not_come(
    kinds: list[str],
    settings: dict[str, str],
    alone: int,
    name_server: NameServerProcess,
    controllers: ControllerGroup,
    tmp_path: Path,
    names,
) -> None:
    """All cases in memory: `tests/unit/broker/replicas/test_enough_copies.py`."""
    settings = {"slaveTimeout": "1000", "haMaxTimeSlaveNotCatchup": "60000", **settings}
    with ControlledGroup(
        names.new("b"), tmp_path, name_server, controllers, kinds, settings
    ) as group:
        group.start()
        topic = names.topic
        wait_until(lambda: code_of_send(group, topic) == ResponseCode.SUCCESS, "both to have it")
        group[2].pause()
        try:
            assert code_of_send(group, topic) == ResponseCode.FLUSH_SLAVE_TIMEOUT
            assert code_of_send(group, topic, waits=False) == ResponseCode.SUCCESS
        finally:
            group[2].kill()
        group.wait_in_sync(1)
        wait_until(lambda: code_of_send(group, topic) == alone, "the master to know it")
        assert code_of_send(group, topic, waits=False) == ResponseCode.SUCCESS


@pytest.mark.parametrize("kinds", [[STOCK_VERSION, OURS], [OURS, STOCK_VERSION]])
def test_a_learner_starts_with_the_last_file_and_is_never_in_sync(
    kinds: list[str],
    name_server: NameServerProcess,
    controllers: ControllerGroup,
    tmp_path: Path,
    names,
) -> None:
    file_size = 1 << 20
    with ControlledGroup(
        names.new("b"),
        tmp_path,
        name_server,
        controllers,
        kinds,
        {"mappedFileSizeCommitLog": str(file_size)},
    ) as group:
        master, learner = group[1], group[2]
        learner.settings |= {"asyncLearner": "true", "syncFromLastFile": "true"}
        master.start()
        group.wait_in_sync(1)
        topic = names.topic
        group.wait_accepts(1, topic)
        send_volume(master.address, topic, 5 << 19)
        last = (log_end(master) - 1) // file_size * file_size
        learner.start()
        end = wait_equal(master, learner)
        # Who was taken for a member would be one by the next look.
        send_volume(master.address, topic, 1 << 19)
        end = wait_equal(master, learner)
        assert min(int(path.name) for path in (learner.store / "commitlog").iterdir()) == last > 0
        assert log_digest(master, last, end) == log_digest(learner, last, end)
        assert group.master.sync_state_set == {1}
        master.kill()
        wait_until(lambda: group.master.broker_id is None, "nobody to be elected")
        refused = ask(learner.address, send_request(topic, 0, b"no", queues=4))
        assert refused.code not in (ResponseCode.SUCCESS, ResponseCode.FLUSH_SLAVE_TIMEOUT)
        master.start()
        group.wait_master(1)
        group.wait_accepts(1, topic)
        end = wait_equal(master, learner)
        assert log_digest(master, last, end) == log_digest(learner, last, end)
