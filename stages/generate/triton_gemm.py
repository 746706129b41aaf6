"""A matrix product in Triton with the pointwise lines that follow it done on the accumulator, before it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from kernelwright.stages.generate.ir import Domain, FusedKernel, Load, Op
from kernelwright.stages.generate.triton_index import INT32_LIMIT, offset
from kernelwright.stages.generate.triton_statements import Statements, docstring, indent, pointer, signature
from kernelwright.stages.translate.graph import TensorSpec

SHARED_BYTES = 227 * 1024
"""Shared memory that one block may use on compute capability 9.0 (CUDA C++ Programming Guide, section 20.5)."""


@dataclass(frozen=True)
class Matrix:
    """A factor: the graph value, and the strides in elements of a batch, a row and a column."""

    source: str
    dtype: str
    strides: tuple[int, int, int]


@dataclass(frozen=True)
class Tiles:
    """Sizes of the tile that one program computes, and how far its loads run ahead."""

    m: int
    n: int
    k: int
    group: int
    """Tile rows that are walked together, so that their tiles of the right factor are still in L2."""
    stages: int
    precision: str
    """`ieee` or `tf32x3`: how float32 factors are multiplied. Halves are exact products either way."""

    def shared_bytes(self, element_bytes: int) -> int:
        """Shared memory that the pipelined tiles of both factors need; tf32x3 may keep a second, low part of each."""
        tile = self.m * self.k + self.k * self.n
        return self.stages * tile * element_bytes * (2 if self.precision == "tf32x3" and element_bytes == 4 else 1)


@dataclass(frozen=True)
class Gemm:
    """`left @ right`, [rows, depth] by [depth, cols], once for each batch; `epilogue` reads it as `product`."""

    left: Matrix
    right: Matrix
    batch: int
    rows: int
    cols: int
    depth: int
    product: str
    """Name of the graph value that the epilogue loads and that is never stored itself."""
    epilogue: FusedKernel
    """Pointwise over [..., cols], whose leading dimensions multiply to batch * rows."""

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.epilogue.name

    def step(self, specs: Mapping[str, TensorSpec]) -> FusedKernel:
        """The kernel as the module around it sees it: the factors are loads like others, here at depth 0."""
        space = self.epilogue.space
        left, right = specs[self.left.source], specs[self.right.source]
        rows, columns = (
            _over(space, (*left.stride[:-1], 0)),
            _over(space, (*right.stride[:-2], 0, self.right.strides[2])),
        )
        factors = (
            Load("left", self.left.source, left.dtype, rows, Domain.FULL),
            Load("right", self.right.source, right.dtype, columns, Domain.FULL),
        )
        return replace(self.epilogue, loads=(*factors, *(v for v in self.epilogue.loads if v.source != self.product)))

    @cached_property
    def _statements(self) -> Statements:
        return Statements(
            self.epilogue, {load.name: "acc" for load in self.epilogue.loads if load.source == self.product}
        )

    @property
    def inputs(self) -> tuple[str, ...]:
        """The graph values that are read, in the order of the kernel's arguments."""
        others = (source for source in self._statements.inputs if source != self.product)
        return tuple(dict.fromkeys((self.left.source, self.right.source, *others)))

    def constants(self, tiles: Tiles) -> dict[str, int]:
        """The compile-time arguments of the kernel."""
        blocks = {"BLOCK_M": tiles.m, "BLOCK_N": tiles.n, "BLOCK_K": tiles.k, "GROUP_M": tiles.group}
        return {"N": self.cols, "K": self.depth, **blocks}

    def source(self, tiles: Tiles, wide: bool = False) -> str:
        """The @triton.jit function for these tiles; `wide`: offsets are counted in 64 bits."""
        pointers = [pointer(value) for value in (*self.inputs, *self._statements.outputs)]
        head = signature(
            f"{self.name}_kernel", [*pointers, "M"], ["N", "K", "BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M"]
        )
        body = [*self._docstring(), *self._tile_of_program(wide), *self._product(tiles), *self._finish()]
        return "\n".join([*head, *indent(body)]) + "\n"

    def _docstring(self) -> list[str]:
        batched = " of every batch" if self.batch > 1 else ""
        formula = f"{self.product} = {_shown(self.left)} @ {_shown(self.right)}"
        summary = f"A BLOCK_M by BLOCK_N tile{batched} a program, depth in steps of BLOCK_K:"
        first, blank, *rest = docstring(self.epilogue, summary)
        return [first, blank, f"    {formula}", *rest]

    def _tile_of_program(self, wide: bool) -> list[str]:
        lines = [
            "tile = tl.program_id(0)",
            "tiles_n = tl.cdiv(N, BLOCK_N)",
            "# Programs run in order: walking GROUP_M tile rows together reuses each tile of the right factor from L2.",
            "group = tile // (GROUP_M * tiles_n)",
            "in_group = tile % (GROUP_M * tiles_n)",
            "height = tl.minimum(tl.cdiv(M, BLOCK_M) - group * GROUP_M, GROUP_M)",
            "m = (group * GROUP_M + in_group % height) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]",
            "n = (in_group // height) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]",
        ]
        if wide:
            lines += ["m = m.to(tl.int64)", "n = n.to(tl.int64)"]
        if self.batch > 1:
            lines.append("batch = tl.program_id(1)" + (".to(tl.int64)" if wide else ""))
        return lines

    def _product(self, tiles: Tiles) -> list[str]:
        ragged = self.depth % tiles.k != 0
        rows = "(m < M) & (k[None, :] < K)" if ragged else "m < M"
        columns = "(n < N) & (k[:, None] < K)" if ragged else "n < N"
        left = self._address(self.left, "m", "k[None, :]")
        right = self._address(self.right, "k[:, None]", "n")
        precision = f', input_precision="{tiles.precision}"' if self.left.dtype == "float32" else ""
        loop = [
            "k = start + tl.arange(0, BLOCK_K)",
            f"left = tl.load({left}, mask={rows}, other=0.0)",
            f"right = tl.load({right}, mask={columns}, other=0.0)",
            f"acc = tl.dot(left, right, acc{precision})",
        ]
        return [
            "acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)",
            "for start in range(0, K, BLOCK_K):",
            *indent(loop),
        ]

    def _address(self, matrix: Matrix, row: str, column: str) -> str:
        steps = zip(("batch", row, column), matrix.strides, strict=True)
        terms = [name if step == 1 else f"{name} * {step}" for name, step in steps if step != 0]
        return " + ".join([pointer(matrix.source), *terms])

    def _finish(self) -> list[str]:
        """The epilogue on the accumulator, then the stores."""
        lines = ["inside = (m < M) & (n < N)"] + (["row = batch * M + m"] if self.batch > 1 else [])
        lines += [self._load(load) for load in self.epilogue.loads if load.source != self.product]
        lines += [self._statements.op(line) for line in self.epilogue.body if isinstance(line, Op)]
        return lines + [self._statements.store(s, f"{self._row} * N + n", "inside") for s in self.epilogue.stores]

    @property
    def _row(self) -> str:
        return "row" if self.batch > 1 else "m"

    def _load(self, load: Load) -> str:
        by_row = offset(self._row, self.epilogue.space[:-1], load.strides[:-1])
        by_column = offset("n", self.epilogue.space[-1:], load.strides[-1:])
        mask = "inside" if by_row and by_column else "m < M" if by_row else "n < N" if by_column else ""
        return self._statements.load(load, " + ".join(filter(None, (by_row, by_column))), mask)

    @property
    def passes_int32(self) -> bool:
        """Whether an offset into a factor or the product can pass what 32 bits hold."""
        pairs = (self.rows * self.depth, self.depth * self.cols, self.rows * self.cols)
        return self.batch * max(pairs) >= INT32_LIMIT


def _over(space: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Strides aligned with the last dimensions of the space."""
    return ((0,) * len(space) + strides)[-len(space) :]


def _shown(matrix: Matrix) -> str:
    _, row, column = matrix.strides
    return f"{matrix.source}^T" if row == 1 and column != 1 else matrix.source
