import subprocess
import sys
from collections.abc import Callable

from rocketmq_tw.services.process import Trimming

MEASURE = """
import gc
import threading
from unittest.mock import Mock
from rocketmq_tw.services.process import return_freed_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

assert return_freed_memory(Mock())
before = resident()

def use(rounds):
    for _ in range(rounds):
        data = bytearray(b"x") * (31 << 20)

threads = [threading.Thread(target=use, args=(3,)) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
# For PyPy, which frees nothing before.
gc.collect()
print(resident() - before)
"""


FAULTS = """
import os
import resource
from unittest.mock import Mock
from rocketmq_tw.services.process import return_freed_memory

assert return_freed_memory(Mock())
size = (4 << 20) + 1000
source = os.memfd_create("source")
os.truncate(source, size)

def use():
    frame = os.pread(source, size, 0)
    return frame[100:]

# Until the heap is as large as it gets, with the garbage that PyPy leaves.
for _ in range(20):
    use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_the_largest_messages_need_no_new_pages() -> None:
    """Else each copy of one costs some twenty times as much as it needs."""
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 10_000, "20 rounds, each with two blocks of 1,025 pages"


SPARSE = """
import gc
import os
from twisted.internet.task import Clock
from rocketmq_tw.services.process import TRIM_SECONDS, resident_bytes, return_freed_memory

class Reactor(Clock):
    def callWhenRunning(self, start):
        start()

    def callInThread(self, call):
        call()

reactor = Reactor()
assert return_freed_memory(reactor)
before = resident_bytes()
# Between the large ones there are small ones, which stay.
kept, large = [], []
for _ in range(40):
    large.append(b"x" * (3 << 20))
    kept.append(b"x" * 2000)
grown = resident_bytes() - before
del large
# For PyPy, which frees nothing before.
gc.collect()
reactor.advance(TRIM_SECONDS)
print(grown, resident_bytes() - before)
"""


def test_free_memory_between_blocks_in_use_goes_back_to_the_kernel() -> None:
    done = subprocess.run([sys.executable, "-c", SPARSE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    grown, left = map(int, done.stdout.split())
    assert grown > 100 << 20 and left < 20 << 20


def test_memory_is_given_back_where_the_process_has_grown() -> None:
    trimmed: list[int] = []
    jobs: list[Callable[[], None]] = []
    size = 100 << 20

    def trim() -> None:
        nonlocal size
        trimmed.append(size >> 20)
        size -= 10 << 20

    trimming = Trimming(trim, jobs.append, lambda: size)
    for mebibytes in (101, 90, 121):
        size = mebibytes << 20
        trimming.trim_if_due()
    assert not jobs
    size = 122 << 20
    trimming.trim_if_due()
    trimming.trim_if_due()
    (job,) = jobs
    job()
    assert trimmed == [122]
    for mebibytes in (143, 144):
        size = mebibytes << 20
        trimming.trim_if_due()
    assert len(jobs) == 2


def test_large_blocks_that_threads_free_go_back_to_the_kernel() -> None:
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 40 << 20
