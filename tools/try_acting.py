"""Starts two groups whose slaves act for their masters on this machine, and says what to type.

    make try-acting

A name server and two groups of master and slave from `etc/acting/`, with their stores below
`data/acting/`. `python -m tools.try_acting later` sends broker-a a message that waits for a minute.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from rocketmq_tw.client.blocking import BlockingClient
from rocketmq_tw.client.message import Message
from tools.trying import NAME_SERVER, PROJECT, address, line, rmqadmin, run, twistd

SAMPLES = PROJECT / "etc" / "acting"
DATA = PROJECT / "data" / "acting"
BROKERS = ("broker-a", "broker-a-s", "broker-b", "broker-b-s")
TOPIC = "Orders"
#: The delay level of one minute.
ONE_MINUTE = 5


def commands() -> dict[str, list[str]]:
    """Each process by its name."""
    names = str(SAMPLES / "namesrv.properties")
    started = {"name server": twistd(DATA, "name server", "rmq-namesrv", "-c", names)}
    for name in BROKERS:
        started[name] = twistd(DATA, name, "rmq-broker", "-c", str(SAMPLES / f"{name}.conf"))
    return started


def explain(running: Mapping[str, int]) -> list[str]:
    """What to type; `running` has the process id of each name."""
    admin, (master, slave) = rmqadmin(), BROKERS[:2]
    where = {name: address(SAMPLES / f"{name}.conf") for name in BROKERS}
    later = line([sys.executable, "-m", "tools.try_acting", "later"])
    return [
        f"a topic, and its brokers; 0 is the master's place, {where[master]} in broker-a:",
        f"    {admin} updateTopic -n {NAME_SERVER} -c DefaultCluster -t {TOPIC}",
        f"    {admin} topicRoute -n {NAME_SERVER} -t {TOPIC}",
        "send a message to broker-a, and one that comes in a minute:",
        f"    {admin} sendMessage -n {NAME_SERVER} -t {TOPIC} -b {master} -p hello",
        f"    {later}",
        "kill the master of broker-a while that one waits:",
        f"    kill -9 {running[master]}    # {master}, {where[master]}",
        f"a moment later its slave, {where[slave]}, is in its place, for reads (perm 4):",
        f"    {admin} topicRoute -n {NAME_SERVER} -t {TOPIC}",
        "hello is read from there; the other message comes through broker-b after its minute, and",
        "broker-b takes what is sent meanwhile:",
        f"    {admin} consumeMessage -n {NAME_SERVER} -t {TOPIC}",
        f"    {admin} sendMessage -n {NAME_SERVER} -t {TOPIC} -p 'life goes on'",
        "bring the master back; its slave hands over, and topicRoute shows the master again:",
        f"    {line(commands()[master])}",
    ]


def send_later() -> int:
    """Sends broker-a a message that comes a minute later."""
    with BlockingClient([NAME_SERVER]) as client:
        queues = [each for each in client.queues(TOPIC) if each.broker_name == BROKERS[0]]
        message = Message(TOPIC, b"a minute later", delay_level=ONE_MINUTE)
        print(client.send(message, queue=queues[0]))
    return 0


def main(arguments: Sequence[str]) -> int:
    """Runs the servers, or sends with the argument `later`."""
    if arguments == ["later"]:
        return send_later()
    if arguments:
        print(f"usage: {os.path.relpath(sys.executable)} -m tools.try_acting [later]")
        return 2
    addresses = [NAME_SERVER, *(address(SAMPLES / f"{name}.conf") for name in BROKERS)]
    return run(DATA, commands(), explain, addresses)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
