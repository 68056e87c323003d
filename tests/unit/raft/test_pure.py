"""The core is a pure object: what it imports, and that time and randomness are handed in."""

import subprocess
import sys
from random import Random

import pytest

from rocketmq_tw.raft.core.config import RaftConfig
from rocketmq_tw.raft.core.core import RaftCore
from rocketmq_tw.raft.core.state import HardState
from rocketmq_tw.testing.raft_store import MemoryStore

FORBIDDEN = ("twisted", "time", "socket", "asyncio", "threading", "selectors")


def test_the_core_imports_no_reactor_clock_or_socket() -> None:
    script = (
        "import sys; before = set(sys.modules)\n"
        "import rocketmq_tw.raft.core.core\n"
        "print('\\n'.join(set(sys.modules) - before))"
    )
    loaded = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path = {sys.path!r}\n{script}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert "rocketmq_tw.raft.core.election" in loaded
    own = [name for name in loaded if name.startswith("rocketmq_tw.")]
    assert all(name.startswith("rocketmq_tw.raft") for name in own)
    assert not [name for name in loaded if name.split(".")[0] in FORBIDDEN[:1]]


def test_no_module_of_the_core_names_a_forbidden_one() -> None:
    from pathlib import Path

    import rocketmq_tw.raft.core as room

    for path in Path(room.__path__[0]).glob("*.py"):
        imported = {
            line.split()[1].split(".")[0]
            for line in path.read_text().splitlines()
            if line.startswith(("import ", "from "))
        }
        assert not imported & set(FORBIDDEN), path.name


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
