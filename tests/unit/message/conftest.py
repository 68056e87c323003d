import json
from pathlib import Path
from typing import Any

import pytest

GOLDENS = sorted(Path(__file__).parent.joinpath("goldens").glob("*.json"))


@pytest.fixture(params=GOLDENS, ids=lambda path: path.stem)
def golden(request: pytest.FixtureRequest) -> Any:
    """What the stock jars of one version made (tools/java/CaptureMessage.java)."""
    return json.loads(request.param.read_bytes())
