"""The rule of truncation: what follows from the log goes back, durably, before any byte goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from zope.interface import implementer

from rocketmq_tw.broker.assembly.truncation import DerivedOffsets, ILogEnd, LogCut, Truncation
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.runtime.slices import Slices
from tests.support.broker import fired
from tests.support.stores import make_message, open_store


@implementer(ILogEnd)
class Ending:
    """The end of a log with five messages, which notes where it is cut."""

    def __init__(self, did: list[str]) -> None:
        self.store = open_store(MemoryFiles())
        self.starts = [
            self.store.append(make_message(b"%d" % number)).physical_offset for number in range(5)
        ]
        self.store.write_pending()
        self.store.dispatch()
        self.whole = self.store.end_offset
        self._did = did

    def whole_end(self) -> Deferred[int]:
        return succeed(self.whole)

    def cut(self, end: int) -> Deferred[None]:
        self._did.append(f"cut at {self.starts.index(end)}")
        return succeed(None)


def derived(
    name: str, did: list[str], saved: Deferred[None] | None = None, **more: Any
) -> DerivedOffsets:
    def rewind(cut: LogCut) -> Iterator[None]:
        did.append(f"{name} asks")
        gone: list[int] = []
        cut.observe(lambda head: gone.append(head.queue_offset))

        def steps() -> Iterator[None]:
            did.append(f"{name} goes back by {gone}, to {cut.first_gone('Topic', 0)}")
            yield

        return steps()

    def save() -> Deferred[None]:
        did.append(f"{name} saves")
        return saved or succeed(None)

    return DerivedOffsets(name, rewind, save, **more)


def made() -> tuple[Truncation, Ending, list[str], Clock]:
    did: list[str] = []
    clock, ending = Clock(), Ending(did)
    return Truncation(ending, Slices(clock)), ending, did, clock


def test_all_go_back_and_are_saved_before_the_log_is_cut() -> None:
    truncation, ending, did, clock = made()
    paused, saved = Deferred[None](), Deferred[None]()
    truncation.register(derived("a", did))
    truncation.register(
        derived("b", did, saved, pause=lambda: paused, resume=lambda: did.append("b goes on"))
    )
    truncation.after_cut.add(lambda end: did.append("it was cut"))
    done = truncation.cut(ending.starts[3])
    assert not did, "b still moves what it keeps"
    paused.callback(None)
    clock.pump([0] * 5)
    assert did == [
        "a asks",
        "b asks",
        "a goes back by [3, 4], to 3",
        "b goes back by [3, 4], to 3",
        "a saves",
        "b saves",
    ]
    saved.callback(None)
    fired(done)
    assert did[6:] == ["cut at 3", "it was cut", "b goes on"]


def test_what_needs_files_goes_back_behind_all_steps_and_before_any_save() -> None:
    truncation, ending, did, clock = made()
    gone_back = Deferred[None]()

    def go_back() -> Deferred[None]:
        did.append("a has files that go back")
        return gone_back

    truncation.register(derived("a", did, go_back=go_back))
    truncation.register(derived("b", did))
    done = truncation.cut(ending.starts[3])
    clock.pump([0] * 5)
    assert did[3:] == ["b goes back by [3, 4], to 3", "a has files that go back"]
    gone_back.callback(None)
    fired(done)
    assert did[5:] == ["a saves", "b saves", "cut at 3"]


@pytest.mark.parametrize(
    "register",
    [
        pytest.param(lambda cut: cut.observe(lambda head: None), id="observe"),
        pytest.param(lambda cut: cut.need_messages_of("Topic"), id="need_messages_of"),
    ],
)
def test_a_rewind_that_registers_once_the_log_was_gone_through_is_an_error(
    register: Callable[[LogCut], None],
) -> None:
    """As one that is a generator function does: its body runs with its first step only."""
    truncation, ending, did, clock = made()

    def rewind(cut: LogCut) -> Iterator[None]:
        register(cut)
        yield

    truncation.register(DerivedOffsets("late", rewind, lambda: succeed(None)))
    failed = truncation.cut(ending.starts[3])
    clock.pump([0] * 5)
    with pytest.raises(RuntimeError, match="before the log is gone through"):
        fired(failed)
    assert not did, "the log is not cut"


def test_a_log_that_cannot_be_saved_for_is_not_cut() -> None:
    truncation, ending, did, clock = made()
    goes_on = {
        "pause": lambda: succeed(did.append("pause")),
        "resume": lambda: did.append("resume"),
    }
    truncation.register(derived("a", did, fail(OSError("no disk")), **goes_on))
    failed = truncation.cut(ending.starts[1])
    clock.pump([0] * 5)
    with pytest.raises(OSError, match="no disk"):
        fired(failed)
    assert did[-2:] == ["a saves", "resume"]
    over = truncation.over()
    fired(over)


def test_only_what_is_behind_the_last_whole_record_is_cut_off_a_former_copy() -> None:
    truncation, ending, did, _ = made()
    fired(truncation.end_at_whole_record())
    assert not did
    ending.whole = ending.starts[2]
    fired(truncation.end_at_whole_record())
    assert did == ["cut at 2"]
