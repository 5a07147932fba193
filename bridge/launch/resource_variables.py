"""TensorFlow's variable objects: their layout, checked once, and the functions that native code calls on them."""

from __future__ import annotations

import functools
from typing import BinaryIO

import numpy as np
import tensorflow as tf

from ..tf_internals import symbols as private

# TensorFlow's functions by their names in native code; `available` checks the layout of its objects.
_FUNCTIONS = {
    "handle_of_input": private.HANDLE_FROM_INPUT,
    "look_up": private.LOOK_UP_VARIABLE,
    "release": private.RELEASE_VARIABLE,
    "free_status": private.FREE_STATUS,
    "tensor_of": private.TENSOR_FROM_TENSOR,
    "set_tensor": private.TENSOR_TO_TENSOR,
    "is_unshared": private.TENSOR_IS_UNSHARED,
    "lock": private.LOCK,
    "unlock": private.UNLOCK,
    "lock_shared": private.LOCK_SHARED,
    "unlock_shared": private.UNLOCK_SHARED,
}
REFERENCES, IS_INITIALIZED, COPIES_ON_READ, MUTEX = 0x08, 0x18, 0x19, 0x20  # offsets in tensorflow::Var
TENSOR = MUTEX + private.mutex_bytes()
BUFFER_IN_TENSOR = 0x18
DATA_IN_BUFFER, RESOURCE_IN_HANDLE = 0x10, 0xC0


def imports() -> dict[str, int]:
    """Addresses of the functions, by the symbols that native code calls."""
    return {f"tfbridge_{name}": private.address(symbol) for name, symbol in _FUNCTIONS.items()}


@functools.cache
def available() -> bool:
    """Whether this TensorFlow's variables are laid out as the kernel expects.

    A variable is made and its object compared with what TensorFlow says of it. Memory is read through the system, so
    that a wrong address is an error and no crash.
    """
    if private.VARIABLES in private.missing():
        return False
    try:
        with private.plain_eager(), open("/proc/self/mem", "rb", buffering=0) as memory:
            return _is_as_expected(memory)
    except (OSError, OverflowError, tf.errors.OpError, AttributeError):
        return False


def _is_as_expected(memory: BinaryIO) -> bool:
    def word(address: int) -> int:
        memory.seek(address)
        return int.from_bytes(memory.read(8), "little")

    handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[3, 5], shared_name=private.ANONYMOUS)
    tf.raw_ops.AssignVariableOp(resource=handle, value=np.ones([3, 5], np.float32))
    value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)

    def data(tensor: int) -> int:
        return word(word(tensor + BUFFER_IN_TENSOR) + DATA_IN_BUFFER)

    variable = word(data(private.tensor_object(handle)) + RESOURCE_IN_HANDLE)
    flags = word(variable + IS_INITIALIZED)
    if word(variable) != private.address(private.VARIABLE_TABLE) + 16 or flags & 0xFFFF != 1:
        return False
    if word(variable + REFERENCES) != 1:  # the handle's
        return False
    if data(variable + TENSOR) != private.data_of(value) or word(variable + MUTEX) != 0:
        return False
    private.function(private.LOCK)(variable + MUTEX)
    locked = word(variable + MUTEX)
    private.function(private.UNLOCK)(variable + MUTEX)
    return locked != 0 and word(variable + MUTEX) == 0
