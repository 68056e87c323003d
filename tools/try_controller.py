"""Starts a group that elects its own master on this machine, and says what to type.

    make try-controller

A name server, three controllers and three brokers from `etc/controller/`, with their stores below
`data/controller/`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from tools.trying import NAME_SERVER, PROJECT, address, line, rmqadmin, run, twistd

SAMPLES = PROJECT / "etc" / "controller"
DATA = PROJECT / "data" / "controller"
MEMBERS = ("n0", "n1", "n2")
CONTROLLERS = "127.0.0.1:9877;127.0.0.1:9878;127.0.0.1:9879"


def commands() -> dict[str, list[str]]:
    """Each process by its name."""
    started = {
        "name server": twistd(
            *(DATA, "name server", "rmq-namesrv"),
            *("-o", "bindAddress=127.0.0.1"),
            *("-o", f"kvConfigPath={DATA}/kvConfig.json"),
        )
    }
    for member in MEMBERS:
        file = SAMPLES / f"controller-{member}.conf"
        name = f"controller {member}"
        started[name] = twistd(DATA, name, "rmq-controller", "-c", str(file))
    for member in MEMBERS:
        file = SAMPLES / f"broker-{member}.conf"
        name = f"broker {member}"
        started[name] = twistd(DATA, name, "rmq-broker", "-c", str(file))
    return started


def explain(running: Mapping[str, int]) -> list[str]:
    """What to type; `running` has the process id of each name."""
    admin = rmqadmin()
    brokers = {name: pid for name, pid in running.items() if name.startswith("broker")}
    where = {name: address(SAMPLES / f"{name.replace(' ', '-')}.conf") for name in brokers}
    return [
        "who is master, and who has all of its messages (again every 2 s):",
        f"    {admin} getSyncStateSet -a '{CONTROLLERS}' -b broker-a -i 2",
        "send a message, and see it:",
        f"    {admin} sendMessage -n {NAME_SERVER} -t Orders -p hello",
        f"    {admin} consumeMessage -n {NAME_SERVER} -t Orders",
        "kill the master that getSyncStateSet shows, look again, send again:",
        *(f"    kill -9 {pid}    # {name}, {where[name]}" for name, pid in brokers.items()),
        "bring it back; it cuts off what the new master does not have and follows:",
        *(f"    {line(commands()[name])}" for name in brokers),
    ]


def addresses() -> list[str]:
    """Where the servers listen."""
    brokers = [address(SAMPLES / f"broker-{member}.conf") for member in MEMBERS]
    return [NAME_SERVER, *CONTROLLERS.split(";"), *brokers]


if __name__ == "__main__":
    sys.exit(run(DATA, commands(), explain, addresses()))
