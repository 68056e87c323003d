"""What etc/ has for systemd, Docker, Prometheus and Grafana fits the servers that it starts."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from rocketmq_tw.services import broker, controller, namesrv, proxy, standalone

PROJECT = Path(__file__).resolve().parents[3]
ETC = PROJECT / "etc"
OPTIONS = {
    "rmq-namesrv": namesrv.Options,
    "rmq-broker": broker.Options,
    "rmq-controller": controller.Options,
    "rmq-proxy": proxy.Options,
    "rmq-standalone": standalone.Options,
}
#: Our sample for each file that a unit names.
SAMPLES = {
    "namesrv.properties": "namesrv.properties",
    "%i.properties": "broker.properties",
    "%i.conf": "controller/controller-n0.conf",
    "rmq-proxy.json": "proxy/rmq-proxy.json",
}


def parse(program: str, *arguments: str) -> None:
    """Fails where the server would not take its command line."""
    OPTIONS[program]({"HOME": "/home/me"}).parseOptions(arguments)


def unit_names() -> list[str]:
    return sorted(path.name for path in (ETC / "systemd").iterdir())


@pytest.mark.parametrize("name", unit_names())
def test_a_unit_starts_a_server(name: str) -> None:
    unit = (ETC / "systemd" / name).read_text()
    (command,) = re.findall(r"^ExecStart=\S+/twistd -n --pidfile= (.*)$", unit, re.M)
    program, option, path = shlex.split(command)
    assert name.startswith(program)
    assert option == "-c"
    parse(program, "-c", str(ETC / SAMPLES[Path(path).name]))


def test_containers_start_servers() -> None:
    docker = ETC / "docker"
    text = (docker / "Dockerfile").read_text()
    assert re.search(r'^ENTRYPOINT \["twistd", "-n", "--pidfile="\]$', text, re.M)
    (default,) = re.findall(r"^CMD (.*)$", text, re.M)
    parse(*json.loads(default))
    for line in re.findall(r"^COPY (.*)$", text, re.M):
        assert all((PROJECT / source).exists() for source in line.split()[:-1])
    compose = yaml.safe_load((docker / "compose.yaml").read_text())
    for name, service in compose["services"].items():
        program, *arguments = service["command"]
        assert program == f"rmq-{name}"
        parse(program, *arguments)
        # Each reaches the others by the names that the file gives them.
        hosts = re.findall(r"\b([a-z]+):\d+$", "\n".join(arguments), re.M)
        assert set(hosts) <= compose["services"].keys()


def expressions(value: Any) -> list[str]:
    """All that Prometheus is asked in a file of rules or a dashboard."""
    if isinstance(value, dict):
        found = [value["expr"]] if "expr" in value else []
        return found + [each for part in value.values() for each in expressions(part)]
    if isinstance(value, list):
        return [each for part in value for each in expressions(part)]
    return []


@pytest.mark.parametrize("file", ["prometheus/alerts.yaml", "grafana/rocketmq.json"])
def test_figures_that_are_asked_for_are_documented(file: str) -> None:
    # JSON is YAML too.
    asked = expressions(yaml.safe_load((ETC / file).read_text()))
    names = {name for each in asked for name in re.findall(r"\brocketmq_\w+", each)}
    assert len(names) >= 4
    documented = set(
        re.findall(r"\brocketmq_\w+", (PROJECT / "docs" / "monitoring.md").read_text())
    )
    assert {name.removesuffix("_bucket") for name in names} <= documented


def test_each_alert_has_its_advice() -> None:
    rules = yaml.safe_load((ETC / "prometheus" / "alerts.yaml").read_text())
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    page = (PROJECT / "docs" / "operating.md").read_text()
    assert set(re.findall(r"^\| `(RocketMQ\w+)` \|", page, re.M)) == alerts
