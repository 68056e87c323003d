"""Whatever bytes a store has, the check ends with findings and never with an error."""

import random
import shutil
from pathlib import Path

import pytest

from rocketmq_tw.storecheck.check import check_store
from rocketmq_tw.storecheck.findings import Finding
from rocketmq_tw.storecheck.layout import Store
from tests.support.damaged_stores import DAMAGES, OTHER_DAMAGES, SIZES, change, make_store

SEEDS = range(60)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("random") / "store"
    make_store(root)
    for damage in DAMAGES + OTHER_DAMAGES:
        if damage.name in ("an epoch behind the log", "a timer log that leads to no record"):
            damage.do(root)
    return root


def spoil(path: Path, seed: random.Random) -> None:
    size = path.stat().st_size
    kind = seed.choice(("remove", "shorten", "lengthen", "bytes", "bytes", "zeros", "bytes"))
    if kind == "remove":
        path.unlink()
    elif kind == "shorten":
        path.write_bytes(path.read_bytes()[: seed.randrange(size + 1)])
    elif kind == "lengthen":
        path.write_bytes(path.read_bytes() + seed.randbytes(seed.randrange(50)))
    elif size:
        count = seed.choice((1, 4, 20, 600))
        change(
            path, seed.randrange(size), bytes(count) if kind == "zeros" else seed.randbytes(count)
        )


@pytest.mark.parametrize("number", SEEDS)
def test_a_store_with_random_damage_is_checked(number: int, base: Path, tmp_path: Path) -> None:
    seed = random.Random(number)
    root = Path(shutil.copytree(base, tmp_path / "store"))
    for _ in range(seed.choice((1, 2, 5))):
        spoil(seed.choice(sorted(path for path in root.rglob("*") if path.is_file())), seed)
    found: list[Finding] = []
    check_store(Store(str(root), SIZES), found.append)
    assert all("\n" not in finding.line for finding in found)
