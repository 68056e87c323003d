"""What docs/raft.md tells to run, run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from rocketmq_tw.services.dledger import Options
from tests.support.ports import ReservedPort

PAGE = (Path(__file__).parents[2] / "docs" / "raft.md").read_text()


def test_the_program_runs_as_it_is_written(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    port = ReservedPort()
    program = program.replace("20911", str(port.number))
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stdout) == (0, "green\n"), done.stderr
    port.release()


def test_the_commands_name_three_members_of_one_group() -> None:
    commands = re.findall(r"^\.venv/bin/twistd .*?(?<!\\)$", PAGE, re.DOTALL | re.MULTILINE)
    ids = []
    for command in commands:
        words = shlex.split(command.replace("\\\n", " "))
        assert words[:4] == [".venv/bin/twistd", "-n", "--pidfile=", "rmq-dledger"]
        options = Options()
        options.parseOptions(words[4:])
        config = options.node_config()
        assert tuple(config.peers) == ("n0", "n1", "n2")
        ids.append(config.raft.self_id)
    assert ids == ["n0", "n1", "n2"]
