"""Hands the golden vectors of both stock versions to the tests that ask for one of a kind."""

import json
from pathlib import Path

import pytest

VECTORS = {
    path.stem.removeprefix("stock-"): json.loads(path.read_text())
    for path in sorted((Path(__file__).parent / "golden").glob("stock-*.json"))
}
#: fixture name -> section of the vectors
SECTIONS = {
    "golden_body": "bodies",
    "golden_registration": "registrations",
    "golden_header": "headers",
    "golden_command": "commands",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for fixture, section in SECTIONS.items():
        if fixture in metafunc.fixturenames:
            cases = [
                pytest.param(case | {"stock": version}, id=_name(version, case))
                for version, document in VECTORS.items()
                for case in document[section]
            ]
            metafunc.parametrize(fixture, cases)


def _name(version: str, case: dict) -> str:
    if "type" in case:
        return f"{version}-{case['type']}"
    if "form" in case:
        return f"{version}-{case['form']}-{case['name']}"
    return f"{version}-{'compressed' if case['compressed'] else 'plain'}"


@pytest.fixture(params=VECTORS)
def golden_codes(request: pytest.FixtureRequest) -> dict[str, dict[str, int]]:
    """Class of codes -> name -> number, of one stock version."""
    return VECTORS[request.param]["codes"]


@pytest.fixture
def dialect() -> dict[str, bytes]:
    """Texts that stock 5.3.3 wrote, by what is odd about them."""
    return {case["name"]: case["text"].encode() for case in VECTORS["5.3.3"]["dialect"]}
