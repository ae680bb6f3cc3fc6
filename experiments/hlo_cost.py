"""Counts floating-point operations and bytes of the instructions of compiled programs."""

import functools
import math
import re
from collections.abc import Iterator

import numpy as np

from experiments import hlo

_SLICES = ("dynamic-slice", "gather", "slice")


def products(program: hlo.Program, i: hlo.Instruction) -> Iterator[tuple[hlo.Instruction, float]]:
    """Yields the matrix products and convolutions of an instruction with their operations."""
    if i.opcode == "fusion":
        for name in i.called:
            for inner in program.computations[name]:
                yield from products(program, inner)
    found = _flops(program, i)
    if found:
        yield i, found


def _flops(program: hlo.Program, i: hlo.Instruction) -> float:
    """Returns the floating-point operations of a product, and 0 for anything else."""
    if i.opcode == "dot" or i.target.startswith("__cublas"):
        found = re.search(r'lhs_contracting_dim\w*"?[=:]["{\[]+([^}\]]*)[}\]]', i.attributes)
        dims = [int(n) for n in re.findall(r"\d+", found[1])] if found else []
        lhs = program.shapes[i.operands[0]][0].sizes
        return 2.0 * i.shapes[0].elements * math.prod(lhs[n] for n in dims)
    if i.opcode == "convolution" or i.target.startswith("__cudnn$conv"):
        return _conv_flops(program, i)
    return 0.0


def _conv_flops(program: hlo.Program, i: hlo.Instruction) -> float:
    """Counts the operations of a convolution, without those on padding and dilation."""
    first, second = (program.shapes[name][0] for name in i.operands[:2])
    result = i.shapes[0]
    # A backward convolution is counted by the operands of its forward convolution.
    if "BackwardFilter" in i.target:
        images, kernel, result = first, result, second
    elif "BackwardInput" in i.target:
        images, kernel, result = result, second, first
    else:
        images, kernel = first, second
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", i.attributes)
    assert labels is not None
    groups = re.search(r"feature_group_count=(\d+)", i.attributes)
    batch_groups = re.search(r"batch_group_count=(\d+)", i.attributes)
    batch = images.sizes[labels[1].index("b")] // int(batch_groups[1] if batch_groups else 1)
    channels = images.sizes[labels[1].index("f")] // int(groups[1] if groups else 1)
    pairs = 1.0
    spatial = sorted(c for c in labels[1] if c.isdigit())
    for n, axis in enumerate(spatial):
        sizes = [s.sizes[labels[k].index(axis)] for k, s in ((1, images), (2, kernel), (3, result))]
        pairs *= _pairs(*sizes, _window(i.attributes, n))
    return 2.0 * batch * channels * kernel.sizes[labels[2].index("o")] * pairs


def _window(attributes: str, axis: int) -> tuple[int, int, int, int]:
    """Returns the stride, low padding, image dilation and kernel dilation along an axis."""
    found = re.search(r"window=\{([^}]*)\}", attributes)
    fields = dict(word.split("=") for word in found[1].split()) if found else {}

    def value(field: str, default: str) -> str:
        return fields[field].split("x")[axis] if field in fields else default

    low = value("pad", "0_0").split("_")[0]
    return (
        int(value("stride", "1")),
        int(low),
        int(value("lhs_dilate", "1")),
        int(value("rhs_dilate", "1")),
    )


@functools.cache
def _pairs(image: int, kernel: int, result: int, window: tuple[int, int, int, int]) -> int:
    """Counts the pairs of results and kernel elements along an axis that read a pixel."""
    stride, low, dilation, kernel_dilation = window
    place = np.arange(result)[:, None] * stride + np.arange(kernel) * kernel_dilation - low
    inside = (place >= 0) & (place < (image - 1) * dilation + 1) & (place % dilation == 0)
    return int(inside.sum())


def bytes_moved(program: hlo.Program, i: hlo.Instruction, on_chip: str = "") -> float:
    """Returns the bytes that an instruction reads from and writes to memory.

    If an array is only sliced, gathered from or updated in place, only the accessed part counts.

    Args:
        program: the program.
        i: one of its instructions.
        on_chip: text in the layout of arrays that are not in memory; empty for none.
    """

    def size(shape: hlo.Shape) -> float:
        return 0.0 if on_chip and on_chip in shape.layout else shape.nbytes

    def sizes(name: str) -> float:
        return sum(map(size, program.shapes.get(name, ())))

    if i.opcode in _SLICES:
        return 2 * sum(map(size, i.shapes))
    if i.opcode == "dynamic-update-slice":
        return 2 * sizes(i.operands[1])
    if i.opcode == "scatter":
        return 2 * sum(map(sizes, i.operands[len(i.operands) // 2 :]))
    written = sum(map(size, i.shapes))
    if i.opcode != "fusion":
        return written + sum(map(sizes, i.operands))
    body = program.computations[i.called[0]]
    parameters = [p for p in body if p.opcode == "parameter"]
    read = 0.0
    for p in parameters:
        place = int(p.arguments)
        users = [u for u in body if p.name in u.operands]
        whole = sizes(i.operands[place]) if place < len(i.operands) else 0.0
        parts = [_part(program, u, p.name) for u in users]
        touched = [part for part in parts if part is not None]
        read += min(whole, sum(touched)) if len(touched) == len(parts) else whole
    updated = [u for u in body if u.opcode == "dynamic-update-slice"]
    for u in updated:
        if u.shapes[0].sizes == i.shapes[0].sizes:
            written = min(written, sum(s.nbytes for s in program.shapes[u.operands[1]]))
    return read + written


def _part(program: hlo.Program, user: hlo.Instruction, name: str) -> float | None:
    """Returns the bytes of an array that one of its users accesses, or None for all of them."""
    if user.opcode in _SLICES and user.operands[0] == name:
        return sum(s.nbytes for s in user.shapes)
    if user.opcode == "dynamic-update-slice" and user.operands[0] == name:
        return 0.0
    return None
