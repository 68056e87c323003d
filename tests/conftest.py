"""Options of the test run, its time limit; fixtures that more than one kind of test needs."""

import gc
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from twisted.logger import ILogObserver, LogEvent, LogLevel, eventAsText, globalLogBeginner
from zope.interface import provider

from tests.support import processes
from tests.support.interpreter import IS_CPYTHON, skip_what_lacks_modules
from tests.support.spread import ByServers, place_in_order
from tests.support.threads import watched_threads

# A busy machine is no failure; the same examples in each run, so that a change fails by its own
# fault only. `--hypothesis-profile other-examples` looks for more.
for name, same in (("same-examples", True), ("other-examples", False)):
    settings.register_profile(
        name,
        derandomize=same,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("same-examples")
skip_what_lacks_modules()

#: When a test's time limit is over, by the monotonic clock.
DEADLINE = pytest.StashKey[float]()
#: Python's own thresholds of the garbage collector; PyPy's goes by bytes.
THRESHOLDS = gc.get_threshold() if IS_CPYTHON else ()
#: Seconds between two reminders that a test is past its limit.
REMINDER = 3.0


def pytest_configure() -> None:
    """Twisted keeps the first 65536 events until logging begins, and each one keeps what logged it:
    brokers with their stores and disks."""
    globalLogBeginner.beginLoggingTo([_show_errors], redirectStandardIO=False, discardBuffer=True)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Bytes are named by their length: what packs them may put the time into them, and workers that
    collect different names run nothing."""
    return f"{len(val)} bytes" if isinstance(val, bytes) and len(val) > 8 else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first: what is left for the end is short."""
    items.sort(key=lambda item: place_in_order(item.path))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByServers | None:
    """See `ByServers`; other ways of spreading tests are pytest-xdist's own."""
    return ByServers(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """The garbage of tests is large rings: groups of servers with their disks. It is looked for as
    in any program, not as rarely as `rocketmq_tw.services` has it, and not in all modules."""
    gc.collect()
    if IS_CPYTHON:
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)


@provider(ILogObserver)
def _show_errors(event: LogEvent) -> None:
    """Errors that nobody handled are told beside the test's own output."""
    if event.get("log_level", LogLevel.info) >= LogLevel.critical:
        print(eventAsText(event, includeTimestamp=False, includeSystem=False), file=sys.stderr)


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
    parser.addoption(
        "--fuzz-seed", type=int, default=1, help="which random bytes; another number for others"
    )


@pytest.fixture(scope="session")
def servers(pytestconfig: pytest.Config) -> str:
    """The kind of the servers under test."""
    return str(pytestconfig.getoption("--servers"))


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, object, object]:
    """The limit is raised in the test again and again: code that runs callbacks takes any error for
    theirs, and the test would go on."""
    item.stash[DEADLINE] = monotonic() + settings.timeout
    result = yield
    if signal.getitimer(signal.ITIMER_REAL)[0]:
        signal.setitimer(signal.ITIMER_REAL, settings.timeout, REMINDER)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fails a test that came to its end because such code dropped the error."""
    with _not_reminded_any_more(item), watched_threads():
        result = yield
    if monotonic() > item.stash.get(DEADLINE, inf):
        pytest.fail("Timeout: the test came to its end behind its time limit")
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with _not_reminded_any_more(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    with _not_reminded_any_more(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """What the servers of a failed test logged last is part of its report."""
    report = yield
    if report.failed:
        for server in sorted(processes.started, key=lambda each: str(each.home)):
            report.sections.append((f"logs of {server.home.name}", server.log_tails()))
    if report.when == "teardown":
        processes.started.clear()
    return report


@contextmanager
def _not_reminded_any_more(item: pytest.Item) -> Iterator[None]:
    """Once the error of a test has left it, none may strike the one who writes the report."""
    try:
        yield
    except BaseException:
        if monotonic() > item.stash.get(DEADLINE, inf):
            signal.setitimer(signal.ITIMER_REAL, 0)
        raise
