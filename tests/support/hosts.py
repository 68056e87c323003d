"""Hosts on one machine whose cables a test pulls: network namespaces on a bridge.

They need a network namespace of the program's own, which `enter_own_network` gets without being
root where the kernel lets users make namespaces.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from tests.support.running import Running

#: Set in a program that `enter_own_network` started.
_INSIDE = "RMQ_TEST_OWN_NETWORK"
_PREFIX = "10.77.0."
_BRIDGE = "bridge0"
_NAMED = "/run/netns"
#: Smallest, usual and largest bytes of a socket's buffer where `small_buffers` is asked for.
_SMALL = "4096 16384 65536"
_NEIGHBOUR, _CARD = ("ip", "neighbour"), ("dev", "eth0")
#: A network card that nobody has.
_NOBODY = "02:00:00:00:00:01"


def can_enter_own_network() -> bool:
    """Whether this machine lets a user make namespaces."""
    tools = ("unshare", "nsenter", "ip")
    if not all(map(shutil.which, tools)):
        return False
    tried = subprocess.run(in_own_network(["true"]), capture_output=True, check=False)
    return tried.returncode == 0


def enter_own_network(module: str, arguments: Sequence[str]) -> None:
    """Starts the program anew as `python -m module arguments` where only it is on the network; all
    that it started ends with it. Returns at once in the program that was started so."""
    if os.environ.get(_INSIDE):
        _command("mount", "-t", "tmpfs", "none", "/run")
        os.mkdir(_NAMED)
        _command("ip", "link", "set", "lo", "up")
        return
    own = in_own_network([sys.executable, "-m", module, *arguments])
    os.execvpe(own[0], own, os.environ | {_INSIDE: "1"})


def in_own_network(
    command: Sequence[str], *, alone: bool = True, as_root: bool = False
) -> list[str]:
    """The command with mounts, processes and, where it is `alone`, a network of its own; all that
    it starts ends with it. It has no user but its own, unless it runs `as_root`, which only root
    may."""
    names = ["mount", "pid", "fork", "kill-child", "mount-proc"]
    if not as_root:
        names += ["user", "map-root-user"]
    if alone:
        names.append("net")
    return ["unshare", *(f"--{name}" for name in names), *command]


class Host:
    """A machine of its own for servers; `address` is its only one."""

    def __init__(self, number: int) -> None:
        self.address = f"{_PREFIX}{number}"
        self._name = f"h{number}"
        self._cable = f"cable{number}"
        _command("ip", "netns", "add", self._name)
        _command(
            *("ip", "link", "add", self._cable, "type", "veth"),
            *("peer", "name", "eth0", "netns", self._name),
        )
        _command("ip", "link", "set", self._cable, "master", _BRIDGE, "up")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")
        self.run("ip", "link", "set", "lo", "up")

    @property
    def prefix(self) -> list[str]:
        """What stands before a command that runs there."""
        return ["nsenter", f"--net={_NAMED}/{self._name}"]

    def run(self, *words: str) -> None:
        """Runs a command there and waits for its end."""
        _command(*self.prefix, *words)

    def small_buffers(self) -> None:
        """What is under way in a connection is at most some ten thousand bytes from now on."""
        for name in ("rmem", "wmem"):
            self.run("sh", "-c", f"echo {_SMALL} > /proc/sys/net/ipv4/tcp_{name}")

    def cut(self) -> None:
        """Nothing leaves the host or reaches it; nobody is told so."""
        _command("ip", "link", "set", self._cable, "down")

    def mend(self) -> None:
        """Undoes `cut`."""
        _command("ip", "link", "set", self._cable, "up")

    def cut_to(self, address: str) -> None:
        """Nothing that is sent from here to another host reaches it; nobody is told so."""
        self.run(*_NEIGHBOUR, "replace", address, "lladdr", _NOBODY, "nud", "permanent", *_CARD)

    def mend_to(self, address: str) -> None:
        """Undoes `cut_to`."""
        self.run(*_NEIGHBOUR, "delete", address, *_CARD)


class HostNetwork(Running):
    """The bridge that all hosts are on; this program is on it too."""

    def __init__(self) -> None:
        self._last = 1

    def start(self) -> None:
        _command("ip", "link", "add", _BRIDGE, "type", "bridge")
        _command("ip", "address", "add", f"{_PREFIX}1/24", "dev", _BRIDGE)
        _command("ip", "link", "set", _BRIDGE, "up")

    def add_host(self) -> Host:
        """A host, linked."""
        self._last += 1
        return Host(self._last)

    def close(self) -> None:
        for number in range(2, self._last + 1):
            _command("ip", "netns", "delete", f"h{number}")
        self._last = 1
        _command("ip", "link", "delete", _BRIDGE)


def _command(*words: str) -> None:
    subprocess.run(words, check=True)
