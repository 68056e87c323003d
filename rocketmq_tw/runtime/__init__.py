"""Work in time: periodic and delayed calls, long work in slices, fair queues, listeners, waiters.

Everything here takes a clock or a reactor as an argument and knows nothing of RocketMQ.

Public: `PeriodicCall` (`periodic.py`), `Alarm` (`alarm.py`), `Deadlines` (`deadlines.py`), `Slices`
(`slices.py`), `FairQueue`, `SerialQueue`, `SerialRoundRobin`, `FairSerialQueue`, `Serial`,
`SomeAtOnce`, `FewAtOnce` and `Coalesced` (`fairness.py`), `LazyHeap` (`lazy_heap.py`),
`SharedResults` and `JoinedResults` (`shared_results.py`), `Listeners` (`listeners.py`), `Waiters`
(`waiters.py`), `Scope` (`scope.py`), `IReactorTurns`, `turns_of` and `known_turns` (`turns.py`),
`InThread` and `in_pool` (`threads.py`), `Standstills` (`standstills.py`), `WakingTime`
(`waking_time.py`), `wall_clock_ms` (`clock.py`), `use_monotonic_time` and `go_on_steadily`
(`steady_time.py`), `LogThrottle` and `LogThrottleByKey` (`log_throttle.py`), `FailuresInARow`
(`failures.py`), `named` (`named_log.py`), `GrowingPause` and the pauses of `retries.py`.
"""
