"""Both brokers run at the same time, and the one client sends to them by turns."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.running import Closing
from tools.bench import __main__ as bench_main
from tools.bench.__main__ import FAILURES, Comparison, Results
from tools.bench.cases import Case
from tools.bench.client import LoadFailed
from tools.bench.statistics import CEILING, OURS, STOCK

OPTIONS = {"only": None, "seconds": 10, "scale": 1.0, "turns": 3, "warm": 300, "warm_more": 60}


class Played:
    """A run of cases whose brokers and load are played: `steps` has what was done, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.steps: list[tuple[str, str]] = []
        self.clients: list[Any] = []
        self.now = 0.0
        #: CPU time a message of each window, by subject; the last one stays.
        self.cpu_us: dict[str, list[float]] = {}
        self.results = Results()
        self.said: list[str] = []
        self._directory = tmp_path
        monkeypatch.setattr(bench_main, "time", SimpleNamespace(monotonic=lambda: self.now))

    def get(self, generator: Any) -> Any:
        """As `LoadClients`: one client for all subjects."""
        self.clients.append(generator)
        return "the client"

    def case(
        self,
        name: str,
        *,
        warms: bool = False,
        fails: str = "",
        error: type[Exception] = LoadFailed,
    ) -> Case:
        played = self

        class Made(Closing):
            def __init__(self, kind: str, directory: Path, settings: dict[str, str]) -> None:
                self.kind = kind
                played.steps.append((kind, "starts"))

            def __enter__(self) -> Made:
                return self

            def close(self) -> None:
                played.steps.append((self.kind, "stops"))

        def measure(bench: Any) -> dict[str, float]:
            kind = bench.subject.kind
            assert bench.client == "the client"
            played.steps.append((kind, name))
            played.now += bench.seconds
            if kind == fails:
                raise error("no answer")
            windows = played.cpu_us.get(kind, [50.0])
            return {"cpu_us": windows.pop(0) if len(windows) > 1 else windows[0]}

        made: Any = Made
        return Case(name, name, measure, (OURS, STOCK, CEILING), make=made, warms=warms)

    def run(self, *cases: Case, **options: Any) -> list[tuple[str, str]]:
        Comparison(
            cases,
            self,  # type: ignore[arg-type]
            self._directory,
            argparse.Namespace(**OPTIONS | options),
            self.said.append,
            self.results,
        ).run()
        return self.steps


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Played:
    return Played(monkeypatch, tmp_path)


def turns(name: str, *kinds: str) -> list[tuple[str, str]]:
    return [(kind, name) for kind in kinds]


def test_each_turn_of_one_is_followed_by_the_others_and_all_have_one_client(played: Played) -> None:
    steps = played.run(played.case("send"), played.case("pull"))
    assert steps == [
        *turns("starts", STOCK, OURS, CEILING),
        *3 * turns("send", STOCK, OURS, CEILING),
        *3 * turns("pull", STOCK, OURS, CEILING),
        *turns("stops", CEILING, OURS, STOCK),
    ]
    assert len(set(played.clients)) == 1
    runs = [(run.case, run.subject, run.turn) for run in played.results.runs]
    assert runs[:4] == [
        ("send", STOCK, 0),
        ("send", OURS, 0),
        ("send", CEILING, 0),
        ("send", STOCK, 1),
    ]


def test_they_are_warmed_by_turns_until_each_is_steady(played: Played) -> None:
    played.cpu_us = {STOCK: [110.0, 72.0, 57.0, 50.0, 50.0, 50.0], OURS: [40.0]}
    steps = played.run(played.case("send", warms=True))[3:-3]
    assert steps == [
        *turns("send", STOCK, OURS, CEILING),
        *2 * turns("send", STOCK, OURS),
        *3 * turns("send", STOCK),
        *3 * turns("send", STOCK, OURS, CEILING),
    ]
    warmed = [(each.subject, each.seconds) for each in played.results.warmings]
    assert warmed == [(STOCK, 60.0), (OURS, 30.0)]
    # What was measured while they were cold counts for nothing.
    assert [run.figures["cpu_us"] for run in played.results.runs if run.subject == STOCK] == [
        50
    ] * 3


def test_one_that_never_gets_steady_is_measured_after_its_time(played: Played) -> None:
    played.cpu_us = {STOCK: [1_000.0 - 50 * n for n in range(15)]}
    steps = played.run(played.case("first", warms=True), played.case("later", warms=True), warm=50)
    assert steps.count((STOCK, "first")) == 5 + 3
    assert [text for text in played.said if "NOT steady after 50 s" in text]
    # The first case had the compiler do most of it.
    assert steps.count((STOCK, "later")) <= 6 + 3


@pytest.mark.parametrize("error", FAILURES)
def test_a_case_that_fails_keeps_no_other_from_its_turn(
    played: Played, error: type[Exception]
) -> None:
    steps = played.run(played.case("bad", fails=OURS, error=error), played.case("good"))
    assert steps[3:-3] == [
        *turns("bad", STOCK, OURS),
        *3 * turns("good", STOCK, OURS, CEILING),
    ]
    assert [text for text in played.said if "bad: FAILED: no answer" in text]


def test_one_subject_alone(played: Played) -> None:
    steps = played.run(played.case("send"), only=OURS)
    assert steps == [*turns("starts", OURS), *3 * turns("send", OURS), *turns("stops", OURS)]
