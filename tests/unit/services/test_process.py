import subprocess
import sys
import time

from twisted.internet.selectreactor import SelectReactor
from twisted.internet.task import Clock

from rocketmq_tw.services.process import use_monotonic_time


def test_timers_of_a_reactor_by_the_wall_clock_survive_when_that_is_set() -> None:
    reactor = SelectReactor()
    assert reactor.seconds is time.time, "Twisted's own choice; with another there is nothing to do"
    use_monotonic_time(reactor)
    before = time.monotonic()
    call = reactor.callLater(10, lambda: None)
    assert before + 10 <= call.getTime() <= time.monotonic() + 10


def test_calls_that_wait_already_keep_their_clock() -> None:
    reactor = SelectReactor()
    reactor.callLater(10, lambda: None)
    use_monotonic_time(reactor)
    assert reactor.seconds is time.time


def test_a_clock_of_its_own_is_left_alone() -> None:
    clock = Clock()
    own = clock.seconds
    use_monotonic_time(clock)
    assert clock.seconds == own


MEASURE = """
import threading
from rocketmq_tw.services.allocator import return_freed_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

assert return_freed_memory()
before = resident()

def use(rounds):
    for _ in range(rounds):
        data = bytearray(b"x") * (31 << 20)

threads = [threading.Thread(target=use, args=(3,)) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(resident() - before)
"""


def test_large_blocks_that_threads_free_go_back_to_the_kernel() -> None:
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 40 << 20
