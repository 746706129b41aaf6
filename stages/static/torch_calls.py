"""Which calls of the library compute: functions, methods, operators and modules of torch, and `at::` in C++ text."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import libcst as cst

from kernelwright.stages.static.report import TorchCall
from kernelwright.stages.static.sites import Call, Sites
from kernelwright.stages.verify.foreign import library_calls, looks_foreign

_WORDS = """
matmul mm bmm addmm addbmm baddbmm addmv mv dot vdot inner outer einsum tensordot chain_matmul linear bilinear conv1d
conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution unfold fold softmax log_softmax softmin
layer_norm rms_norm group_norm batch_norm instance_norm local_response_norm normalize relu relu6 leaky_relu prelu
rrelu elu selu celu gelu silu mish softplus softsign sigmoid logsigmoid tanh hardtanh hardswish hardsigmoid threshold
glu tanhshrink softshrink hardshrink erf erfc exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square pow reciprocal sin
cos tan asin acos atan atan2 sinh cosh abs neg sign add sub mul div addcmul addcdiv remainder fmod floor ceil round
trunc clamp clip clamp_min clamp_max lerp where maximum minimum sum nansum mean nanmean prod max min amax amin argmax
argmin aminmax var std var_mean std_mean norm logsumexp cumsum cumprod cummax cummin logcumsumexp median quantile sort
argsort topk kthvalue unique bincount histc scatter scatter_add index_add index_select gather take masked_fill
masked_select masked_scatter cdist cosine_similarity pairwise_distance dropout embedding embedding_bag one_hot
interpolate grid_sample pixel_shuffle max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool2d lp_pool2d scaled_dot_product_attention
multi_head_attention_forward cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy
kl_div triplet_margin_loss hinge_embedding_loss fft ifft rfft irfft fft2 ifft2 solve inv det svd qr cholesky eigh triu
tril cross kron
"""
COMPUTES = frozenset(_WORDS.split())
"""Functions and methods of torch that compute, without a trailing underscore."""
_METHODS_ELSEWHERE = frozenset({"add", "fold", "sort", "dot", "round", "max", "min", "sum", "unique", "index_select"})
"""Methods of sets, lists and the like too: counted only where the receiver is an expression."""
_NOT_TENSORS = ("tl.", "triton.", "math.", "np.", "numpy.", "os.", "itertools.", "operator.", "statistics.")


def torch_calls(sites: Sites, own: Collection[str]) -> tuple[TorchCall, ...]:
    """All of them, by line. `own` are names of the candidate's kernels, which may be called as methods of a library."""
    modules = dict(_modules(sites))
    found = [
        TorchCall(name, call.place.line)
        for call in sites.calls
        for name in _of(call, modules)
        if call.method not in own
    ]
    found += [TorchCall("@", place.line) for place in sites.products]
    for text, place in sites.strings:
        if looks_foreign(text):
            found += [TorchCall(_as_written(name), place.line) for name in library_calls(text)]
    return tuple(sorted(set(found), key=lambda c: (c.line, c.name)))


def _of(call: Call, modules: dict[str, str]) -> Iterator[str]:
    if call.name in modules:
        yield modules[call.name]
    elif call.name.startswith("torch."):
        if _computes(call):
            yield call.name
    elif _is_tensor_method(call):
        yield f"Tensor.{call.method}"


def _computes(call: Call) -> bool:
    name = call.name
    # An overload (`torch.ops.aten.mm.default`) and an in-place form have the operator's name before them.
    parts = [part.rstrip("_") for part in name.split(".")]
    return bool(COMPUTES & set(parts[1:])) and not name.startswith(("torch.library.", "torch.utils."))


def _is_tensor_method(call: Call) -> bool:
    method = call.method.rstrip("_")
    if method not in COMPUTES or not isinstance(call.node.func, cst.Attribute):
        return False
    if not call.name:
        return True
    return method not in _METHODS_ELSEWHERE and not call.name.startswith(_NOT_TENSORS) and "." in call.name


def _modules(sites: Sites) -> Iterator[tuple[str, str]]:
    """`self.fc` and what it is, where a module of torch that computes is kept as an attribute."""
    for one in sites.assignments:
        if isinstance(one.value, cst.Call) and one.name.startswith("self."):
            name = sites.names.dotted(one.value.func)
            if name.startswith("torch.nn.") and name.rpartition(".")[2] not in ("Parameter", "Buffer", "Identity"):
                yield one.name, name


def _as_written(name: str) -> str:
    return name if name.startswith(("cublas", "cudnn", "cblas_", "dnnl_", "mkl_")) else f"at::{name}"
