from rocketmq_tw.broker.stats.statistics import SampledCount, Statistics
from tests.support.stores import ManualClock

DAY_MS = 86_400_000


def test_a_rate_is_the_growth_over_its_window() -> None:
    rate = SampledCount()
    assert str(rate) == "0.00 0.00 0.00"
    rate.total = 100
    rate.sample()
    assert rate.per_second(10) == 10
    assert rate.per_second(600) == 10
    for _ in range(5):
        rate.sample()
    assert rate.per_second(10) == 0
    assert rate.per_second(60) == 100 / 60


def test_old_samples_are_forgotten() -> None:
    rate = SampledCount()
    rate.total = 100
    for _ in range(100):
        rate.sample()
    assert str(rate) == "0.00 0.00 0.00"


def test_days_turn_at_midnight() -> None:
    now = ManualClock()
    statistics = Statistics(now)
    statistics.count_sent(1, 100)
    statistics.count_pulled(5, 0.0)
    statistics.sample()
    assert (statistics.sent_by_day.today, statistics.pulled_by_day.today) == (0, 0)
    now.now_ms += DAY_MS
    statistics.sample()
    statistics.count_sent(1, 100)
    assert (statistics.sent_by_day.yesterday, statistics.sent_by_day.today) == (0, 1)
    assert statistics.pulled_by_day.today == 5
    now.now_ms += DAY_MS
    statistics.sample()
    assert (statistics.sent_by_day.yesterday, statistics.sent_by_day.today) == (1, 2)


def test_the_uptime_is_worded_as_stock_does() -> None:
    now = ManualClock()
    statistics = Statistics(now)
    now.now_ms += DAY_MS + 3_661_000
    assert statistics.uptime() == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"


def test_sizes_and_the_slowest_read() -> None:
    statistics = Statistics(ManualClock())
    assert statistics.average_size() == 0
    statistics.count_sent(2, 300)
    statistics.count_sent(1, 60)
    assert (statistics.sent_bytes, statistics.average_size()) == (360, 120)
    assert statistics.most_dispatched == 300
    for seconds in (0.0, 0.02, 0.01):
        statistics.count_pulled(0, seconds)
    assert statistics.longest_read == 0.02
