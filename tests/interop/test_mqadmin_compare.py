"""Every command of stock's mqadmin says the same of our servers as of stock's (docs/mqadmin.md)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.cluster import OURS, Cluster, make_broker, make_name_server
from tests.support.elected_site import ElectedSite
from tests.support.java_client import JavaClients
from tests.support.mqadmin_cases import CASES, ELECTED_CASES, ENDLESS, NEW, OLD, EndlessCall
from tests.support.mqadmin_comparison import compare


@pytest.mark.parametrize("version", [NEW, OLD])
def test_every_command_says_the_same(
    version: str, jvms: dict[str, JavaClients], tmp_path: Path
) -> None:
    wrong = [each for each in compare(jvms[version], tmp_path) if not each.is_as_expected]
    assert not wrong, "\n".join(map(str, wrong))


def test_those_about_controllers_and_containers_say_the_same(
    jvms: dict[str, JavaClients], tmp_path: Path
) -> None:
    outcomes = compare(jvms[NEW], tmp_path, ELECTED_CASES, ElectedSite)
    wrong = [each for each in outcomes if not each.is_as_expected]
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("call", ENDLESS, ids=lambda call: call.command)
def test_those_that_run_until_they_are_killed_say_the_same(
    call: EndlessCall, jvms: dict[str, JavaClients], tmp_path: Path
) -> None:
    (outcome,) = compare(jvms[NEW], tmp_path, [call])
    assert outcome.is_as_expected, str(outcome)


@pytest.mark.parametrize("version", [NEW, OLD])
def test_no_command_is_left_out(version: str, jvms: dict[str, JavaClients]) -> None:
    listed = re.findall(r"^   (\w+) ", jvms[version].mqadmin(), re.MULTILINE)
    assert len(listed) > 50
    compared = {case.command for case in (*CASES, *ELECTED_CASES) if version in case.versions}
    # Those that run on take half a minute each: the newer tools' alone.
    compared |= {case.command for case in ENDLESS}
    assert set(listed) - compared == set()


def test_tools_that_ask_slaves_too(jvms: dict[str, JavaClients], tmp_path: Path) -> None:
    """Those of 5.x have every broker of a cluster delete topics, and fail where one refuses."""
    java = jvms[NEW]
    slave = {"brokerId": "1", "brokerRole": "SLAVE"}
    names = make_name_server(OURS, tmp_path / "namesrv")
    group = Cluster(
        [names],
        [
            make_broker(OURS, "a", tmp_path / "master", [names]),
            make_broker(OURS, "a", tmp_path / "slave", [names], settings=slave),
        ],
    )
    with group:

        def mqadmin(line: str) -> str:
            return java.mqadmin(*line.split(), "-n", names.address)

        cluster = group.broker.cluster
        mqadmin(f"updateTopic -c {cluster} -t T")
        mqadmin(f"updateSubGroup -c {cluster} -g G")
        told = mqadmin(f"deleteSubGroup -c {cluster} -g G -r true")
        # It deletes the retry topic on both then, and says so where that fails.
        assert "delete subscription group [G]" in told and "Exception" not in told, told
        told = mqadmin(f"deleteTopic -c {cluster} -t T")
        assert f"delete topic [T] from cluster [{cluster}] success" in told, told
        active = [
            re.search(r"brokerActive\s*: (\w+)", mqadmin(f"brokerStatus -b {broker.address}"))
            for broker in group.brokers
        ]
        assert [found and found[1] for found in active] == ["true", "false"]
