"""Options of the test run; fixtures that more than one kind of test needs."""

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no failure, and a failing example has to be told so that it can be run again.
settings.register_profile(
    "project", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("project")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--servers",
        choices=("ours", "4.9.7", "5.3.3"),
        default="ours",
        help="whose servers are under test; a version of stock checks the tests themselves",
    )
    parser.addoption(
        "--fuzz-seconds",
        type=float,
        default=10.0,
        help="for how long random bytes are sent to every port",
    )


@pytest.fixture(scope="session")
def servers(pytestconfig: pytest.Config) -> str:
    """The kind of the servers under test."""
    return str(pytestconfig.getoption("--servers"))
