"""rmqadmin as a process of a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from tests.support.jars import PROJECT
from tests.support.wait import LIMIT, PeerFailed


def rmqadmin(name_server: str, command: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    start = "from rocketmq_tw.admin.main import main; main()"
    path = os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-c", start, *command.split()],
        env=os.environ | {"PYTHONPATH": path, "NAMESRV_ADDR": name_server},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def answer(name_server: str, command: str) -> Any:
    """The JSON that the command prints; raises `PeerFailed` where it ended with an error."""
    done = rmqadmin(name_server, f"{command} --output json")
    if done.returncode or done.stderr:
        raise PeerFailed(f"{command} ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)
