"""How long files of the log are kept where clocks differ, or were set."""

from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store.message_store import MessageStore
from tests.support.stores import ManualClock, make_message, open_store

HOUR = 3_600_000
DAY = 24 * HOUR
ANY_HOUR = ";".join(f"{hour:02}" for hour in range(24))


def a_store(clock: ManualClock) -> MessageStore:
    return open_store(MemoryFiles(now_ms=clock), clock, delete_when=ANY_HOUR)


def store_files(store: MessageStore, clock: ManualClock, count: int) -> None:
    """Fills `count` files more, a second a message."""
    wanted = len(store._log.file_starts) + count
    while len(store._log.file_starts) < wanted:
        store.append(make_message(b"x" * 200))
        store.write_pending()
        clock.now_ms += 1000
    settle(store)


def settle(store: MessageStore) -> None:
    store.fsync()
    while store.dispatch():
        pass
    store.checkpoint()


def left(store: MessageStore, clock: ManualClock) -> int:
    """The files that many rounds of removal leave."""
    for _ in range(20):
        for _ in store.clean(clock.now_ms):
            pass
    return len(store._log.file_starts)


def test_a_slave_whose_clock_is_days_ahead_keeps_what_its_master_keeps() -> None:
    masters, slaves = ManualClock(), ManualClock()
    masters.now_ms -= 4 * DAY
    master, slave = a_store(masters), a_store(slaves)
    store_files(master, masters, 5)
    at = 0
    while at < master.written_offset:
        data = master.read_log(at, 1 << 16)
        slave.append_raw(at, data)
        at += len(data)
    slave.write_pending()
    settle(slave)
    assert left(slave, slaves) == left(master, masters) == 5
    slaves.now_ms += 73 * HOUR
    assert left(slave, slaves) == 1


def test_files_written_while_the_clock_was_a_year_ahead_go_when_their_time_is_over() -> None:
    clock = ManualClock()
    store = a_store(clock)
    store_files(store, clock, 2)
    clock.now_ms += 365 * DAY
    store_files(store, clock, 2)
    clock.now_ms -= 365 * DAY
    store_files(store, clock, 2)
    assert left(store, clock) == 6
    clock.now_ms += 73 * HOUR
    assert left(store, clock) == 1


def test_a_log_whose_times_are_all_still_to_come_stays() -> None:
    clock = ManualClock()
    store = a_store(clock)
    clock.now_ms += 365 * DAY
    store_files(store, clock, 3)
    clock.now_ms -= 365 * DAY
    clock.now_ms += 73 * HOUR
    assert left(store, clock) == 3
