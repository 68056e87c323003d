"""What tests of the store have in common."""

import pytest

from rocketmq_tw.files.memory import MemoryFiles


@pytest.fixture
def files() -> MemoryFiles:
    """Files in memory, without faults."""
    return MemoryFiles()
