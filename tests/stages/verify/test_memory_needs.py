"""Memory is predicted from shapes alone, and a device that is too small is told so in one line."""

import pytest

from kernelwright.kernelbench.errors import EnvironmentFault
from kernelwright.stages.verify.memory_needs import Needs, input_bytes, predict, require
from tests.stages.verify.tasks import task


def test_the_need_grows_with_the_arguments_and_nothing_is_allocated() -> None:
    small, large = (predict(task("torch.softmax(x, -1)", f"torch.randn({n}, 4096)"), "cpu") for n in (2**10, 2**20))
    assert small is not None
    assert large is not None
    assert large.bytes == pytest.approx(1024 * small.bytes, rel=0.01)
    # Terabytes would be needed if anything were allocated.
    assert predict(task("x * 2", "torch.randn(2**22, 2**20)"), "cpu") is not None
    assert input_bytes(task("x * 2", "torch.randn(2**22, 2**20)"), "cpu") == 2**44


def test_the_parts_add_up_and_count_intermediates() -> None:
    plain = predict(task("x.sum()", "torch.randn(2**20)"), "cpu")
    work = predict(task("(x.exp() * x.sin()).sum()", "torch.randn(2**20)"), "cpu")
    assert plain is not None
    assert work is not None
    assert sum(plain.parts.values()) == plain.bytes
    assert plain.parts["inputs"] == work.parts["inputs"]
    assert work.parts["outputs"] >= plain.parts["outputs"] + 2 * 4 * 2**20


def test_code_that_needs_values_is_not_predicted() -> None:
    assert predict(task("x[: int(x.abs().sum())]", "torch.randn(8)"), "cpu") is None
    require(None, "cpu")


def test_a_device_that_is_too_small_is_told_what_is_needed() -> None:
    needs = Needs(93 * 2**40, {"inputs": 24 * 2**40, "outputs": 21 * 2**40, "oracle": 48 * 2**40})
    with pytest.raises(
        EnvironmentFault, match=r"needs about 9.52e\+04 GiB on cpu \(inputs 2.46e\+04, .*the device has"
    ):
        require(needs, "cpu")
    require(Needs(1, {"inputs": 1}), "cpu")
