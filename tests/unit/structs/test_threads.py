"""Threads that use a class of structs for the first time at the same moment get the same of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from rocketmq_tw.structs import plain

THREADS = 4
ROUNDS = 10


@pytest.fixture(autouse=True)
def _frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def _nested(depth: int) -> type[plain.Struct]:
    """Returns a new class whose structs hold those of another, and so on."""
    held: Any = int
    for _ in range(depth):
        fields = [("first", held), ("others", list[held], []), ("by_name", dict[str, held], {})]
        held = plain.defstruct("Level", fields, omit_defaults=True)
    made: type[plain.Struct] = held
    return made


def _tree(depth: int) -> Any:
    if depth == 0:
        return 7
    below = _tree(depth - 1)
    return {"first": below, "others": [below], "by_name": {"x": below}}


def _at_once(call: Callable[[], Any]) -> list[Any]:
    """Returns what `call` returns in each of several threads that begin together."""
    barrier = Barrier(THREADS, timeout=30)

    def run(_: int) -> Any:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


@pytest.mark.parametrize("strict", [True, False])
def test_json_is_read(strict: bool) -> None:
    text = plain.json.encode(_tree(4))
    for _ in range(ROUNDS):
        of = _nested(4)
        found = _at_once(lambda of=of: plain.json.decode(text, type=of, strict=strict))
        assert [plain.json.encode(each) for each in found] == [text] * THREADS


@pytest.mark.parametrize("strict", [True, False])
def test_values_are_converted(strict: bool) -> None:
    tree = _tree(4)
    for _ in range(ROUNDS):
        of = _nested(4)
        found = _at_once(lambda of=of: plain.convert(tree, of, strict=strict))
        assert [plain.to_builtins(each) for each in found] == [tree] * THREADS


def test_structs_are_written_compared_and_changed() -> None:
    tree = _tree(2)
    for _ in range(ROUNDS):
        of = _nested(2)
        struct = plain.convert(tree, of)

        def use(struct: Any = struct) -> Any:
            changed = plain.structs.replace(struct, others=[])
            return plain.json.encode(struct), changed.others, changed == struct

        assert _at_once(use) == [(plain.json.encode(tree), [], False)] * THREADS


class Node(plain.Struct):
    """One that holds others of its class."""

    name: str
    left: Node | None = None
    right: Node | None = None


def test_a_class_that_holds_itself_is_read() -> None:
    text = b'{"name":"a","left":{"name":"b","left":{"name":"c"}},"right":{"name":"d"}}'
    found = _at_once(lambda: plain.json.decode(text, type=Node))
    assert [each.left.left.name + each.right.name for each in found] == ["cd"] * THREADS
