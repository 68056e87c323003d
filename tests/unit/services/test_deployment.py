"""What etc/ has for systemd, Docker, Prometheus and Grafana fits the servers that it starts."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from rocketmq_tw.services import broker, container, controller, namesrv, proxy, standalone
from rocketmq_tw.services.options import ServerOptions

PROJECT = Path(__file__).resolve().parents[3]
ETC = PROJECT / "etc"
OPTIONS = {
    "rmq-namesrv": namesrv.Options,
    "rmq-broker": broker.Options,
    "rmq-container": container.Options,
    "rmq-controller": controller.Options,
    "rmq-proxy": proxy.Options,
    "rmq-standalone": standalone.Options,
}
#: Our sample for each file that a unit names.
SAMPLES = {
    "namesrv.properties": "namesrv.properties",
    "%i.properties": "broker.properties",
    "rmq-proxy.json": "proxy/rmq-proxy.json",
}
#: For each server whose unit names `%i.conf`.
CONF_SAMPLES = {
    "rmq-container": "container/broker-container.conf",
    "rmq-controller": "controller/controller-n0.conf",
}
#: To try things, a node that serves a log alone, and what is started beside Spark.
WITHOUT_UNIT = {"rmq-standalone", "rmq-dledger", "rmq-spark-receiver"}


def parse(program: str, *arguments: str) -> ServerOptions:
    """Fails where the server would not take its command line."""
    options = OPTIONS[program]({"HOME": "/home/me"})
    options.parseOptions(arguments)
    return options


def ports(program: str, *arguments: str) -> set[int]:
    """Where the server listens, as `-p` has it, with the port of former clients two below."""
    shown = parse(program, *arguments).effective()
    found = {int(port) for port in re.findall(r"^(?:# )?\w*[pP]ort=(\d+)$", shown, re.M)}
    return found | {port - 2 for port in found}


def command_of(unit: str) -> list[str]:
    """What a unit gives twistd: the server and its options."""
    (command,) = re.findall(r"^ExecStart=\S+/twistd -n --pidfile= (.*)$", unit, re.M)
    return shlex.split(command)


def unit_names() -> list[str]:
    return sorted(path.name for path in (ETC / "systemd").iterdir())


@pytest.mark.parametrize("name", unit_names())
def test_a_unit_starts_a_server(name: str) -> None:
    unit = (ETC / "systemd" / name).read_text()
    program, option, path, *keys = command_of(unit)
    assert name.startswith(program)
    assert option == "-c"
    sample = CONF_SAMPLES[program] if path.endswith("%i.conf") else SAMPLES[Path(path).name]
    # The instances of a unit whose file is the same for all are ports.
    parse(program, "-c", str(ETC / sample), *(key.replace("%i", "5561") for key in keys))


def test_each_server_has_a_unit() -> None:
    started = {re.split(r"@?\.service", name)[0] for name in unit_names()}
    plugins = "".join(path.read_text() for path in (PROJECT / "twisted/plugins").glob("*.py"))
    servers = set(re.findall(r'"(rmq-[\w-]+)"', plugins))
    assert sorted(started) == sorted(servers - WITHOUT_UNIT)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        *((f"systemd/{name}", "Environment=PYPY_GC_INCREMENT_STEP=1M") for name in unit_names()),
        ("docker/Dockerfile", "ENV PYPY_GC_INCREMENT_STEP=1M"),
        ("../Makefile", "export PYPY_GC_INCREMENT_STEP ?= 1M"),
    ],
)
def test_pypy_collects_garbage_in_short_steps(path: str, line: str) -> None:
    assert line in (ETC / path).read_text().splitlines()


#: A proxy has no store, and the stores of a container are its brokers'.
STORELESS = ("rmq-container", "rmq-proxy")


@pytest.mark.parametrize("name", [name for name in unit_names() if not name.startswith(STORELESS)])
def test_a_server_may_write_its_paths_and_where_it_keeps_live_changes(name: str) -> None:
    unit = (ETC / "systemd" / name).read_text()
    program, _, path = command_of(unit)
    writable = [line.lstrip("-") for line in re.findall(r"^ReadWritePaths=(.*)$", unit, re.M)]
    (home,) = re.findall(r"^Environment=HOME=(.*)$", unit, re.M)
    options = OPTIONS[program]({"HOME": home})
    options.parseOptions([])
    # Those that a configuration leaves out.
    of_store = re.findall(r"^(?:kvConfig|\w*[sS]tore)Path\w*=(/.+)$", options.effective(), re.M)
    assert of_store
    for each in (path, *of_store):
        assert any(Path(each).is_relative_to(place) for place in writable), each


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """It also tells of keys that it ignores, with status 0."""
    paths = []
    for name in unit_names():
        text = (ETC / "systemd" / name).read_text()
        # The directory of the Python at hand has twistd, as the one of an installation has.
        text = text.replace("/opt/rocketmq_tw/bin", str(Path(sys.executable).parent))
        paths.append(tmp_path / name)
        paths[-1].write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, paths)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    told = (done.stdout + done.stderr).splitlines()
    # Units of the machine's own are read as well, and may have faults of theirs.
    assert not [line for line in told if "rmq-" in line or str(tmp_path) in line]
    assert done.returncode == 0, told


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ETC / "docker" / "compose.yaml").read_text())
    return loaded


def settings(service: Mapping[str, Any]) -> dict[str, str]:
    """The keys that the command of a container has behind -o, and what they are set to."""
    command = service["command"]
    given = [word for at, word in enumerate(command) if command[at - 1] == "-o"]
    return dict(word.split("=", 1) for word in given)


def test_the_image_starts_servers() -> None:
    text = (ETC / "docker" / "Dockerfile").read_text()
    assert re.search(r'^ENTRYPOINT \["twistd", "-n", "--pidfile="\]$', text, re.M)
    (default,) = re.findall(r"^CMD (.*)$", text, re.M)
    parse(*json.loads(default))
    (exposed,) = re.findall(r"^EXPOSE (.*)$", text, re.M)
    assert set(map(int, exposed.split())) <= ports(*json.loads(default))
    assert re.search(r"^FROM \$\{PYTHON\}$", text, re.M)
    (base,) = re.findall(r"^ARG PYTHON=python:3\.(\d+)-slim$", text, re.M)
    assert f"Python :: 3.{base}\n" in (PROJECT / "setup.cfg").read_text()


@pytest.mark.parametrize("name", compose()["services"])
def test_a_container_starts_a_server(name: str) -> None:
    services = compose()["services"]
    service = services[name]
    program, *arguments = service["command"]
    parse(program, *arguments)
    context = ETC / "docker" / service["build"]["context"]
    assert (context / service["build"]["dockerfile"]).samefile(ETC / "docker" / "Dockerfile")
    # Each reaches the others by the names that the file gives them, and tells its own.
    given = settings(service)
    hosts = set(re.findall(r"([a-z0-9]+(?:-[0-9]+)?):\d+\b", "\n".join(arguments)))
    assert hosts <= services.keys()
    assert {given.get(key, name) for key in ("brokerIP1", "brokerIP2")} == {name}
    # What a server waits for starts whenever it does.
    profiles = set(service.get("profiles", []))
    for other in service.get("depends_on", []):
        assert set(services[other].get("profiles", [])) <= profiles


def test_containers_are_reached_at_ports_where_they_listen() -> None:
    services = compose()["services"]
    listening = {name: ports(*service["command"]) for name, service in services.items()}
    published = []
    for name, service in services.items():
        for mapping in service.get("ports", []):
            outside, inside = map(int, mapping.split(":"))
            assert inside in listening[name]
            published.append(outside)
        for host, port in re.findall(r"([a-z]+):(\d+)\b", "\n".join(service["command"])):
            assert int(port) in listening[host]
    assert len(set(published)) == len(published)


@pytest.mark.skipif(find_spec("setuptools") is None, reason="no setuptools here")
def test_the_image_has_all_that_servers_need(tmp_path: Path) -> None:
    """What it copies makes the package, with files that are no modules."""
    text = (ETC / "docker" / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (.*)$", text, re.M):
        *sources, target = line.split()
        place = tmp_path / target.lstrip("/")
        for source in sources:
            found = PROJECT / source
            if found.is_dir():
                shutil.copytree(found, place)
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, place)
    packed = tmp_path / "packed"
    subprocess.run(
        [
            sys.executable,
            "-c",
            "import setuptools; setuptools.setup()",
            "-q",
            "build_py",
            f"-d{packed}",
        ],
        cwd=tmp_path / "src",
        check=True,
        timeout=300,
    )
    needed = [
        *PROJECT.glob("rocketmq_tw/**/*.py"),
        *PROJECT.glob("rocketmq_tw/**/*.json"),
        *PROJECT.glob("twisted/plugins/*.py"),
    ]
    assert not [path for path in needed if not (packed / path.relative_to(PROJECT)).exists()]


def test_containers_keep_their_stores() -> None:
    loaded = compose()
    kept = set()
    for service in loaded["services"].values():
        paths = [path for key, path in settings(service).items() if "storepath" in key.lower()]
        for path in paths:
            (volume,) = [each.split(":") for each in service["volumes"]]
            assert path.startswith(f"{volume[1]}/")
            assert volume[0] not in kept
            kept.add(volume[0])
    assert kept == loaded["volumes"].keys()


def test_containers_of_a_controller_agree() -> None:
    services = compose()["services"]
    controllers = [each for each in services.values() if each["command"][0] == "rmq-controller"]
    peers = {settings(each)["controllerDLegerPeers"] for each in controllers}
    members = dict(member.split("-", 1) for member in peers.pop().split(";"))
    assert not peers
    assert {settings(each)["controllerDLegerSelfId"] for each in controllers} == members.keys()
    elected = [each for each in services.values() if "controllerAddr" in settings(each)]
    assert len(elected) == 2
    for each in map(settings, elected):
        assert set(each["controllerAddr"].split(";")) == set(members.values())
        assert each["enableControllerMode"] == "true"
    assert len({settings(each)["brokerName"] for each in elected}) == 1


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


@pytest.mark.parametrize("file", ["prometheus/alerts.yaml", "grafana/rocketmq.json"])
def test_what_is_put_together_is_of_one_cluster_and_counted_once(file: str) -> None:
    """A slave tells of its group what its master does, with the same labels but `instance`."""
    for asked in expressions(yaml.safe_load((ETC / file).read_text())):
        for labels in re.findall(r"\bby \(([^)]*)\)", asked):
            assert "cluster" in labels.split(", "), asked
        for summed in re.findall(r"\bsum by \([^)]*\) \((\w+)", asked):
            # A counter, of which each broker has its own; or what master and slave tell, once.
            assert summed in ("rate", "max"), asked


def test_each_alert_has_its_advice() -> None:
    rules = yaml.safe_load((ETC / "prometheus" / "alerts.yaml").read_text())
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    page = (PROJECT / "docs" / "operating.md").read_text()
    assert set(re.findall(r"^\| `(RocketMQ\w+)` \|", page, re.M)) == alerts


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here")
def test_each_alert_fires_when_it_should() -> None:
    path = ETC / "prometheus" / "alerts_test.yaml"
    done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_alert_is_left_out_of_the_tests_of_alerts() -> None:
    rules, tests = (
        yaml.safe_load((ETC / "prometheus" / name).read_text())
        for name in ("alerts.yaml", "alerts_test.yaml")
    )
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    firing = {
        check["alertname"]
        for each in tests["tests"]
        for check in each["alert_rule_test"]
        if check.get("exp_alerts")
    }
    assert firing == alerts
