"""Starts a group that elects its own master on this machine, and says what to type.

    make try-controller

A name server, three controllers and three brokers from `etc/controller/`, with their stores below
`data/controller/`; Ctrl-C ends them all. Who is killed meanwhile is not started again: type the
line that is shown for that.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
SAMPLES = PROJECT / "etc" / "controller"
DATA = PROJECT / "data" / "controller"
MEMBERS = ("n0", "n1", "n2")
CONTROLLERS = "127.0.0.1:9877;127.0.0.1:9878;127.0.0.1:9879"


def commands() -> dict[str, list[str]]:
    """Each process by its name."""
    twistd = [str(Path(sys.executable).with_name("twistd")), "-n", "--pidfile="]
    started = {
        "name server": [
            *twistd,
            "rmq-namesrv",
            *("-o", "bindAddress=127.0.0.1"),
            *("-o", f"kvConfigPath={DATA}/kvConfig.json"),
        ]
    }
    for member in MEMBERS:
        file = SAMPLES / f"controller-{member}.conf"
        started[f"controller {member}"] = [*twistd, "rmq-controller", "-c", str(file)]
    for member in MEMBERS:
        file = SAMPLES / f"broker-{member}.conf"
        started[f"broker {member}"] = [*twistd, "rmq-broker", "-c", str(file)]
    return started


def main() -> int:
    DATA.mkdir(parents=True, exist_ok=True)
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, command in commands().items():
            with _log(name).open("ab") as log:
                running[name] = subprocess.Popen(
                    command,
                    cwd=PROJECT,
                    stdout=log,
                    stderr=log,
                    # Ctrl-C is ours; a second signal would hit them in the middle of their end.
                    start_new_session=True,
                )
        _explain(running)
        _watch(running)
    except KeyboardInterrupt:
        pass
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        for process in running.values():
            if process.poll() is None:
                process.terminate()
        for process in running.values():
            process.wait()
    return 0


def _explain(running: dict[str, subprocess.Popen[bytes]]) -> None:
    admin = os.path.relpath(Path(sys.executable).with_name("rmqadmin"))
    brokers = {name: process for name, process in running.items() if name.startswith("broker")}
    lines = [
        f"logs and stores are in {os.path.relpath(DATA)}; Ctrl-C ends all. In another terminal:",
        "",
        "who is master, and who has all of its messages (again every 2 s):",
        f"    {admin} getSyncStateSet -a '{CONTROLLERS}' -b broker-a -i 2",
        "send a message, and see it:",
        f"    {admin} sendMessage -n 127.0.0.1:9876 -t Orders -p hello",
        f"    {admin} consumeMessage -n 127.0.0.1:9876 -t Orders",
        "kill the master that getSyncStateSet shows, look again, send again:",
        *(f"    kill -9 {one.pid}    # {name}, {_address(name)}" for name, one in brokers.items()),
        "bring it back; it cuts off what the new master does not have and follows:",
        *(f"    {_line(name)}" for name in brokers),
    ]
    print("\n".join(lines), flush=True)


def _watch(running: dict[str, subprocess.Popen[bytes]]) -> None:
    """Says who has ended, until all have."""
    names = {process.pid: name for name, process in running.items()}
    while names:
        pid, status = os.wait()
        name, code = names.pop(pid), os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL:
            print(f"{name} was killed", flush=True)
        else:
            print(
                f"{name} has ended with {code}: {os.path.relpath(_log(name))} says why", flush=True
            )


def _log(name: str) -> Path:
    return DATA / f"{name.replace(' ', '-')}.log"


def _address(name: str) -> str:
    text = (SAMPLES / f"{name.replace(' ', '-')}.conf").read_text()
    port = next(line for line in text.splitlines() if line.startswith("listenPort="))
    return f"127.0.0.1:{port.partition('=')[2]}"


def _line(name: str) -> str:
    command = commands()[name]
    return shlex.join([os.path.relpath(part) if part.startswith("/") else part for part in command])


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(main())
