import pytest

from rocketmq_tw.broker.clients import locks as locks_module
from rocketmq_tw.broker.clients.locks import LOCK_EXPIRES_MS, RebalanceLock


class Time:
    now = 1_000

    def __call__(self) -> int:
        return self.now


def test_a_queue_is_locked_for_one_client() -> None:
    locks = RebalanceLock(Time())
    assert locks.lock("G", ["q0", "q1"], "c1") == ["q0", "q1"]
    assert locks.lock("G", ["q1", "q2"], "c2") == ["q2"]
    assert locks.lock("other", ["q1"], "c2") == ["q1"]
    assert locks.owner("G", "q1") == "c1"
    assert locks.holds_any("G")
    assert not locks.holds_any("nobody")


def test_only_the_owner_unlocks() -> None:
    locks = RebalanceLock(Time())
    locks.lock("G", ["q0"], "c1")
    locks.unlock("G", ["q0", "q9"], "c2")
    locks.unlock("nobody", ["q0"], "c2")
    assert locks.owner("G", "q0") == "c1"
    locks.unlock("G", ["q0"], "c1")
    assert locks.lock("G", ["q0"], "c2") == ["q0"]


def test_a_lock_that_is_not_renewed_falls_to_another() -> None:
    time = Time()
    locks = RebalanceLock(time)
    locks.lock("G", ["q0", "q1"], "c1")
    time.now += LOCK_EXPIRES_MS
    assert locks.lock("G", ["q0"], "c2") == []
    assert locks.lock("G", ["q1"], "c1") == ["q1"]
    time.now += 1
    assert locks.lock("G", ["q0", "q1"], "c2") == ["q0"]


def test_expired_locks_are_forgotten() -> None:
    time = Time()
    locks = RebalanceLock(time)
    locks.lock("G", ["q0"], "c1")
    time.now += LOCK_EXPIRES_MS + 1
    assert not locks.holds_any("G")
    for _ in locks.forget_expired():
        pass
    assert not locks._groups


def test_locks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks_module, "MAX_LOCKS", 3)
    time = Time()
    locks = RebalanceLock(time)
    assert locks.lock("G", ["q0", "q1"], "c1") == ["q0", "q1"]
    assert locks.lock("H", ["q0", "q1"], "c1") == ["q0"]
    assert locks.lock("G", ["q0", "q1"], "c1") == ["q0", "q1"], "renewed"
    locks.unlock("G", ["q0"], "c1")
    assert locks.lock("H", ["q1", "q2"], "c1") == ["q1"]
    time.now += LOCK_EXPIRES_MS + 1
    for _ in locks.forget_expired():
        pass
    assert locks.lock("K", ["q0", "q1", "q2", "q3"], "c1") == ["q0", "q1", "q2"]
