"""Extensions that torch builds: the same switch, and whether a function is more than the library call that it wraps."""

SOURCE = '''
from torch.utils.cpp_extension import load_inline

TEXT = r"""
void scale(const at::Tensor& x, at::Tensor& y, float by) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = by * x.data_ptr<float>()[i];
}
at::Tensor product(at::Tensor x) { return at::mm(x, x); }
at::Tensor composed(at::Tensor x) { return at::relu(at::mm(x, x).add_(1)).clone(); }
at::Tensor epilogue(at::Tensor x) { auto y = at::mm(x, x); scale(y, y, 2); return y; }
at::Tensor prologue(at::Tensor x) { auto y = at::empty_like(x); scale(x, y, 2); return at::mm(y, y); }
void into(at::Tensor x, at::Tensor y) { scale(x, y, 3); }
void library_into(at::Tensor x, at::Tensor y) { at::mm_out(y, x, x); }
at::Tensor in_place(at::Tensor x) { scale(x, x, 2); return x; }
at::Tensor show(at::Tensor x) { auto y = at::zeros({1}); y.data_ptr<float>()[0] = x.data_ptr<float>()[0]; return y; }
struct Scaler { at::Tensor run(at::Tensor x) { auto y = at::empty_like(x); scale(x, y, 2); return y; } };
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("product", &product); m.def("composed", &composed); m.def("epilogue", &epilogue);
  m.def("prologue", &prologue); m.def("into", &into); m.def("library_into", &library_into);
  m.def("in_place", &in_place); m.def("show", &show);
  pybind11::class_<Scaler>(m, "Scaler").def(pybind11::init<>()).def("run", &Scaler::run);
}
"""
ext = load_inline("kernelwright_inspected", cpp_sources=[TEXT])

def get_inputs():
    return [torch.randn(24, 24)]

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
'''

CASES = {
    "return ext.product(x)": ("product", True, True),
    "return ext.composed(x)": ("composed", True, True),
    "ext.library_into(x, y); return y": ("library_into", True, True),
    "return ext.epilogue(x)": ("epilogue", True, False),
    "return ext.prologue(x)": ("prologue", True, False),
    "ext.into(x, y); return y": ("into", True, False),
    "return ext.in_place(x.clone())": ("in_place", True, False),
    "return ext.in_place(torch.mm(x, x))": ("in_place", True, False),
    "return ext.Scaler().run(x)": ("Scaler.run", True, False),
    "ext.show(x); return torch.mm(x, x)": ("show", False, False),
    "return torch.mm(x, x) + 0 * ext.show(x)": ("show", False, False),
    "return torch.mm(x, x).add_(0 * ext.product(x))": ("product", False, True),
}


def test_functions_are_switched_off_and_told_from_library_calls(inspect):
    """One test for all: torch takes half a minute to build an extension, once."""
    found = {}
    for forward in CASES:
        report = inspect(SOURCE + f"        {forward}\n")
        (name,) = report["launched"]
        assert report["backends"] == {name: "cpp"}
        found[forward] = name, report["ablated"][name], name in report["library_only"]
    assert found == CASES


def test_operators_inside_a_function_are_seen(inspect):
    assert inspect(SOURCE + "        return ext.product(x)\n")["operators"] == {"aten.mm.default": 1}
