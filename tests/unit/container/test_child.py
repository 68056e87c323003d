"""The process of a broker whose container is gone: it ends, also where it hangs."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil
import pytest

from tests.support.wait import wait_until

#: Obeys a container, whose orders come with standard input, and then does what `{hang}` says.
_CHILD = """
import os, time
os.dup2(1, 3)
from twisted.internet import reactor
from rocketmq_tw.container import child
supervision = child.Supervision(reactor)
supervision.begin()
supervision.lineReceived(b'{{"stop_timeout_millis": {limit}}}')
{hang}
"""


#: Starts a child as a container does, and does nothing more.
_CONTAINER = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {child!r}], stdin=subprocess.PIPE)
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("hang", "limit", "status"),
    [
        ("supervision.serves('here')\nreactor.run()", 600_000, 0),
        ("supervision.serves('here')\ntime.sleep(600)", 1_000, -signal.SIGALRM),
        (
            "from threading import Thread\n"
            "Thread(target=time.sleep, args=(600,)).start()\n"
            "supervision.serves('here')\nreactor.run()",
            1_000,
            -signal.SIGALRM,
        ),
    ],
    ids=["a reactor that runs", "the main thread hangs", "another thread hangs"],
)
def test_it_ends_with_its_container(hang: str, limit: int, status: int) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD.format(hang=hang, limit=limit)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None and child.stdin is not None
        assert b"here" in child.stdout.readline()
        child.stdin.close()
        assert child.wait(timeout=120) == status
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux tells of a parent's end")
def test_one_that_is_paused_ends_with_a_killed_container() -> None:
    program = _CHILD.format(hang="supervision.serves('here')\nreactor.run()", limit=600_000)
    container = subprocess.Popen(
        [sys.executable, "-c", _CONTAINER.format(child=program)], stdout=subprocess.PIPE
    )
    child = None
    try:
        assert container.stdout is not None
        child = psutil.Process(int(container.stdout.readline()))
        assert b"here" in container.stdout.readline()
        child.suspend()
        wait_until(lambda: child.status() == psutil.STATUS_STOPPED, "it is paused")
        container.kill()
        child.wait(timeout=60)
    finally:
        container.kill()
        container.wait()
        container.stdout.close()
        if child is not None and child.is_running():
            child.kill()
