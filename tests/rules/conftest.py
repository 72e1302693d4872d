"""Every rule holds on both engines."""

from importlib.util import find_spec

import pytest


@pytest.fixture(params=["reference", "fast"])
def engine(request: pytest.FixtureRequest) -> str:
    if request.param == "fast" and find_spec("sim.engine") is None:
        pytest.skip("the compiled engine is not there")
    return request.param
