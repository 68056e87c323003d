"""A thread of a test that dies fails the test at once."""

from __future__ import annotations

import threading
import time

import pytest

from tests.support.threads import ThreadDied, watched_threads
from tests.support.wait import wait_until

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


def die() -> None:
    raise AssertionError("the broker refuses: it is starting")


def test_waiting_ends_with_the_words_of_a_thread_that_died() -> None:
    began = time.monotonic()
    with pytest.raises(ThreadDied, match="AssertionError: the broker refuses"), watched_threads():
        threading.Thread(target=die).start()
        wait_until(lambda: False, "what never comes")
    assert time.monotonic() - began < 20


def test_a_thread_that_died_unseen_fails_the_test_at_its_end() -> None:
    with pytest.raises(ThreadDied, match="it is starting"), watched_threads():
        thread = threading.Thread(target=die)
        thread.start()
        thread.join()


def test_what_the_test_itself_says_counts_more() -> None:
    with pytest.raises(KeyError), watched_threads():
        thread = threading.Thread(target=die)
        thread.start()
        thread.join()
        raise KeyError
