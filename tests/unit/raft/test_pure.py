"""The core is a pure object: what it imports, and that time and randomness are handed in."""

import ast
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from rocketmq_tw.raft import core as room
from rocketmq_tw.raft.core.config import RaftConfig
from rocketmq_tw.raft.core.member_state import HardState
from rocketmq_tw.raft.core.raft_core import RaftCore
from tests.support.raft_store import MemoryStore

#: Modules of the core may import these and each other, nothing else.
ALLOWED = {
    "bisect": {"bisect_right"},
    "collections.abc": {"Callable", "Iterable", "Mapping", "Sequence"},
    "enum": {"Enum", "IntEnum"},
    # The type: who makes a core hands one in.
    "random": {"Random"},
    "rocketmq_tw.structs": {"msgspec"},
    "struct": {"Struct"},
    "typing": {"Any", "NamedTuple", "Protocol"},
    "zlib": {"crc32"},
}
CORE = Path(room.__path__[0])
SOURCES = sorted(CORE.glob("**/*.py"))
#: No reactor, no clock, no socket, and nothing that would bring one in.
BLOCKED = (
    *("twisted", "zope", "asyncio", "concurrent", "threading", "_thread", "multiprocessing"),
    *("time", "datetime", "_datetime", "sched", "signal"),
    *("socket", "_socket", "ssl", "select", "selectors", "http", "urllib", "subprocess"),
)


@pytest.mark.parametrize("source", SOURCES, ids=[path.stem for path in SOURCES])
def test_a_module_of_the_core_imports_only_what_is_allowed(source: Path) -> None:
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            assert {name.name for name in node.names} <= ALLOWED.keys(), source.name
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None and node.level == 0, source.name
            if node.module.split(".")[:3] != ["rocketmq_tw", "raft", "core"]:
                names = {name.name for name in node.names}
                assert names <= ALLOWED.get(node.module, set()), (source.name, node.module)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            # Neither randomness nor files of its own, nor an import by another way.
            made = node.func.id
            assert made not in {"Random", "open", "__import__", "eval", "exec"}, source.name


def test_the_core_elects_where_no_reactor_clock_or_socket_can_be_had() -> None:
    """What the core stands on is loaded first, then every blocked module is out of reach."""
    modules = [f"rocketmq_tw.raft.core.{path.stem}" for path in SOURCES if path.stem != "__init__"]
    script = f"""
import sys
sys.path = {sys.path!r}
import importlib, random, struct, typing, zlib
from rocketmq_tw.structs import msgspec
for name in [*sys.modules]:
    if name.partition(".")[0] in {BLOCKED!r}:
        del sys.modules[name]
for name in {BLOCKED!r}:
    sys.modules[name] = None
for name in {modules!r}:
    importlib.import_module(name)
from rocketmq_tw.raft.core.config import RaftConfig
from rocketmq_tw.raft.core.raft_core import RaftCore
from rocketmq_tw.raft.core.member_state import HardState
class Empty:
    begin_index = end_index = -1
    snapshot = None
config = RaftConfig(self_id="n0", members=("n0",))
core = RaftCore(config, Empty(), HardState(), -1, random.Random(1))
while core.role.value != "LEADER":
    core.tick(core.next_deadline())
(entry,) = core.propose([b"hi"])
ready = core.ready()
assert ready.writes.entries == [entry]
core.advance()
assert core.commit_index == 0
print(sorted(name for name in sys.modules if name.startswith("rocketmq_tw")))
"""
    done = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # Structs are msgspec's, or have modules of their own where that cannot be had.
    below = ("rocketmq_tw.structs", "rocketmq_tw.interpreter", "rocketmq_tw.written")
    loaded = {name for name in ast.literal_eval(done.stdout) if not name.startswith(below)}
    assert loaded == {"rocketmq_tw", "rocketmq_tw.raft", "rocketmq_tw.raft.core", *modules}


def test_two_cores_with_one_randomness_do_the_same() -> None:
    config = RaftConfig(self_id="n0", members=("n0", "n1", "n2"))

    def deadlines() -> list[int]:
        core = RaftCore(config, MemoryStore(), HardState(), -1, Random(5))
        found = []
        for _ in range(50):
            core.tick(core.next_deadline())
            if core.ready() is not None:
                core.advance()
            found.append(core.next_deadline())
        return found

    assert deadlines() == deadlines()


def test_who_is_none_of_the_members_cannot_start() -> None:
    config = RaftConfig(self_id="n9", members=("n0", "n1", "n2"))
    with pytest.raises(ValueError, match="n9 is none of the members"):
        RaftCore(config, MemoryStore(), HardState(), -1, Random(1))


def test_ready_and_advance_take_turns() -> None:
    config = RaftConfig(self_id="n0", members=("n0", "n1", "n2"))
    core = RaftCore(config, MemoryStore(), HardState(), -1, Random(1))
    with pytest.raises(RuntimeError):
        core.advance()
    core.tick(0)
    assert core.ready() is not None
    with pytest.raises(RuntimeError):
        core.ready()
