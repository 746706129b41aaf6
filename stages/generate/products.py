"""Finds matrix products in a plan and joins each with the pointwise kernel that alone reads its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from kernelwright.stages.generate.ir import Domain, FusedKernel, LibraryCall, Load, Op, Plan, Reduce, Store
from kernelwright.stages.generate.triton_gemm import Gemm, Matrix
from kernelwright.stages.translate.graph import Graph, Node, Ref, TensorSpec

LARGEST_GRID_Y = 65535
"""Batches are the grid's second dimension (CUDA C++ Programming Guide, technical specifications)."""
_DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Product:
    """A node that is a matrix product, plus a bias where the operator has one."""

    node: Node
    left: Matrix
    right: Matrix
    batch: int
    rows: int
    cols: int
    depth: int
    spec: TensorSpec
    bias: str | None
    bias_spec: TensorSpec | None

    def bias_strides(self, space: Sequence[int]) -> tuple[int, ...]:
        """Strides of the bias broadcast over `space`."""
        assert self.bias_spec is not None
        own = [0 if n == 1 else s for n, s in zip(self.bias_spec.shape, self.bias_spec.stride, strict=True)]
        return (0,) * (len(space) - len(own)) + tuple(own)


def join_products(plan: Plan, graph: Graph) -> tuple[FusedKernel | LibraryCall | Gemm, ...]:
    """The plan's steps with every product that can be one turned into a Gemm, at the place of its epilogue."""
    products = {}
    for step in plan.steps:
        found = as_product(step.node, graph) if isinstance(step, LibraryCall) else None
        if found:
            products[found.node.name] = found
    epilogues = {step.name: name for name in products for step in plan.kernels if _ends(step, products[name], graph)}
    # A kernel may end one product only: the last that it reads, since the others are needed before it.
    ended = {name: kernel for kernel, name in epilogues.items()}
    steps: list[FusedKernel | LibraryCall | Gemm] = []
    for step in plan.steps:
        if isinstance(step, FusedKernel) and ended.get(epilogues.get(step.name, "")) == step.name:
            steps.append(_gemm(products[epilogues[step.name]], step))
        elif isinstance(step, LibraryCall) and step.node.name in products:
            if step.node.name not in ended:
                steps.append(_gemm(products[step.node.name], _plain_epilogue(products[step.node.name])))
        else:
            steps.append(step)
    return tuple(steps)


def as_product(node: Node, graph: Graph) -> Product | None:
    """The node as a matrix product, or None when it is another operator or of a form that Gemm does not cover."""
    if node.kwargs or not isinstance(node.output, TensorSpec) or node.output.dtype not in _DTYPES:
        return None
    names = [arg.name if isinstance(arg, Ref) else None for arg in node.args]
    match node.op, names:
        case "aten.linear.default", [str(x), str(w)]:
            return _product(node, x, w, None, graph, transposed=True)
        case "aten.linear.default", [str(x), str(w), bias]:
            return _product(node, x, w, bias, graph, transposed=True)
        case "aten.addmm.default", [str(bias), str(a), str(b)]:
            return _product(node, a, b, bias, graph)
        case "aten.mm.default" | "aten.bmm.default" | "aten.matmul.default", [str(a), str(b)]:
            return _product(node, a, b, None, graph)
    return None


def _product(node: Node, a: str, b: str, bias: str | None, graph: Graph, transposed: bool = False) -> Product | None:
    left, right, output = graph.specs[a], graph.specs[b], graph.specs[node.name]
    if len(left.shape) < 2 or len(right.shape) not in (2, 3) or not output.contiguous or output.numel == 0:
        return None
    if {left.dtype, right.dtype} != {output.dtype}:
        return None
    if bias is not None and len(graph.specs[bias].shape) not in (1, len(output.shape)):
        return None
    batched = len(right.shape) == 3
    if batched and (len(left.shape) != 3 or left.shape[0] != right.shape[0]):
        return None
    if batched and left.shape[0] > LARGEST_GRID_Y:
        return None
    leading = 1 if batched else 0
    row_step = _one_step(left.shape[leading:-1], left.stride[leading:-1])
    if row_step is None:
        return None
    down, across = right.stride[-2:][::-1] if transposed else right.stride[-2:]
    return Product(
        node,
        Matrix(a, left.dtype, (left.stride[0] if batched else 0, row_step, left.stride[-1])),
        Matrix(b, right.dtype, (right.stride[0] if batched else 0, down, across)),
        left.shape[0] if batched else 1,
        prod(left.shape[leading:-1]),
        output.shape[-1],
        left.shape[-1],
        output,
        bias,
        None if bias is None else graph.specs[bias],
    )


def _one_step(sizes: Sequence[int], strides: Sequence[int]) -> int | None:
    """The stride of several dimensions taken as one, or None where they do not step evenly."""
    pairs = [(n, s) for n, s in zip(sizes, strides, strict=True) if n != 1]
    if any(s != n_next * s_next for (_, s), (n_next, s_next) in pairwise(pairs)):
        return None
    return pairs[-1][1] if pairs else 0


def _ends(kernel: FusedKernel, product: Product, graph: Graph) -> bool:
    """Whether the kernel can run on the product's accumulator, so that the product itself is never stored."""
    name = product.node.name
    returned = name in {value.name for value in graph.outputs if isinstance(value, Ref)}
    alone = not returned and graph.users[name] and set(graph.users[name]) <= set(kernel.covers)
    return bool(alone) and kernel.reduced == 0 and kernel.space == product.spec.shape


def _gemm(product: Product, kernel: FusedKernel) -> Gemm:
    epilogue = kernel if product.bias is None else _with_bias(kernel, product)
    return Gemm(
        product.left,
        product.right,
        product.batch,
        product.rows,
        product.cols,
        product.depth,
        product.node.name,
        replace(epilogue, covers=(product.node.name, *epilogue.covers)),
    )


def _plain_epilogue(product: Product) -> FusedKernel:
    """Stores the product as it is."""
    name, spec = product.node.name, product.spec
    load = Load("acc", name, spec.dtype, spec.stride, Domain.FULL)
    store = Store("acc", name, spec, Domain.FULL)
    return FusedKernel(f"product_{name}", spec.shape, 0, (load,), (), (store,), ())


def _with_bias(epilogue: FusedKernel, product: Product) -> FusedKernel:
    """The bias loaded and added before anything else reads the product."""
    assert product.bias is not None
    dtype = product.spec.dtype
    product_load = next(load for load in epilogue.loads if load.source == product.node.name)
    bias = Load(f"{product.node.name}_bias", product.bias, dtype, product.bias_strides(epilogue.space), Domain.FULL)
    total = Op(f"{product.node.name}_biased", "add", (product_load.name, bias.name), dtype, Domain.FULL)
    renamed = {load.name: total.name for load in epilogue.loads if load.source == product.node.name}
    others = tuple(load for load in epilogue.loads if load.source != product.node.name)
    return replace(
        epilogue,
        loads=(product_load, bias, *others),
        body=(total, *(_reading(line, renamed) for line in epilogue.body)),
        stores=tuple(replace(store, value=renamed.get(store.value, store.value)) for store in epilogue.stores),
    )


def _reading(line: Op | Reduce, renamed: Mapping[str, str]) -> Op | Reduce:
    """The line with its operands renamed."""
    if isinstance(line, Reduce):
        return replace(line, arg=renamed.get(line.arg, line.arg))
    return replace(line, args=tuple(renamed.get(a, a) if isinstance(a, str) else a for a in line.args))
