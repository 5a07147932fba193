"""Random TensorFlow programs as data: steps over a table of ops, with loops, branches, lists and variables.

A program is drawn by running it: a step that TensorFlow refuses, or that makes nothing finite of the sample inputs, is
drawn anew. So the table of ops needs no shape rules.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

MAX_ELEMENTS = 4096


@dataclasses.dataclass(frozen=True)
class Step:
    """One op: the number of the value that it makes, those of the values that it takes, a random number that its
    attributes come from, its bodies."""

    number: int
    op: str
    inputs: tuple[int, ...]
    seed: int = 0
    bodies: tuple[Program, ...] = ()


@dataclasses.dataclass(frozen=True)
class Program:
    """The arguments are values 0, 1, ...; each step makes one more. The results are the values of `outputs`."""

    steps: tuple[Step, ...]
    outputs: tuple[int, ...]


def lines(program: Program, indent: str = "") -> list[str]:
    """The text of a program; bodies stand below their step, indented."""
    result = []
    for step in program.steps:
        result.append(f"{indent}{step.number} = {step.op} {' '.join(map(str, step.inputs))} seed {step.seed}")
        for body in step.bodies:
            result += [f"{indent}  body", *lines(body, indent + "    ")]
    return [*result, f"{indent}return {' '.join(map(str, program.outputs))}"]


def parsed(text: Sequence[str]) -> Program:
    """The program of a text, of which lines may be missing. Raises: ValueError, KeyError, IndexError."""
    depth = min(map(_indent, text), default=0)
    steps: list[Step] = []
    outputs: tuple[int, ...] = ()
    at = 0
    while at < len(text):
        end = at + 1
        while end < len(text) and _indent(text[end]) > depth:
            end += 1
        words = text[at].split()
        if words[0] == "return":
            outputs = tuple(map(int, words[1:]))
        else:
            op, *inputs = words[2 : words.index("seed")]
            marks = [k for k in range(at + 1, end) if text[k].split() == ["body"]]  # also those within bodies
            level = min((_indent(text[k]) for k in marks), default=0)
            starts = [k for k in marks if _indent(text[k]) == level]
            bodies = tuple(parsed(text[a + 1 : b]) for a, b in zip(starts, [*starts[1:], end]))
            steps.append(Step(int(words[0]), op, tuple(map(int, inputs)), int(words[-1]), bodies))
        at = end
    return Program(tuple(steps), outputs)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _axis(x: Any, seed: int) -> int:
    return seed % x.shape.rank - (x.shape.rank if seed // 64 % 2 else 0)


def _mean(x: Any, like: Any) -> Any:
    """A small number of the type of `like` that depends on all of x."""
    real = tf.math.real(x) if x.dtype.is_complex else tf.cast(x, tf.float32)
    mean = tf.tanh(tf.reduce_mean(real))
    return tf.cast(_integers(mean * 3.0) if like.dtype.is_integer else mean, like.dtype)


def _distinct(x: Any, axis: int) -> Any:
    """Values that differ along an axis where they came from the same ones by other roundings."""
    shape = [1] * x.shape.rank
    shape[axis] = -1
    return _float(x) + tf.reshape(tf.cast(tf.range(x.shape[axis]), _float(x).dtype) / 64, shape)


def _permutation(x: Any, seed: int) -> list[int]:
    return random.Random(seed).sample(range(x.shape.rank), x.shape.rank)


def _factors(x: Any, seed: int) -> list[int]:
    count = int(np.prod(x.shape))
    choices = [[-1], [1, -1], [count, 1], *([d, -1] for d in range(2, 9) if count % d == 0)]
    return choices[seed % len(choices)]


def _like_numbers(x: Any, seed: int, low: int, high: int, count: int) -> Any:
    return tf.constant(np.random.default_rng(seed).integers(low, high, count).astype(np.int32))


def _slice(x: Any, seed: int) -> Any:
    draw = random.Random(seed)
    parts = []
    for d in x.shape:
        a, b = draw.randint(-d - 1, d + 1), draw.randint(-d - 1, d + 1)
        parts.append(
            draw.choice(
                [
                    slice(None),
                    slice(a, None),
                    slice(None, b),
                    slice(a, b),
                    slice(None, None, -1),
                    slice(a, b, draw.choice([-2, -1, 1, 2, 3])),
                    slice(None, None, 2),
                ]
            )
        )
    return x[tuple(parts)]


def _dynamic_slice(x: Any, n: Any, seed: int) -> Any:
    begin = tf.math.floormod(_integers(tf.reduce_max(n)), x.shape[0])
    return x[begin:] if seed % 2 else x[: begin + 1]


def _aside(x: Any) -> Any:
    """Values that a rounding error does not move over a whole number, where most functions jump."""
    return x + tf.cast(0.0137, x.dtype) if x.dtype.is_floating else x


def _integers(x: Any) -> Any:
    return tf.cast(tf.floor(_aside(x)), tf.int32) if x.dtype.is_floating else tf.cast(x, tf.int32)


def _like(y: Any, x: Any) -> Any:
    """y in the type of x."""
    return tf.cast(_integers(y) if x.dtype.is_integer else y, x.dtype)


def _indices(i: Any, size: int) -> Any:
    return tf.math.floormod(_integers(i), size)


def _scatter(x: Any, i: Any, seed: int) -> Any:
    rows = tf.reshape(_indices(i, x.shape[0]), [-1, 1])
    updates = tf.broadcast_to(_mean(i, x), [rows.shape[0], *x.shape[1:]])
    return (tf.tensor_scatter_nd_add, tf.tensor_scatter_nd_max)[seed % 2](x, rows, updates)


def _segments(x: Any, seed: int) -> Any:
    ids = _like_numbers(x, seed, -1 if seed % 3 == 0 else 0, 5, x.shape[0])
    ops = (tf.math.unsorted_segment_sum, tf.math.unsorted_segment_max, tf.math.unsorted_segment_mean)
    return ops[seed % len(ops)](x, ids, 5)


def _convolution(x: Any, seed: int) -> Any:
    draw = random.Random(seed)
    if 0 in x.shape:  # TensorFlow's result has the shape of the images
        return x
    image = tf.reshape(x, [1, x.shape[0], -1, 1])
    size = (draw.randint(1, 3), draw.randint(1, 3), 1, draw.randint(1, 4))
    taps = tf.constant(np.random.default_rng(seed).normal(size=size), x.dtype)
    stride, padding = draw.randint(1, 2), draw.choice(["SAME", "VALID"])
    if x.dtype.size < 4:  # of narrow images in bfloat16 TensorFlow's kernel leaves memory that nobody wrote
        stride = 1
    return tf.nn.conv2d(image, taps, stride, padding)[0]


def _pool(x: Any, seed: int) -> Any:
    image = tf.reshape(x, [1, x.shape[0], -1, 1])
    return (tf.nn.max_pool2d, tf.nn.avg_pool2d)[seed % 2](image, 2, 1 + seed // 2 % 2, "SAME")[0, ..., 0]


def _matrix(x: Any) -> Any:
    return tf.reshape(x, [x.shape[0], -1])


def _while(x: Any, n: Any, seed: int, body: Callable[..., Any]) -> Any:
    count = seed % 5 if seed % 2 else tf.math.floormod(_integers(tf.reduce_max(n)), 6)

    def step(i: Any, state: Any) -> Any:
        return i + 1, state - state // 2 + _mean(
            body(state, tf.fill([2], i)), state
        ) if state.dtype.is_integer else state * 0.5 + _mean(body(state, tf.fill([2], i)), state)

    stops = seed // 8 % 3 == 0 and not x.dtype.is_integer

    def goes_on(i: Any, state: Any) -> Any:
        more = i < count
        return tf.logical_and(more, tf.reduce_mean(state) < 5.25) if stops else more

    return tf.while_loop(goes_on, step, [0, x])[1]


def _collect(x: Any, n: Any, seed: int, body: Callable[..., Any]) -> Any:
    count = 1 + seed % 4
    results = tf.TensorArray(x.dtype, count, dynamic_size=bool(seed // 4 % 2), clear_after_read=False)

    def step(i: Any, state: Any, results: Any) -> Any:
        state = _mean(body(state, tf.fill([2], i)), state) + state
        return i + 1, state, results.write(i, state)

    return tf.while_loop(lambda i, *_: i < count, step, [0, x, results])[2].stack()


def _cond(x: Any, n: Any, seed: int, then: Callable[..., Any], other: Callable[..., Any]) -> Any:
    flag = tf.math.floormod(_integers(tf.reduce_max(n)), 2) > 0
    return tf.cond(flag, lambda: x + _mean(then(x, n), x), lambda: x - _mean(other(x, n), x))


def _cast(x: Any, seed: int) -> Any:
    return tf.cast(
        _aside(x), (tf.float32, tf.int32, tf.float64, tf.int64, tf.bfloat16, tf.float16, tf.uint8)[seed % 7]
    )


def _float(x: Any) -> Any:
    return x if x.dtype.is_floating else tf.cast(x, tf.float32)


# op: (number of inputs, function of inputs and seed)
OPS: dict[str, tuple[int, Callable[..., Any]]] = {
    **{
        name: (1, lambda x, seed, f=function: f(_float(x)))
        for name, function in {
            "exp": lambda x: tf.exp(tf.minimum(x, 3)),
            "tanh": tf.tanh,
            "sin": tf.sin,
            "sigmoid": tf.sigmoid,
            "erf": tf.math.erf,
            "sqrt": lambda x: tf.sqrt(tf.abs(x) + 0.25),
            "rsqrt": lambda x: tf.math.rsqrt(abs(x) + 0.5),
            "log1p": lambda x: tf.math.log1p(tf.abs(x)),
            "softplus": tf.nn.softplus,
            "gelu": tf.nn.gelu,
            "elu": tf.nn.elu,
            "relu": tf.nn.relu,
            "cos": tf.cos,
            "atan": tf.atan,
            "lgamma": lambda x: tf.math.lgamma(abs(x) + 1),
            "leaky_relu": tf.nn.leaky_relu,
            "expm1": lambda x: tf.math.expm1(tf.minimum(x, 3)),
            "swish": tf.nn.silu,
        }.items()
    },
    "square": (1, lambda x, seed: tf.square(x)),
    "negative": (1, lambda x, seed: -x),
    "abs": (1, lambda x, seed: tf.abs(x)),
    "sign": (1, lambda x, seed: tf.sign(_aside(x))),
    "cast": (1, _cast),
    "stop_gradient": (1, lambda x, seed: tf.stop_gradient(x)),
    "add": (2, lambda x, y, seed: x + _like(y, x)),
    "subtract": (2, lambda x, y, seed: x - _like(y, x)),
    "multiply": (2, lambda x, y, seed: x * _like(y, x)),
    "divide": (2, lambda x, y, seed: _float(x) / (tf.abs(_like(y, _float(x))) + 0.5)),
    "maximum": (2, lambda x, y, seed: tf.maximum(x, _like(y, x))),
    "where": (2, lambda x, y, seed: tf.where(_aside(x) > _like(y, x), x, _like(y, x) + 1)),
    "floormod": (2, lambda x, y, seed: tf.math.floormod(_integers(x), tf.abs(_integers(y)) + 1)),
    "bits": (2, lambda x, y, seed: tf.bitwise.bitwise_xor(_integers(x), _integers(y))),
    "mix": (2, lambda x, y, seed: x + _mean(y, x)),
    "reduce_sum": (1, lambda x, seed: tf.reduce_sum(x, _axis(x, seed), seed // 7 % 2 == 0)),
    "reduce_mean": (1, lambda x, seed: tf.reduce_mean(_float(x), _axis(x, seed), seed // 7 % 2 == 0)),
    "reduce_max": (1, lambda x, seed: tf.reduce_max(x, _axis(x, seed), seed // 7 % 2 == 0)),
    "reduce_all": (1, lambda x, seed: tf.cast(tf.reduce_all(_aside(x) > 0, _axis(x, seed)), tf.int32)),
    "variance": (1, lambda x, seed: tf.math.reduce_variance(_float(x), _axis(x, seed), True)),
    "logsumexp": (1, lambda x, seed: tf.reduce_logsumexp(_float(x), _axis(x, seed), True)),
    "softmax": (1, lambda x, seed: tf.nn.softmax(_float(x), _axis(x, seed))),
    "log_softmax": (1, lambda x, seed: tf.nn.log_softmax(_float(x))),
    "l2_normalize": (1, lambda x, seed: tf.math.l2_normalize(_float(x), _axis(x, seed), 0.1)),
    "argmax": (1, lambda x, seed: tf.argmax(_distinct(x, _axis(x, seed)), _axis(x, seed), tf.int32)),
    "cumsum": (1, lambda x, seed: tf.cumsum(x, _axis(x, seed), seed // 7 % 2 == 0, seed // 5 % 2 == 0)),
    "sort": (1, lambda x, seed: tf.sort(x, _axis(x, seed), "DESCENDING" if seed // 7 % 2 else "ASCENDING")),
    "top_k": (1, lambda x, seed: tf.math.top_k(x, 1 + seed % x.shape[-1], sorted=True)[0]),
    "reverse": (1, lambda x, seed: tf.reverse(x, [_axis(x, seed)])),
    "roll": (1, lambda x, seed: tf.roll(x, seed % 5 - 2, _axis(x, seed))),
    "transpose": (1, lambda x, seed: tf.transpose(x, _permutation(x, seed))),
    "reshape": (1, lambda x, seed: tf.reshape(x, _factors(x, seed))),
    "expand_dims": (1, lambda x, seed: tf.expand_dims(x, _axis(x, seed))),
    "squeeze": (1, lambda x, seed: tf.squeeze(x)),
    "tile": (1, lambda x, seed: tf.tile(x, [1 + (seed >> k) % 2 for k in range(x.shape.rank)])),
    "pad": (
        1,
        lambda x, seed: tf.pad(
            x,
            [[(seed >> k) % 3, (seed >> 2 * k) % 3] for k in range(x.shape.rank)],
            ("CONSTANT", "REFLECT", "SYMMETRIC")[seed % 3],
        ),
    ),
    "slice": (1, _slice),
    "dynamic_slice": (2, _dynamic_slice),
    "concat": (2, lambda x, y, seed: tf.concat([x, _like(y, x)], _axis(x, seed))),
    "stack": (1, lambda x, seed: tf.stack([x, -x, x * x], _axis(x, seed))),
    "split": (
        1,
        lambda x, seed: (
            tf.split(x, 1 + seed % x.shape[_axis(x, seed // 8)], _axis(x, seed // 8))[-1]
            if x.shape[_axis(x, seed // 8)] % (1 + seed % x.shape[_axis(x, seed // 8)]) == 0
            else x
        ),
    ),
    "gather": (2, lambda x, i, seed: tf.gather(x, _indices(i, x.shape[0]))),
    "scatter": (2, _scatter),
    "segments": (1, _segments),
    "one_hot": (1, lambda x, seed: tf.one_hot(_indices(x, 7), 5 + seed % 3)),
    "range": (1, lambda x, seed: tf.range(tf.size(x)) * (1 + seed % 3)),
    "shape": (1, lambda x, seed: tf.shape(x)),
    "fill": (1, lambda x, seed: tf.fill(tf.shape(x), tf.cast(1 + seed % 3, x.dtype))),
    "matmul": (
        2,
        lambda x, y, seed: (
            tf.matmul(
                _matrix(_float(x)),
                _matrix(_like(y, _float(x))),
                transpose_a=bool(seed % 2),
                transpose_b=bool(seed // 2 % 2),
            )
            * 0.25
        ),
    ),
    "gram": (1, lambda x, seed: tf.matmul(_float(x), _float(x), transpose_b=True) * 0.25),
    "dense": (
        1,
        lambda x, seed: (
            tf.matmul(
                _matrix(_float(x)),
                tf.constant(
                    np.random.default_rng(seed).normal(size=(int(np.prod(x.shape[1:])), 1 + seed % 9)),
                    _float(x).dtype,
                ),
            )
            * 0.5
        ),
    ),
    "einsum": (
        2,
        lambda x, y, seed: tf.einsum("ij,kj->ik", _matrix(_float(x)), _matrix(_like(y, _float(x)))),
    ),
    "band_part": (1, lambda x, seed: tf.linalg.band_part(x, seed % 3 - 1, seed // 3 % 3)),
    "convolution": (1, lambda x, seed: _convolution(_float(x), seed)),
    "pool": (1, lambda x, seed: _pool(_float(x), seed)),
    "random": (
        1,
        lambda x, seed: x + tf.cast(tf.random.stateless_uniform(tf.shape(x), [seed, 1]) * 2, x.dtype),
    ),
    "boolean_mask": (
        1,
        lambda x, seed: (
            _mean(tf.concat([tf.boolean_mask(x, _aside(x) > 0), tf.zeros([1], x.dtype)], 0), x)
            if x.shape.rank == 1
            else x
        ),
    ),
}
# op: (number of bodies, function of a value, an integer value, seed, bodies)
FLOW: dict[str, tuple[int, Callable[..., Any]]] = {
    "while": (1, _while),
    "collect": (1, _collect),
    "cond": (2, _cond),
}
VARIABLE_OPS = ("read", "assign_add", "assign")
SHAPES = (
    (),
    (1,),
    (3,),
    (7,),
    (16,),
    (2, 3),
    (4, 4),
    (5, 1),
    (8, 16),
    (3, 17),
    (2, 3, 4),
    (1, 5, 7),
    (0, 3),
    (31,),
    (6, 0),
)
TYPES = ("float32",) * 5 + ("int32", "float64", "int64", "float16", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Case:
    """How a program is run, the program, its arguments and variables as (type, shape, seed of the values)."""

    mode: str
    arguments: tuple[tuple[str, tuple[int, ...], int], ...]
    variables: tuple[tuple[str, tuple[int, ...], int], ...]
    program: Program

    def __str__(self) -> str:
        arrays = [
            f"{kind} {type_} {','.join(map(str, shape)) or '-'} {seed}"
            for kind, given in (("argument", self.arguments), ("variable", self.variables))
            for type_, shape, seed in given
        ]
        return "\n".join([f"mode {self.mode}", *arrays, *lines(self.program)]) + "\n"


def parsed_case(text: str) -> Case:
    """The case of a text. Raises: ValueError, KeyError, IndexError  it is none."""
    mode = "jit"
    arrays: dict[str, list[tuple[str, tuple[int, ...], int]]] = {"argument": [], "variable": []}
    body = []
    for line in text.splitlines():
        words = line.split()
        if words and words[0] == "mode":
            mode = words[1]
        elif words and words[0] in arrays:
            shape = () if words[2] == "-" else tuple(map(int, words[2].split(",")))
            arrays[words[0]].append((words[1], shape, int(words[3])))
        elif words:
            body.append(line)
    return Case(mode, tuple(arrays["argument"]), tuple(arrays["variable"]), parsed(body))


def array(type_: str, shape: Sequence[int], seed: int) -> np.ndarray:
    """Random values: of integer types -9 to 9, else normally distributed."""
    numbers, dtype = np.random.default_rng(seed), tf.as_dtype(type_)
    if dtype.is_integer:
        return np.asarray(numbers.integers(-9, 10, tuple(shape))).astype(dtype.as_numpy_dtype)
    return np.asarray(numbers.normal(size=tuple(shape))).astype(dtype.as_numpy_dtype)


def evaluate(
    program: Program,
    arguments: Sequence[Any],
    variables: Sequence[Any] = (),
    values: dict[int, Any] | None = None,
) -> list[Any]:
    """The program's results; it runs or builds a graph, as TensorFlow's mode is. values: gets every value."""
    values = {} if values is None else values
    values.update(enumerate(arguments))
    for step in program.steps:
        values[step.number] = run_step(step, [_value(values, k) for k in step.inputs], variables)
    return [_value(values, k) for k in program.outputs]


def _value(values: Mapping[int, Any], number: int) -> Any:
    """A value; where its step is missing, one before it."""
    return values[number] if number in values else values[max((k for k in values if k < number), default=0)]


def run_step(step: Step, inputs: Sequence[Any], variables: Sequence[Any]) -> Any:
    """What one step makes."""
    if step.op in FLOW:
        bodies = [lambda *args, body=body: evaluate(body, args, variables)[0] for body in step.bodies]
        return FLOW[step.op][1](*inputs, step.seed, *bodies)
    if step.op in VARIABLE_OPS:
        variable = variables[step.seed % len(variables)]
        if step.op == "assign_add":
            variable.assign_add(tf.fill(variable.shape, _mean(inputs[0], variable)))
        elif step.op == "assign":
            variable.assign(variable * 0.5 + _mean(inputs[0], variable))
        return variable.read_value()
    return OPS[step.op][1](*inputs, step.seed)


def draw_case(seed: int, mode: str, steps: int = 12) -> Case:
    """The case of a seed."""
    draw = random.Random(seed)
    arguments = [
        (draw.choice(TYPES), draw.choice(SHAPES), draw.randrange(100)) for _ in range(draw.randint(1, 3))
    ]
    arguments.append(("int32", (3,), draw.randrange(100)))
    variables = [("float32", draw.choice(SHAPES[:9]), draw.randrange(100)) for _ in range(draw.randint(0, 2))]
    program = _draw_program(
        draw,
        [tf.constant(array(*a)) for a in arguments],
        [tf.Variable(array(*v)) for v in variables],
        draw.randint(2, steps),
        2,
    )
    return Case(mode, tuple(arguments), tuple(variables), program)


def _draw_program(
    draw: random.Random, arguments: Sequence[Any], variables: Sequence[Any], steps: int, depth: int
) -> Program:
    """A program that these sample values were run through. depth: how far loops and branches may nest in it."""
    values = list(arguments)
    chosen: list[Step] = []
    for _ in range(8 * steps):
        if len(chosen) >= steps:
            break
        step = _draw_step(draw, values, variables, depth)
        try:
            value = run_step(step, [values[i] for i in step.inputs], variables)
        except (tf.errors.OpError, ValueError, TypeError, IndexError, ZeroDivisionError):
            continue
        if _is_usable(value):
            chosen.append(step)
            values.append(value)
    used = {i for step in chosen for i in step.inputs}
    ends = [k for k in range(len(arguments), len(values)) if k not in used] or [len(values) - 1]
    return Program(tuple(chosen), tuple(ends[-4:]))


def _draw_step(draw: random.Random, values: Sequence[Any], variables: Sequence[Any], depth: int) -> Step:
    def pick() -> int:
        return (
            draw.randrange(len(values)) if draw.random() < 0.3 else max(draw.choices(range(len(values)), k=2))
        )

    kind, number, seed = draw.random(), len(values), draw.randrange(1 << 12)
    if variables and kind < 0.1:
        return Step(number, draw.choice(VARIABLE_OPS), (pick(),), seed)
    if depth and kind < 0.2:
        op, x = draw.choice(sorted(FLOW)), pick()
        counts = [k for k, v in enumerate(values) if v.dtype.is_integer and v.shape.num_elements()]
        bodies = tuple(
            _draw_program(draw, [values[x], tf.fill([2], 1)], variables, draw.randint(1, 4), depth - 1)
            for _ in range(FLOW[op][0])
        )
        return Step(number, op, (x, draw.choice(counts)), seed, bodies)
    op = draw.choice(sorted(OPS))
    return Step(number, op, tuple(pick() for _ in range(OPS[op][0])), seed)


def _is_usable(value: Any) -> bool:
    if not isinstance(value, tf.Tensor) or value.shape.num_elements() > MAX_ELEMENTS:
        return False
    if value.dtype.is_integer:
        return bool(np.all(np.abs(value.numpy().astype(np.float64)) < 1e9))
    magnitude = np.abs(value.numpy().astype(np.float64)) if value.dtype.is_floating else np.inf
    return bool(np.all(magnitude < 1e4))
