"""What every test file shares: `gpu` tests skip where there is no device, and no example has a deadline."""

import contextlib
import signal

import pytest

# A shell starts what it runs in the background deaf to Ctrl-C, and so would be the processes that tests send one to.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A machine with a GPU and nothing installed has no hypothesis, and runs the tests marked `gpu` only.
with contextlib.suppress(ImportError):
    from hypothesis import settings

    # Time is not what a test is about: on a busy machine a first example may be slow, and a right test would fail.
    settings.register_profile("no_deadline", deadline=None)
    settings.load_profile("no_deadline")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
