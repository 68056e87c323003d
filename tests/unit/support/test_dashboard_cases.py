"""The requests of stock's dashboard that are compared, and what docs say about them."""

from __future__ import annotations

import re

import pytest

from tests.support.dashboard_cases import CASES, ELSEWHERE, RestCall
from tests.support.jars import PROJECT
from tests.support.mqadmin_comparison import Outcome, difference

_PROGRAM = PROJECT / "tests" / "interop" / "java-dashboard"


def test_each_request_of_the_program_is_compared() -> None:
    sources = "".join(path.read_text() for path in _PROGRAM.glob("*.java"))
    answered = set(re.findall(r'requests\.put\("([A-Z]+ /[^"]+)"', sources))
    assert answered == {case.request for case in CASES}


def test_parameters_come_from_query_and_body() -> None:
    case = RestCall('POST /a.do?topic=%DLQ%$group&key=k {"group": "$group", "most": 3}')
    assert case.request == "POST /a.do"
    assert case.parameters({"group": "g"}) == {
        "topic": "%DLQ%g",
        "key": "k",
        "group": "g",
        "most": 3,
    }
    assert RestCall('POST /a.do ["$group"]').parameters({"group": "g"}) == {"": ["g"]}
    assert RestCall("GET /a.query").parameters({}) == {}


def test_each_difference_is_the_one_that_is_named() -> None:
    assert [case.line for case in CASES if bool(case.unlike) != bool(case.differs)] == []
    case = RestCall("GET /a.query", unlike="ours has a", differs=('+"a": 1',))
    for ours, is_as_expected in (('"a": 1', True), ('"a": 2', False), ("", False)):
        outcome = Outcome(case, difference(case, "", ours), ours)
        assert outcome.is_as_expected is is_as_expected


@pytest.fixture
def page() -> str:
    text = (PROJECT / "docs" / "monitoring.md").read_text()
    return text[text.index("## Stock's dashboard") :]


def test_the_page_has_the_numbers_and_differences(page: str) -> None:
    requests = {case.request for case in CASES}
    assert f"{len(CASES)} times" in page and f"{len(requests)} requests" in page
    unlike = {case.request.split()[1] for case in CASES if case.unlike or case.more_is_fine}
    table = page[page.index("| request | difference |") :]
    assert set(re.findall(r"`(/[^`]+)`", table.split("\n\n")[0])) == unlike
    assert [path for path in ELSEWHERE if f"`{path}" not in page] == []
