"""Some seconds of `tools/store_campaign.py`."""

import pytest

from tests.support.store_life import StoreLife


@pytest.mark.parametrize("seed", range(30))
def test_a_store_keeps_what_it_promised(seed: int) -> None:
    try:
        StoreLife(seed).run(6)
    except Exception as error:
        raise AssertionError(f"seed {seed}") from error
