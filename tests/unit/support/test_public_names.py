"""A public class has its name alone in the whole package, so that a reader who meets it knows which
one is meant (ARCHITECTURE.md)."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.support.jars import PROJECT

#: Each server's plugin has one, as twistd wants it.
OF_PLUGINS = {"Options"}


def test_each_public_class_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in (PROJECT / "rocketmq_tw").rglob("*.py"):
        if path.name.endswith("_pb2.py"):
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(PROJECT)))
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert twice.keys() <= OF_PLUGINS, twice
