"""What `--dry-run`, `--watch` and the hint at another kind of server know of each request."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from rocketmq_tw.admin.request_kinds import REQUESTS, Effect, ServerKind, effect_of, kind_for
from rocketmq_tw.wire.codes import RequestCode
from tests.support.jars import PROJECT

PACKAGE = PROJECT / "rocketmq_tw"
#: Whose requests commands send.
SOURCES = [
    *(PACKAGE / "admin").rglob("*.py"),
    *(PACKAGE / "client" / "admin").rglob("*.py"),
    *(
        PACKAGE / "client" / f"{name}.py"
        for name in ("commands", "controller", "name_server_commands", "preparing", "session")
    ),
]


def codes_in(path: Path) -> Iterator[RequestCode]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Attribute(value=ast.Name(id="RequestCode"), attr=name):
                yield RequestCode[name]


def test_every_request_that_commands_send_is_known() -> None:
    missing = {
        f"{code.name} ({path.relative_to(PROJECT)})"
        for path in SOURCES
        for code in codes_in(path)
        if code not in REQUESTS
    }
    assert not missing, "add its kind of server and its effect to admin/request_kinds.py"


def test_what_is_called_a_look_looks() -> None:
    names = ("GET_", "QUERY_", "VIEW_", "CONTROLLER_GET_")
    for code, (_, effect) in REQUESTS.items():
        name = RequestCode(code).name
        assert (effect is Effect.LOOKS) or not name.startswith(names), name


def test_what_is_not_known_counts_as_a_change_at_a_broker() -> None:
    assert effect_of(9999) is Effect.CHANGES
    assert kind_for(9999) is ServerKind.BROKER
