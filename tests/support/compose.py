"""`docker compose` without Docker, as far as docs/operating.md needs it: the command line of each
service, with the image's entry point, on a host of its own that has the service's name.

    python -m tests.support.compose compose -f FILE [--profile NAME] up --build
    python -m tests.support.compose compose -f FILE exec SERVICE COMMAND...

It runs at a terminal with an /etc and a /var/lib of its own (`terminal.py`). There is no image:
what is in it, and who the servers are run by, is not shown.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.support.hosts import HostNetwork

#: Where `up` says how a command gets to the host of each service.
_PREFIXES = Path("/run/services.json")
#: The home of the image's user.
_HOME = Path("/var/lib/rocketmq")
_IN_ITS_HOME = f'mount --bind "$0" {_HOME} && cd {_HOME} && HOME={_HOME} exec "$@"'


def up(file: Path, profile: str) -> None:
    """Starts the services of the profile, and those of none, and waits for their ends."""
    services: dict[str, Any] = yaml.safe_load(file.read_text())["services"]
    dockerfile = (file.parent / "Dockerfile").read_text()
    (entry_point,) = re.findall(r"^ENTRYPOINT (.*)$", dockerfile, re.M)
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
    Path("/run/netns").mkdir()
    network = HostNetwork()
    network.start()
    hosts = {
        name: network.add_host()
        for name, service in services.items()
        if profile in service.get("profiles", [profile])
    }
    lines = [f"{host.address} {name}\n" for name, host in hosts.items()]
    Path("/etc/hosts").write_text("".join(["127.0.0.1 localhost\n", *lines]))
    _PREFIXES.write_text(json.dumps({name: host.prefix for name, host in hosts.items()}))
    _HOME.mkdir()
    running = []
    for name, host in hosts.items():
        home = _HOME.with_name(name)
        home.mkdir()
        shell = ["unshare", "--mount", "sh", "-c", _IN_ITS_HOME, str(home)]
        command = [*json.loads(entry_point), *services[name]["command"]]
        running.append(subprocess.Popen([*host.prefix, *shell, *command]))
    for process in running:
        process.wait()


def main() -> None:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(prog="docker", description=__doc__)
    compose = parser.add_subparsers(required=True).add_parser("compose")
    compose.add_argument("-f", dest="file", type=Path, required=True)
    compose.add_argument("--profile", default="")
    commands = compose.add_subparsers(dest="command", required=True)
    commands.add_parser("up").add_argument("--build", action="store_true")
    execute = commands.add_parser("exec")
    execute.add_argument("service")
    execute.add_argument("words", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.command == "up":
        up(options.file, options.profile)
    else:
        words = [*json.loads(_PREFIXES.read_text())[options.service], *options.words]
        os.execvp(words[0], words)


if __name__ == "__main__":
    main()
