from collections.abc import Iterator

import pytest

from kernelwright.stages.sandbox.pool import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """One sandbox for all tests of a session: starting it costs seconds, a fork of it milliseconds."""
    made = Zygote()
    yield made
    made.close()
