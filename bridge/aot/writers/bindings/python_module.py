"""Writes a Python module that runs an exported model from its shared library, with NumPy alone."""

from __future__ import annotations

import keyword
from string import Template

import numpy as np

from .....compiler.errors import UnsupportedError
from ..libraries import file_name
from ..model import Entry, Model

_MODULE = Template('''\
"""The model $name, compiled ahead of time for $target by tfbridge $version. Needs NumPy and $library."""

import ctypes
import pathlib

import numpy as np

_FOLDER = pathlib.Path(__file__).resolve().parent
_LIBRARY = ctypes.CDLL(str(_FOLDER / "$library"))


def _function(name, result, *arguments):
    function = getattr(_LIBRARY, "${name}_shared_" + name)
    function.restype, function.argtypes = result, arguments
    return function


_POINTER = ctypes.c_void_p
_NEW, _FREE = _function("new", _POINTER), _function("free", None, _POINTER)
_ERROR = _function("error", ctypes.c_char_p, _POINTER)


class $title:
    """A model with memory of its own: use one for each thread."""

    def __init__(self):
        self._model = _NEW()
        if not self._model:
            raise MemoryError("$name: no memory is left")
        self._arrays = {}
$constants
    def __del__(self):
        if getattr(self, "_model", None):
            _FREE(self._model)

    def _check(self, status):
        if status:
            raise RuntimeError("$name: " + _ERROR(self._model).decode())

    def _array(self, name, dtype, dims):
        if name not in self._arrays:
            size = int(np.prod(dims)) * np.dtype(dtype).itemsize
            if not size:
                return np.empty(dims, dtype)
            address = _function(name, _POINTER, _POINTER)(self._model)
            memory = (ctypes.c_char * size).from_address(address)
            self._arrays[name] = np.frombuffer(memory, dtype).reshape(dims)
        return self._arrays[name]

    def _run(self, run, arguments, results, given):
        for (title, name, dtype, dims), value in zip(arguments, given):
            array = np.asarray(value)
            if array.shape != dims:
                raise ValueError(f"{title} has the shape {array.shape}, {dims} is wanted")
            if not np.can_cast(array.dtype, dtype, "same_kind"):
                raise TypeError(f"{title} is {array.dtype}, {np.dtype(dtype)} is wanted")
            self._array(name, dtype, dims)[...] = array
        self._check(_function(run, ctypes.c_int, _POINTER)(self._model))
        found = tuple(self._array(name, dtype, dims).copy() for _, name, dtype, dims in results)
        return found[0] if len(found) == 1 else found
$state$functions''')
_CONSTANTS = Template("""\
        memory = np.fromfile(_FOLDER / "$name.bin", np.uint8)
        room = np.empty(memory.size + 64, np.uint8)
        self._constants = room[-room.ctypes.data % 64 :][: memory.size]
        self._constants[:] = memory
        set_constants = _function("set_constants", None, _POINTER, _POINTER)
        set_constants(self._model, self._constants.ctypes.data)
""")
_STATE = Template('''
    def reset(self):
        """Gives the state its first values."""
        self._check(_function("reset", ctypes.c_int, _POINTER)(self._model))

    def get_state(self):
        """A copy of the state, as bytes."""
        memory = ctypes.create_string_buffer($bytes)
        self._check(_function("get_state", ctypes.c_int, _POINTER, _POINTER)(self._model, memory))
        return memory.raw

    def set_state(self, state):
        """Makes a copy of a state the present one."""
        if len(state) != $bytes:
            raise ValueError(f"a state has $bytes bytes, not {len(state)}")
        memory = ctypes.create_string_buffer(bytes(state), $bytes)
        self._check(_function("set_state", ctypes.c_int, _POINTER, _POINTER)(self._model, memory))
''')
_METHODS = ("reset", "get_state", "set_state")
_RUN = Template('''
    def $method(self$parameters):
        """$documentation"""
        return self._run("$run", $arguments, $results, [$given])
''')


def write_python(model: Model) -> str:
    """The text of NAME.py.

    Raises: UnsupportedError  arrays of a type that NumPy does not have.
    """
    for entry in model.entries:
        for spec in (*entry.arguments, *entry.results):
            if not hasattr(np, spec.dtype) and spec.dtype != "bool":
                raise UnsupportedError(f"python: NumPy has no type {spec.dtype}")
    return _MODULE.substitute(
        name=model.name,
        title=model.cpp_class.rsplit("::", 1)[-1],
        target=model.target,
        version=model.version,
        library=file_name(model.name, "shared", model.target),
        constants=_CONSTANTS.substitute(name=model.name) if model.constants_bytes else "",
        state=_STATE.substitute(bytes=model.state_offsets[-1]) if model.states else "",
        functions="".join(_method(model, entry) for entry in model.entries),
    )


def _method_name(entry: Entry) -> str:
    """The function's name, with an underscore behind it where Python or the class has that name."""
    name = entry.name or "run"
    return f"{name}_" if keyword.iskeyword(name) or name in _METHODS else name


def _method(model: Model, entry: Entry) -> str:
    names = [f"arg{k}" for k in range(len(entry.arguments))]
    call = model.call(entry)

    def listed(kind: str) -> str:
        specs = entry.arguments if kind == "arg" else entry.results
        titles = entry.argument_names if kind == "arg" else entry.result_names
        return repr(
            [
                (title or f"{kind}{k}", f"{call}_{kind}{k}", spec.dtype, tuple(spec.dims))
                for k, (title, spec) in enumerate(zip(titles, specs))
            ]
        )

    described = ", ".join(
        f"{name}: {title!r}, {spec.dtype}{list(spec.dims)}"
        for name, title, spec in zip(names, entry.argument_names, entry.arguments)
    )
    results = ", ".join(f"{spec.dtype}{list(spec.dims)}" for spec in entry.results)
    return _RUN.substitute(
        method=_method_name(entry),
        parameters="".join(f", {name}" for name in names),
        documentation=f"Arguments: {described or 'none'}. Results: {results or 'none'}.",
        run=entry.run_name,
        arguments=listed("arg"),
        results=listed("result"),
        given=", ".join(names),
    )
