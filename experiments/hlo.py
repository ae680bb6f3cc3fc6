"""Parses the text of compiled programs (HLO) into computations and instructions.

The cost analysis of XLA counts every loop once, and it is not available for CUDA.
``experiments.roofline`` therefore counts operations in the text, loop by loop.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Mapping

_SHAPE = re.compile(r"\b(pred|token|[a-z]+\d+\w*)\[([\d,]*)\](?:\{([^}]*)\})?")
_HEAD = re.compile(r"^(?:ENTRY )?%?([\w.-]+) \(.*\{$")
_NAMED = re.compile(r"%([\w.-]+)")
_CALLED = re.compile(r"\b(?:calls|to_apply|body|condition)=%?([\w.-]+)")
_CONDITION = re.compile(r"\bcondition=%?([\w.-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_SCOPE = re.compile(r'op_name="(?:[^"]*/)?([^"/]*)/while"')
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')


@dataclasses.dataclass(frozen=True)
class Shape:
    """The type, sizes and layout of an array."""

    dtype: str
    sizes: tuple[int, ...]
    layout: str = ""

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.sizes)

    @property
    def nbytes(self) -> float:
        """The number of bytes, without padding."""
        digits = re.search(r"\d+", self.dtype)
        bits = int(digits[0]) if digits else 8 * (self.dtype == "pred")
        return self.elements * bits / 8


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a computation; ``arguments`` is the text between its parentheses."""

    name: str
    opcode: str
    shapes: tuple[Shape, ...]
    arguments: str
    attributes: str

    @functools.cached_property
    def operands(self) -> tuple[str, ...]:
        """The names of its operands."""
        return tuple(_NAMED.findall(self.arguments))

    @property
    def called(self) -> tuple[str, ...]:
        """The computations that it calls; for a ``while``, its body and its condition."""
        branches = _BRANCHES.search(self.attributes)
        if branches:
            return tuple(_NAMED.findall(branches[1]))
        return tuple(_CALLED.findall(self.attributes))

    @property
    def scope(self) -> str:
        """The name scope of a ``while`` in the source, such as ``steps``."""
        found = _SCOPE.search(self.attributes)
        return re.sub(r".*\(|\)+$", "", found[1]) if found else ""

    @property
    def cycles(self) -> int | None:
        """The compiler's own estimate of cycles, which exists on TPUs."""
        found = _CYCLES.search(self.attributes)
        return int(found[1]) if found else None

    @property
    def target(self) -> str:
        """The target of a custom call."""
        found = re.search(r'custom_call_target="([^"]*)"', self.attributes)
        return found[1] if found else ""


@dataclasses.dataclass(frozen=True)
class Program:
    """Computations by name, and the name of the entry computation."""

    computations: Mapping[str, tuple[Instruction, ...]]
    entry: str

    @functools.cached_property
    def shapes(self) -> Mapping[str, tuple[Shape, ...]]:
        """The shapes of all instructions, whose names are unique in a program."""
        return {i.name: i.shapes for body in self.computations.values() for i in body}

    def trips(self, loop: Instruction) -> int | None:
        """Returns the trip count of a ``while``, if it is annotated or bounded by a constant."""
        found = _TRIPS.search(loop.attributes)
        if found:
            return int(found[1])
        condition = self.computations[_CONDITION.findall(loop.attributes)[0]]
        constants = {i.name: i.arguments for i in condition if i.opcode == "constant"}
        last = condition[-1]
        if last.opcode == "compare" and "direction=LT" in last.attributes:
            limit = constants.get(last.operands[1], "")
            return int(limit) if limit.isdigit() else None
        return None


def parse(text: str) -> Program:
    """Parses the text of a compiled program."""
    computations: dict[str, tuple[Instruction, ...]] = {}
    entry, name = "", ""
    lines: list[Instruction] = []
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            name, lines = head[1], []
            entry = name if line.startswith("ENTRY") else entry
        elif line.startswith("}"):
            computations[name] = tuple(lines)
        elif line.startswith("  ") and " = " in line:
            lines.append(_instruction(re.sub(r"/\*.*?\*/", "", line.strip())))
    return Program(computations, entry)


def _instruction(line: str) -> Instruction:
    name, _, rest = line.removeprefix("ROOT ").partition(" = ")
    end = _closing(rest) if rest.startswith("(") else rest.index(" ")
    opcode, _, rest_ = rest[end:].lstrip(" )").partition("(")
    stop = _closing("(" + rest_) - 1
    shapes = _shapes(rest[:end])
    return Instruction(name.lstrip("%"), opcode, shapes, rest_[:stop], rest_[stop:])


def _closing(text: str) -> int:
    """Returns the position of the parenthesis that closes the one at the start of a text."""
    depth = 0
    for place, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if not depth:
            return place
    return len(text)


def _shapes(text: str) -> tuple[Shape, ...]:
    return tuple(
        Shape(dtype, tuple(int(n) for n in sizes.split(",") if n), layout or "")
        for dtype, sizes, layout in _SHAPE.findall(text)
    )
