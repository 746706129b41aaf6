"""How alike problems are, from their stored text."""

from hypothesis import given
from hypothesis import strategies as st

from kernelwright.stages.translate.likeness import Traits, likeness

MLP = Traits(
    "layer_norm+linear+gelu[f32 a8xb9]#a385d89f76",
    "aten = torch.ops.aten\n\ndef forward(x, w):\n    y = aten.layer_norm(x, [512])\n    z = aten.view(y, [1, -1])\n"
    "    z = aten.linear(z, w)\n    z = aten.linear(aten.gelu(z), w)\n    return aten.add.Tensor(x, z)\n",
)
ALONE = Traits("linear[bf16 a8]#0123456789", "def forward(x, w):\n    return aten.linear(x, w)\n")
NOTHING = Traits("identity[-]#0123456789", "def forward():\n    return ()\n")

names = st.lists(st.sampled_from(["linear", "gelu", "softmax", "add.Tensor"]), max_size=6)
some = names.map(lambda called: Traits("", "\n".join(f"aten.{name}(x)" for name in called)))


def test_traits_are_read_off_the_text() -> None:
    assert MLP.operators == {"layer_norm": 1, "linear": 2, "gelu": 1, "add": 1}
    assert (MLP.dtype, MLP.shape) == ("f32", "a8xb9")
    assert (NOTHING.dtype, NOTHING.shape) == ("-", "")


def test_likeness_counts_calls() -> None:
    assert likeness(MLP, ALONE) == 1 / 5
    assert likeness(NOTHING, NOTHING) == 0.0


@given(some, some)
def test_likeness_is_a_share_symmetric_and_whole_only_for_the_same_operators(one: Traits, other: Traits) -> None:
    assert likeness(one, other) == likeness(other, one)
    assert 0.0 <= likeness(one, other) <= 1.0
    assert (likeness(one, other) == 1.0) == (one.operators == other.operators and bool(one.operators))
