"""A broker gets its lasting id: the files, and a kill at every step."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from twisted.internet.defer import Deferred, execute, fail, succeed

from rocketmq_tw.broker.election.enrolment import (
    Enrolled,
    Enrolment,
    IdForgottenError,
    IdTakenError,
)
from rocketmq_tw.broker.election.identity import IdClaim, Identity, IdentityError, IdentityFiles
from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.files.faulty import Fault, FaultyFiles, PowerLoss
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.group_state import GroupState, SyncStateSet
from tests.support.broker import fired

PATH = "/store/brokerIdentity"
CLAIM_PATH = PATH + "-temp"
NO_MASTER = GroupState(None, "", 0, SyncStateSet(frozenset(), 0))
ADDRESS = "10.0.0.1:10911"


class Controllers:
    """The ids of one group as controllers give them. `lose` says of which request only the answer
    gets lost, `refuse` which one nobody hears, `leave_open` which one is carried out and answered
    with a code that does not tell."""

    def __init__(self) -> None:
        self.codes: dict[int, str] = {}
        self.addresses: dict[int, str] = {}
        self.lose: str | None = None
        self.refuse: str | None = None
        self.leave_open: str | None = None

    def next_broker_id(self, cluster: str, name: str) -> Deferred[int]:
        return self._answer("next", lambda: max(self.codes, default=0) + 1)

    def apply_broker_id(
        self, cluster: str, name: str, broker_id: int, check_code: str
    ) -> Deferred[None]:
        def apply() -> None:
            if self.codes.setdefault(broker_id, check_code) != check_code:
                raise BrokerError(
                    "10.1.0.1:9878", ResponseCode.CONTROLLER_BROKER_ID_INVALID, "it is taken"
                )

        return self._answer("apply", apply)

    def register_broker(
        self, cluster: str, name: str, broker_id: int, address: str
    ) -> Deferred[GroupState]:
        def register() -> GroupState:
            if broker_id not in self.codes:
                raise BrokerError(
                    "10.1.0.1:9878", ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "unknown"
                )
            self.addresses[broker_id] = address
            return NO_MASTER

        return self._answer("register", register)

    def _answer(self, name: str, decide: Any) -> Deferred[Any]:
        if self.refuse == name:
            return fail(ConnectionError("nobody answers"))
        answer = execute(decide)
        if self.lose == name:
            answer.addErrback(lambda _: None)
            return fail(TimeoutError("the answer got lost"))
        if self.leave_open == name:
            answer.addErrback(lambda _: None)
            return fail(
                BrokerError("10.1.0.1:9878", ResponseCode.SYSTEM_ERROR, "no decision within 5 s")
            )
        return answer


def identity_files(files: Any, name: str = "broker-a") -> IdentityFiles:
    return IdentityFiles(files, PATH, "cluster", name)


def enrol(files: Any, controllers: Controllers, address: str = ADDRESS, now: int = 7) -> Enrolled:
    def in_thread(work: Any) -> Deferred[Any]:
        return succeed(None).addCallback(lambda _: work())

    enrolment = Enrolment(identity_files(files), controllers, in_thread, lambda: now)  # type: ignore[arg-type]
    result: Enrolled = fired(enrolment.run(address))
    return result


def test_the_first_broker_of_a_group_is_number_1() -> None:
    files, controllers = MemoryFiles(), Controllers()
    enrolled = enrol(files, controllers)
    assert enrolled == (Identity("cluster", "broker-a", 1), NO_MASTER)
    assert files.read(PATH) == b"cluster#broker-a#1"
    assert not files.exists(CLAIM_PATH)
    assert controllers.codes == {1: f"{ADDRESS};7"}
    assert controllers.addresses == {1: ADDRESS}


def test_a_broker_keeps_its_id_at_another_address() -> None:
    files, controllers = MemoryFiles(), Controllers()
    enrol(files, controllers)
    enrol(MemoryFiles(), controllers, "10.0.0.2:10911")
    enrol(files, controllers, "10.0.0.9:10911")
    assert controllers.addresses == {1: "10.0.0.9:10911", 2: "10.0.0.2:10911"}
    assert len(controllers.codes) == 2


@pytest.mark.parametrize("request_name", ["next", "apply", "register"])
@pytest.mark.parametrize("fault", ["lose", "refuse", "leave_open"])
def test_what_no_answer_came_to_is_taken_up_again(request_name: str, fault: str) -> None:
    files, controllers = MemoryFiles(), Controllers()
    setattr(controllers, fault, request_name)
    with pytest.raises((ConnectionError, TimeoutError, BrokerError)):
        enrol(files, controllers, now=1)
    setattr(controllers, fault, None)
    assert enrol(files, controllers, now=2).identity.broker_id == 1
    assert len(controllers.codes) == 1


def test_an_id_that_the_controllers_forgot_says_what_to_do() -> None:
    files, controllers = MemoryFiles(), Controllers()
    enrol(files, controllers)
    controllers.codes.clear()
    with pytest.raises(IdForgottenError, match=f"do not know id 1 .*unknown.* remove {PATH}"):
        enrol(files, controllers)
    # It is the administrator's to decide.
    assert files.read(PATH) == b"cluster#broker-a#1"
    files.remove(PATH)
    assert enrol(files, controllers).identity.broker_id == 1


def test_who_comes_second_takes_the_next_id() -> None:
    files, controllers = MemoryFiles(), Controllers()
    controllers.refuse = "apply"
    with pytest.raises(ConnectionError):
        enrol(files, controllers)
    controllers.refuse = None
    assert enrol(MemoryFiles(), controllers, "10.0.0.2:10911").identity.broker_id == 1
    with pytest.raises(IdTakenError, match="id 1"):
        enrol(files, controllers)
    assert enrol(files, controllers).identity.broker_id == 2


def test_a_kill_at_every_step_gives_one_id_only() -> None:
    for at in range(1, 200):
        memory, controllers = MemoryFiles(), Controllers()
        controllers.codes[1] = "another broker"
        files = FaultyFiles(memory)
        files.lose_power_at = at
        try:
            enrol(files, controllers, now=1)
        except PowerLoss:
            memory = memory.crash()
        else:
            break
        kept = identity_files(memory).identity()
        enrolled = enrol(memory, controllers, now=2)
        assert enrolled.identity.broker_id == 2, at
        assert kept in (None, enrolled.identity), at
        assert set(controllers.codes) == {1, 2}, at
        assert memory.read(PATH) == b"cluster#broker-a#2", at
    else:
        pytest.fail("it never came to its end")
    assert at > 8


def test_a_kill_at_every_step_behind_a_refusal_gives_one_id_only() -> None:
    """What was applied for is another broker's by the time it comes to the controller."""
    for at in range(1, 200):
        memory, controllers = MemoryFiles(), Controllers()
        identity_files(memory).write_claim(1, "own code")
        controllers.codes[1] = "another broker's code"
        files = FaultyFiles(memory)
        files.lose_power_at = at
        try:
            with pytest.raises(IdTakenError):
                enrol(files, controllers, now=1)
            enrol(files, controllers, now=1)
        except PowerLoss:
            memory = memory.crash()
        else:
            break
        for now in (2, 3):
            try:
                enrolled = enrol(memory, controllers, now=now)
                break
            except IdTakenError:
                # The claim was still there.
                assert now == 2, at
        assert enrolled.identity.broker_id == 2, at
        assert set(controllers.codes) == {1, 2}, at
        assert memory.read(PATH) == b"cluster#broker-a#2", at
        assert not memory.exists(CLAIM_PATH), at
    else:
        pytest.fail("it never came to its end")
    assert at > 8


def test_no_power_loss_takes_an_id_that_was_used() -> None:
    """A file that was renamed is read back, though the sync of its directory failed."""
    for failing in range(4):
        memory, controllers = MemoryFiles(), Controllers()
        files = FaultyFiles(memory)
        files.faults.append(Fault("sync_dir", skip=failing))
        for _ in range(3):
            with contextlib.suppress(OSError):
                enrol(files, controllers)
        used = dict(controllers.addresses)
        memory = memory.crash()
        assert set(used) <= {enrol(memory, controllers).identity.broker_id}, failing
    assert used


def test_what_a_crash_left_beside_the_identity_goes() -> None:
    files = MemoryFiles()
    identity_files(files).write_claim(1, "code")
    claim = identity_files(files).claim()
    assert claim == IdClaim(Identity("cluster", "broker-a", 1), "code")
    copy = files.read(CLAIM_PATH)
    identity_files(files).keep(claim)
    controllers = Controllers()
    controllers.codes[1] = "code"
    files.open(CLAIM_PATH, create=True).pwrite(copy, 0)
    assert enrol(files, controllers).identity.broker_id == 1
    assert not files.exists(CLAIM_PATH)


@pytest.mark.parametrize("data", [b"cluster#broker-a", b"a#b#c#d", b"cluster#broker-a#x", b"\xff"])
def test_a_damaged_file_says_what_to_do(data: bytes) -> None:
    files = MemoryFiles()
    files.make_dirs("/store")
    files.open(PATH, create=True).pwrite(data, 0)
    with pytest.raises(IdentityError, match="damaged: bring back a copy of it"):
        identity_files(files).identity()


def test_another_brokers_store_is_refused() -> None:
    files = MemoryFiles()
    enrol(files, Controllers())
    with pytest.raises(IdentityError, match=r"that of broker broker-a .* says broker-b"):
        identity_files(files, "broker-b").identity()


def test_a_file_that_stock_left_empty_counts_as_none() -> None:
    files = MemoryFiles()
    files.make_dirs("/store")
    files.open(PATH, create=True)
    assert identity_files(files).identity() is None


def test_a_name_that_the_files_cannot_hold_is_refused() -> None:
    with pytest.raises(IdentityError, match="brokerName=a#b"):
        identity_files(MemoryFiles(), "a#b")
