"""A public class, type, function or constant has its name alone in the whole package, so that a
reader who meets it knows which one is meant (ARCHITECTURE.md)."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.support.jars import PROJECT

#: Each server's plugin has one, as twistd wants it.
OF_PLUGINS = {"Options", "makeService"}
#: Functions that are called by the name of their module too, as `settings.read`.
OF_MODULES = {"fields", "load", "main", "path", "read", "run"}
#: Rooms that say again, on purpose and for themselves, what others do.
SECOND_OPINIONS = ("formats", "storecheck")

Kind = type[ast.AST]


def public_names(*kinds: Kind) -> dict[str, list[str]]:
    """Returns the public names of the package at the top of a module, and where each stands."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in (PROJECT / "rocketmq_tw").rglob("*.py"):
        if path.name.endswith("_pb2.py"):
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, kinds) and not is_command(node):
                for name in names_of(node):
                    if not name.startswith("_"):
                        places[name].append(str(path.relative_to(PROJECT / "rocketmq_tw")))
    return places


def names_of(node: ast.AST) -> list[str]:
    """Returns the name that a definition makes; of an assignment the names of types, `LikeThis`."""
    match node:
        case ast.Assign(targets=targets):
            named = [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            named = [name]
        case _:
            return [getattr(node, "name", "_")]
    return [name for name in named if name[0].isupper() and not name.isupper()]


def constants() -> dict[str, list[str]]:
    """Returns the public constants, `LIKE_THIS`, at the top of a module, and where each stands."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in (PROJECT / "rocketmq_tw").rglob("*.py"):
        module = str(path.relative_to(PROJECT / "rocketmq_tw"))
        if path.name.endswith("_pb2.py") or module.startswith(SECOND_OPINIONS):
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and not is_type_variable(node.value):
                for name in stored_names(node):
                    if name.isupper() and not name.startswith("_"):
                        places[name].append(module)
    return places


def stored_names(node: ast.Assign | ast.AnnAssign) -> list[str]:
    """Returns all names that an assignment makes, of a tuple too."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    inside = [each for target in targets for each in ast.walk(target)]
    return [each.id for each in inside if isinstance(each, ast.Name)]


def is_type_variable(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) in {"TypeVar", "ParamSpec"}


def is_command(node: ast.AST) -> bool:
    """Whether it is a command of click's, which is called by its command's name only."""
    return any("command" in ast.unparse(each) for each in getattr(node, "decorator_list", ()))


def test_each_public_class_and_type_has_a_name_of_its_own() -> None:
    names = public_names(ast.ClassDef, ast.Assign, ast.AnnAssign)
    twice = {name: found for name, found in names.items() if len(found) > 1}
    assert twice.keys() <= OF_PLUGINS, twice


def test_each_public_function_has_a_name_of_its_own() -> None:
    twice = {}
    for name, found in public_names(ast.FunctionDef, ast.AsyncFunctionDef).items():
        first = [each for each in found if not each.startswith(SECOND_OPINIONS)]
        if len(first) > 1 or len(found) - len(first) > 1:
            twice[name] = found
    assert twice.keys() <= OF_PLUGINS | OF_MODULES, twice


def test_each_public_constant_has_a_name_of_its_own() -> None:
    twice = {name: found for name, found in constants().items() if len(found) > 1}
    assert not twice, twice
