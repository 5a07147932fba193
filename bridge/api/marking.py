"""Marks nodes as to be compiled, while the program creates them: `jit_scope`, and functions that `jit` traces."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..clustering import rewrite_graph
from ..dispatch import autograph_bypass
from ..options.marks import MARK, SCOPE, function_mark
from ..tf_internals import symbols as tfp


@contextlib.contextmanager
def jit_scope() -> Iterator[None]:
    """Within, every op that is created (in a tf.function or a TF1 graph) is to be compiled, however few they are.

    >>> import tensorflow as tf
    >>> import tfbridge
    >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ...     x = tf.compat.v1.placeholder(tf.float32, (2,))
    ...     with tfbridge.jit_scope():
    ...         y = x * 2.0 + 1.0
    ...     session.run(y, {x: [1, 2]})
    array([3., 5.], dtype=float32)

    Raises: TensorFlowMismatch  this TensorFlow has no hook for graph passes.
    """
    rewrite_graph.ensure_registered()
    with tfp.attribute_scope(MARK, SCOPE):
        yield


def marked(
    function: Callable[..., Any], options: Mapping[str, object], features: object = None, strict: bool = False
) -> Callable[..., Any]:
    """The function; a trace of it marks its graph as one to be compiled with these options.

    features: what AutoGraph is asked to do besides its usual work. strict: an op that is not compiled is an error.
    """
    mark = function_mark(options, strict)

    def traced(*args: object, **kwargs: object) -> Any:
        with tfp.attribute_afterwards(MARK, mark):
            wrapped = traced.__wrapped__  # type: ignore[attr-defined]
            # With features AutoGraph has to convert the function, and what it has converted is not converted again.
            bypasses_autograph = features is None and wrapped is not function
            converted = (
                autograph_bypass.converted(function, args, kwargs, True) if bypasses_autograph else None
            )
            if converted is None:
                return wrapped(*args, **kwargs)
            with tfp.converting():
                return converted(*args, **kwargs)

    return tfp.decorator(function, traced)
