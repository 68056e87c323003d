"""The process of a broker whose container is gone: it ends, also where it hangs."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

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
