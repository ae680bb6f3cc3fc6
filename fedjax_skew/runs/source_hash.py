"""A hash of Python objects by their behaviour: source code, closures, fields and arrays."""

import ast
import dataclasses
import functools
import hashlib
import inspect
import sys
import sysconfig
import textwrap
import types
from typing import Any

import jax
import numpy as np

_LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def source_hash(value: Any) -> str:
    """Returns a hash that changes if the value or the code of which it consists changes.

    The hash of functions and classes includes their source code without comments and formatting,
    the values in their closures, and the globals that they use. Code of installed packages and of
    this package is identified by its name only.
    """
    digest = _Digest()
    digest.add(value)
    return digest.hexdigest()


class _Digest:
    def __init__(self) -> None:
        self._sha, self._seen = hashlib.sha256(), dict[int, Any]()

    def hexdigest(self) -> str:
        return self._sha.hexdigest()

    def add(self, value: Any) -> None:
        if isinstance(value, _PLAIN):
            self._write(type(value).__name__, repr(value))
            return
        if isinstance(value, (np.ndarray, np.generic, jax.Array)):
            array = np.asarray(value)
            self._write(str(array.dtype), str(array.shape))
            self._sha.update(np.ascontiguousarray(array).tobytes())
            return
        if id(value) in self._seen:
            self._write("seen")
            return
        self._seen[id(value)] = value  # Kept alive, so that its id is not reused.
        if isinstance(value, dict):
            self._write("dict", *sorted(map(str, value)))
            for key in sorted(value, key=str):
                self.add(value[key])
        elif isinstance(value, (list, tuple)):
            self._write(type(value).__name__, str(len(value)))
            for part in value:
                self.add(part)
        elif isinstance(value, (set, frozenset)):
            self._write("set", *sorted(map(repr, value)))
        elif isinstance(value, functools.partial):
            self.add((value.func, value.args, value.keywords))
        elif isinstance(value, types.MethodType):
            self.add((value.__func__, value.__self__))
        elif isinstance(value, types.FunctionType):
            self._add_function(value)
        elif isinstance(value, type):
            self._add_class(value)
        elif isinstance(value, types.ModuleType):
            self._write("module", value.__name__)
        elif hasattr(value, "__wrapped__"):  # A jitted function.
            self.add(value.__wrapped__)
        elif dataclasses.is_dataclass(value):
            self.add(type(value))
            for field in dataclasses.fields(value):
                if field.name != "parent":  # An internal field of flax modules.
                    self._write(field.name)
                    self.add(getattr(value, field.name))
        else:
            self._add_object(value)

    def _add_function(self, fn: types.FunctionType) -> None:
        self._write("function", fn.__module__, fn.__qualname__)
        if not _is_library(fn.__module__):
            self._write(_source(fn) or _bytecode(fn.__code__))
            names = _global_names(fn.__code__)
            self.add({name: fn.__globals__[name] for name in names if name in fn.__globals__})
        self.add((fn.__defaults__, fn.__kwdefaults__))
        self.add([_content(cell) for cell in fn.__closure__ or ()])

    def _add_class(self, cls: type) -> None:
        self._write("class", cls.__module__, cls.__qualname__)
        if _is_library(cls.__module__):
            return
        self._write(_source(cls))
        self.add(list(cls.__bases__))
        for name, member in sorted(vars(cls).items()):
            member = inspect.unwrap(getattr(member, "__func__", member))
            if isinstance(member, types.FunctionType) and not _is_library(member.__module__):
                self._write(name)
                self.add(member)

    def _add_object(self, value: Any) -> None:
        self.add(type(value))
        if not _is_library(type(value).__module__) and hasattr(value, "__dict__"):
            self.add(vars(value))
            return
        text = repr(value)
        self._write("" if " at 0x" in text else text)

    def _write(self, *words: str) -> None:
        for word in words:
            self._sha.update(f"{len(word)}:{word}".encode())


def _is_library(module: str | None) -> bool:
    root = (module or "").partition(".")[0]
    if root in ("fedjax_skew", "builtins"):
        return True
    spec = getattr(sys.modules.get(module or ""), "__spec__", None)
    file = (spec.origin if spec else None) or ""
    return file.startswith(_LIBRARIES) or "site-packages" in file


def _source(value: Any) -> str:
    """Returns source code without comments and formatting, or an empty text without source."""
    try:
        text = textwrap.dedent(inspect.getsource(value))
    except (OSError, TypeError):
        return ""
    try:
        return ast.unparse(ast.parse(text))
    except SyntaxError:  # A lambda inside a larger expression.
        return text.strip()


def _bytecode(code: types.CodeType) -> str:
    inner = [_bytecode(c) for c in code.co_consts if isinstance(c, types.CodeType)]
    values = [repr(c) for c in code.co_consts if not isinstance(c, types.CodeType)]
    return repr((code.co_code, code.co_names, values, inner))


def _global_names(code: types.CodeType) -> list[str]:
    names = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            names |= set(_global_names(const))
    return sorted(names)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # The cell is still empty.
        return None
