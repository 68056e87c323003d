"""The program of docs/raft.md, run."""

import re
import subprocess
import sys
from pathlib import Path

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
