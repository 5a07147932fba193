"""Functions of JAX in groups: each group is lowered to one module, and each of its functions gives some of its results.

A row is a function of the group's arguments; a table of names stands for the functions of those names in a module.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
from jax import lax, nn


@dataclasses.dataclass(frozen=True)
class Group:
    """Functions of the same arguments. `gradient`: of each, the gradient of its sum is compared too. `tolerance`
    is relative, and absolute in units of the largest element, with its reason where it is above 1e-5 in the row."""

    name: str
    arguments: tuple[Any, ...]
    functions: Mapping[str, Callable[..., Any]]
    gradient: bool = False
    tolerance: float = 1e-5


def named(module: Any, names: str) -> dict[str, Callable[..., Any]]:
    """The functions of a module that have these names."""
    return {name: getattr(module, name) for name in names.split()}


def of(module: Any, names: str, *chosen: int) -> dict[str, Callable[..., Any]]:
    """The same of a group of several arguments, on the chosen ones."""
    return {
        name: lambda *a, name=name: getattr(module, name)(*(a[k] for k in chosen)) for name in names.split()
    }


def normal(*dims: int, seed: int = 0) -> np.ndarray:
    """Random f32 numbers."""
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


def inside(low: float, high: float, *dims: int, seed: int = 0) -> np.ndarray:
    """Random f32 numbers of an interval."""
    return np.random.default_rng(seed).uniform(low, high, dims).astype(np.float32)


X, Y = normal(5, 7), normal(5, 7, seed=1)
POSITIVE, UNIT = inside(0.1, 4, 5, 7), inside(-0.9, 0.9, 5, 7)
V, W = normal(9), normal(9, seed=1)
N, M = (np.random.default_rng(s).integers(-50, 50, (4, 6)).astype(np.int32) for s in (2, 3))
COUNTS = np.abs(N) + 1
C = (normal(4, 5) + 1j * normal(4, 5, seed=1)).astype(np.complex64)
SQUARE = normal(6, 6) + 6 * np.eye(6, dtype=np.float32)
SPD = (SQUARE @ SQUARE.T).astype(np.float32)
IMAGE, FILTER = normal(2, 8, 8, 3), normal(3, 3, 3, 4)
ROWS = np.array([1, 4, 1, 0], np.int32)


def _pool(x: Any, operation: Any, start: Any) -> Any:
    return lax.reduce_window(x, start, operation, (1, 3, 2, 1), (1, 2, 2, 1), "SAME")


def _fixed_point(x: Any) -> Any:
    return lax.while_loop(
        lambda s: jnp.max(jnp.abs(s[1])) > 1e-2, lambda s: (s[0] + s[1], s[1] * 0.5), (x, x)
    )[0]


_UNARY = (
    "abs cbrt ceil cos exp exp2 expm1 fabs floor negative rint round sign sin sinc sinh cosh square tan tanh"
)
_GROUPS = [
    Group(
        "numpy unary",
        (X,),
        named(
            jnp,
            _UNARY + " arctan arcsinh deg2rad i0 nan_to_num signbit isnan isinf isfinite"
            " positive trunc radians degrees",
        ),
    ),
    Group(
        "numpy unary gradient",
        (X,),
        named(jnp, "cbrt cos exp exp2 expm1 sin sinc sinh cosh square tan tanh arctan arcsinh abs"),
        gradient=True,
        tolerance=2e-5,
    ),
    Group(
        "positive",
        (POSITIVE,),
        {
            **named(jnp, "log log10 log1p log2 sqrt reciprocal"),
            **named(lax, "rsqrt lgamma digamma"),
            **named(jsp.special, "gammaln entr"),
        },
        gradient=True,
        tolerance=1e-4,
    ),  # digamma's derivative is a polygamma series
    Group(
        "unit",
        (UNIT,),
        {
            **named(jnp, "arcsin arccos arctanh"),
            **named(lax, "erf erfc erf_inv"),
            **named(jsp.special, "ndtr log_ndtr i0e i1e i1 expit"),
        },
        gradient=True,
        tolerance=1e-4,
    ),  # arccos near its ends, and log_ndtr's series
    Group(
        "special",
        (POSITIVE, UNIT),
        {
            "betainc": lambda x, y: jsp.special.betainc(x, x + 1, jnp.abs(y)),
            "gammainc": lambda x, y: jsp.special.gammainc(x, jnp.abs(y) * 3),
            "zeta": lambda x, y: jsp.special.zeta(x + 1, 2),
            "xlogy": lambda x, y: jsp.special.xlogy(y, x),
            "xlog1py": lambda x, y: jsp.special.xlog1py(y, x),
            "betaln": lambda x, y: jsp.special.betaln(x, x + 1),
            "polygamma": lambda x, y: jsp.special.polygamma(1, x),
            "logit": lambda x, y: jsp.special.logit(jnp.abs(y)),
            "kl_div": lambda x, y: jsp.special.kl_div(x, x + 1),
            "rel_entr": lambda x, y: jsp.special.rel_entr(x, x + 1),
            "multigammaln": lambda x, y: jsp.special.multigammaln(x + 3, 2),
        },
        tolerance=1e-4,
    ),  # series that cancel
    Group(
        "numpy binary",
        (X, Y),
        named(
            jnp,
            "add subtract multiply divide maximum minimum fmax fmin arctan2 hypot "
            "copysign nextafter logaddexp logaddexp2 heaviside equal not_equal less "
            "less_equal greater greater_equal isclose float_power fmod remainder "
            "floor_divide true_divide ldexp".replace(" ldexp", ""),
        ),
    ),
    Group(
        "numpy binary gradient",
        (X, Y),
        named(jnp, "add subtract multiply divide maximum minimum arctan2 hypot logaddexp"),
        gradient=True,
    ),
    Group(
        "numpy reductions",
        (X,),
        {
            **named(
                jnp,
                "sum prod mean std var max min argmax argmin any all ptp median cumsum cumprod nansum nanmean "
                "nanmax nanmin count_nonzero nanstd",
            ),
            "average": lambda x: jnp.average(x, 0, jnp.arange(5.0)),
            "quantile": lambda x: jnp.quantile(x, 0.3, axis=1),
            "percentile": lambda x: jnp.percentile(x, jnp.array([20.0, 70.0])),
            "logsumexp": lambda x: jsp.special.logsumexp(x, 1),
            "cummax": lambda x: lax.cummax(x, 1),
            "cummin": lambda x: lax.cummin(x, 0, reverse=True),
            "cumlogsumexp": lambda x: lax.cumlogsumexp(x, 1),
            "sum axes": lambda x: jnp.sum(x, (0, 1), keepdims=True),
            "trapezoid": lambda x: jnp.trapezoid(x, axis=0),
            "norm": lambda x: jnp.linalg.norm(x, axis=1),
            "corrcoef": jnp.corrcoef,
            "cov": jnp.cov,
        },
    ),
    Group(
        "reduction gradient",
        (X,),
        {
            **named(jnp, "sum prod mean std var max min cumsum cumprod"),
            "logsumexp": lambda x: jsp.special.logsumexp(x, 1),
            "cummax": lambda x: lax.cummax(x, 1),
            "softmax": lambda x: nn.softmax(x) ** 2,
            "norm": lambda x: jnp.linalg.norm(x, axis=1),
            "median": jnp.median,
            "sort": lambda x: jnp.sort(x, 0) * jnp.arange(5.0)[:, None],
        },
        gradient=True,
        tolerance=1e-4,
    ),  # the derivative of prod divides
    Group(
        "numpy places",
        (X,),
        {
            **named(
                jnp,
                "transpose flip flipud fliplr rot90 ravel squeeze diagonal tril triu trace diff ediff1d "
                "atleast_3d",
            ),
            "roll": lambda x: jnp.roll(x, 3, 1),
            "tile": lambda x: jnp.tile(x, (2, 3)),
            "pad": lambda x: jnp.pad(x, 2),
            "pad edge": lambda x: jnp.pad(x, ((1, 2), (0, 1)), mode="edge"),
            "repeat": lambda x: jnp.repeat(x, 2, 1),
            "pad reflect": lambda x: jnp.pad(x, 2, mode="reflect"),
            "pad wrap": lambda x: jnp.pad(x, 2, mode="wrap"),
            "reshape": lambda x: x.reshape(7, 5),
            "moveaxis": lambda x: jnp.moveaxis(x[None], 0, 2),
            "swapaxes": lambda x: jnp.swapaxes(x, 0, 1),
            "expand_dims": lambda x: jnp.expand_dims(x, (0, 2)),
            "stack": lambda x: jnp.stack([x, -x], 1),
            "concatenate": lambda x: jnp.concatenate([x, x[:2]]),
            "vstack": lambda x: jnp.vstack([x, x]),
            "dstack": lambda x: jnp.dstack([x, x]),
            "split": lambda x: jnp.split(x, [2, 5], 1),
            "array_split": lambda x: jnp.array_split(x, 3, 1),
            "where": lambda x: jnp.where(x > 0, x, 0),
            "clip": lambda x: jnp.clip(x, -0.5, 0.5),
            "select": lambda x: jnp.select([x < -0.5, x > 0.5], [x, 2 * x], 7),
            "kron": lambda x: jnp.kron(x[:2], x[1:3]),
            "broadcast_to": lambda x: jnp.broadcast_to(x[:, :1], (2, 5, 3)),
            "rollaxis": lambda x: jnp.rollaxis(x, 1),
            "block": lambda x: jnp.block([[x, x], [x, x]]),
            "insert": lambda x: jnp.insert(x, 1, 5.0, axis=1),
            "delete": lambda x: jnp.delete(x, 2, axis=0),
            "append": lambda x: jnp.append(x, x, 0),
            "meshgrid": lambda x: jnp.meshgrid(x[0], x[:, 0]),
            "vander": lambda x: jnp.vander(x[0], 3),
            "diag": lambda x: jnp.diag(x[0], 1),
            "fill_diagonal": lambda x: jnp.fill_diagonal(x, 3.0, inplace=False),
            "slices": lambda x: (x[1:4:2, ::-1], x[..., None, 2], x[-1]),
        },
    ),
    Group(
        "sorting",
        (X, V),
        {
            "sort": lambda x, v: jnp.sort(x),
            "argsort": lambda x, v: jnp.argsort(x, 0),
            "lexsort": lambda x, v: jnp.lexsort((v > 0, v)),
            "sort stable": lambda x, v: lax.sort_key_val(v.astype(int), v),
            "top_k": lambda x, v: lax.top_k(x, 3),
            "approx": lambda x, v: lax.sort((x, -x), dimension=1, num_keys=2),
            "searchsorted": lambda x, v: jnp.searchsorted(jnp.sort(v), x),
            "digitize": lambda x, v: jnp.digitize(x, jnp.sort(v)),
            "unique": lambda x, v: jnp.unique(jnp.round(v), size=9),
            "partition": lambda x, v: jnp.sort(jnp.partition(v, 4)[:4]),
            "histogram": lambda x, v: jnp.histogram(x, 5)[0],
            "bincount": lambda x, v: jnp.bincount(jnp.abs(x).astype(int).ravel(), length=4),
            "interp": lambda x, v: jnp.interp(x, jnp.sort(v), v),
            "nonzero": lambda x, v: jnp.nonzero(v > 0, size=9),
            "argwhere": lambda x, v: jnp.argwhere(x > 1, size=5),
        },
    ),
    Group(
        "indexing",
        (X, ROWS),
        {
            "rows": lambda x, i: x[i],
            "take": lambda x, i: jnp.take(x, i, 1, mode="clip"),
            "take fill": lambda x, i: jnp.take(x, i * 3, 1, mode="fill"),
            "pairs": lambda x, i: x[i, i],
            "take_along_axis": lambda x, i: jnp.take_along_axis(x[:4], i[:, None], 1),
            "at add": lambda x, i: x.at[i].add(1.5),
            "at set": lambda x, i: x.at[:, 2:4].set(0),
            "at max": lambda x, i: x.at[i, i].max(0.3),
            "at mul": lambda x, i: x.at[i].multiply(2.0),
            "at min": lambda x, i: x.at[i, 1].min(-1.0),
            "one_hot": lambda x, i: nn.one_hot(i, 6),
            "segment_sum": lambda x, i: jax.ops.segment_sum(x[:4], i, 5),
            "dynamic_slice": lambda x, i: lax.dynamic_slice(x, (i[1], i[0]), (2, 3)),
            "dynamic_update_slice": lambda x, i: lax.dynamic_update_slice(x, x[:2, :3], (i[1], i[0])),
            "choose": lambda x, i: jnp.choose(i % 2, [x[:4, 0], x[:4, 1]], mode="clip"),
            "dynamic_index": lambda x, i: lax.dynamic_index_in_dim(x, i[2], 0),
            "segment_max": lambda x, i: jax.ops.segment_max(x[:4], i, 5),
        },
    ),
    Group(
        "indexing gradient",
        (X,),
        {
            "rows": lambda x: x[ROWS] ** 2,
            "pairs": lambda x: x[ROWS, ROWS] ** 2,
            "at add": lambda x: x.at[ROWS].add(x[:4]) ** 2,
            "at set": lambda x: x.at[1:3].set(0.0) ** 2,
            "slices": lambda x: x[1:4:2, ::-1] ** 2,
            "dynamic": lambda x: lax.dynamic_slice(x, (1, 2), (2, 3)) ** 2,
            "where": lambda x: jnp.where(x > 0, x, 0) ** 2,
            "pad": lambda x: lax.pad(x, 0.0, ((1, -1, 2), (0, 3, 0))) ** 2,
            "concatenate": lambda x: jnp.concatenate([x, x * x]) ** 2,
        },
        gradient=True,
    ),
    Group(
        "products",
        (X, Y),
        {
            "dot": lambda x, y: jnp.dot(x, y.T),
            "matmul": lambda x, y: x.T @ y,
            "vdot": jnp.vdot,
            "inner": jnp.inner,
            "outer": lambda x, y: jnp.outer(x[0], y[1]),
            "tensordot": lambda x, y: jnp.tensordot(x, y, [[0], [0]]),
            "einsum": lambda x, y: jnp.einsum("ij,ik->jk", x, y),
            "einsum diagonal": lambda x, y: jnp.einsum("ij,ij->i", x, y),
            "cross": lambda x, y: jnp.cross(x[:, :3], y[:, :3]),
            "convolve": lambda x, y: jnp.convolve(x[0], y[0]),
            "correlate": lambda x, y: jnp.correlate(x[0], y[0], "same"),
            "polyval": lambda x, y: jnp.polyval(x[0], y[0]),
            "multi_dot": lambda x, y: jnp.linalg.multi_dot([x, y.T, x]),
            "matrix_power": lambda x, y: jnp.linalg.matrix_power(x[:, :5], 3),
            "batched": lambda x, y: jnp.einsum("bi,bj->bij", x, y),
        },
        gradient=True,
    ),
    Group(
        "nn",
        (X,),
        {
            **named(
                nn,
                "celu elu gelu hard_sigmoid hard_swish hard_tanh leaky_relu log_sigmoid log_softmax relu relu6 "
                "selu sigmoid silu soft_sign softmax softplus standardize sparse_plus mish squareplus swish",
            )
        }
        | {
            "glu": lambda x: nn.glu(x[:, :6]),
            "gelu exact": lambda x: nn.gelu(x, approximate=False),
            "logmeanexp": lambda x: nn.logsumexp(x) - 3,
        },
        gradient=True,
        tolerance=5e-5,
    ),  # the derivative of standardize cancels: XLA's is as far from that in f64
    Group(
        "convolutions",
        (IMAGE, FILTER),
        {
            "conv": lambda x, w: lax.conv_general_dilated(
                x, w, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            ),
            "dilated": lambda x, w: lax.conv_general_dilated(
                x, w, (1, 1), [(1, 2), (0, 1)], (2, 1), (1, 2), dimension_numbers=("NHWC", "HWIO", "NHWC")
            ),
            "grouped": lambda x, w: lax.conv_general_dilated(
                x,
                w[:, :, :1, :3],
                (1, 1),
                "VALID",
                feature_group_count=3,
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            ),
            "transposed": lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"),
            "max pool": lambda x, w: _pool(x, lax.max, -jnp.inf),
            "sum pool": lambda x, w: _pool(x, lax.add, 0.0),
            "attention": lambda x, w: jax.nn.dot_product_attention(x, x * 0.5, x),
        },
        gradient=True,
        tolerance=2e-5,
    ),
    Group(
        "control",
        (X,),
        {
            "scan": lambda x: lax.scan(lambda c, t: (c * 0.5 + t, jnp.sin(c)), jnp.zeros(7), x),
            "map": lambda x: lax.map(lambda r: r @ r, x),
            "fori": lambda x: lax.fori_loop(0, 5, lambda i, v: v * 0.9 + i, x),
            "cond": lambda x: lax.cond(x.sum() > 0, lambda a: a * 2, lambda a: a - 1, x),
            "switch": lambda x: lax.switch(2, [jnp.sin, jnp.cos, jnp.tanh], x),
            "vmap": jax.vmap(lambda r: jnp.outer(r, r)),
            "associative_scan": lambda x: lax.associative_scan(jnp.multiply, x, axis=1),
        },
        gradient=True,
    ),
    Group(
        "loops",
        (X,),
        {
            "while": _fixed_point,
            "nested": lambda x: lax.fori_loop(
                0, 3, lambda i, a: lax.fori_loop(0, i, lambda j, b: b * 0.5 + j, a), x
            ),
        },
    ),
    Group(
        "integers",
        (N, M, COUNTS),
        {
            **of(
                jnp, "add subtract multiply bitwise_and bitwise_or bitwise_xor maximum minimum gcd lcm", 0, 1
            ),
            **of(jnp, "floor_divide remainder divmod right_shift fmod", 0, 2),
            **of(jnp, "bitwise_not abs sign sum prod cumsum sort bitwise_count", 0),
            **of(lax, "clz population_count", 0),
            "shift": lambda x, y, c: lax.shift_right_logical(x, c % 31),
            "pow": lambda x, y, c: lax.integer_pow(x, 3),
            "power": lambda x, y, c: x ** (c % 5),
            "matmul": lambda x, y, c: x @ y.T,
            "narrow": lambda x, y, c: (
                x.astype(jnp.int8) * y.astype(jnp.int8),
                x.astype(jnp.uint8) // (c.astype(jnp.uint8)),
                x.astype(jnp.int16),
            ),
            "packbits": lambda x, y, c: jnp.packbits(x > 0),
            "unpackbits": lambda x, y, c: jnp.unpackbits(c.astype(jnp.uint8)),
            "mean": lambda x, y, c: jnp.mean(x),
            "bits": lambda x, y, c: lax.bitcast_convert_type(x, jnp.float32),
            "logical": lambda x, y, c: (
                jnp.logical_and(x, y > 0),
                jnp.logical_or(x > 0, y > 0),
                jnp.logical_xor(x > 0, y > 0),
                jnp.logical_not(x),
            ),
            "tri": lambda x, y, c: jnp.tri(3, dtype=jnp.int32) + x[0, 0],
            "invert": lambda x, y, c: ~x,
            "average": lambda x, y, c: (x > y).sum(0),
        },
    ),
    Group(
        "complex",
        (C,),
        {
            **named(
                jnp,
                "abs angle conj real imag exp sin cos tan sinh cosh tanh sqrt square reciprocal sum prod mean "
                "cumsum negative isfinite log sign expm1 log1p",
            ),
            "matmul": lambda c: c @ c.T,
            "power": lambda c: c**3,
            "divide": lambda c: c / (c + 2),
            "vdot": lambda c: jnp.vdot(c, c),
            "fft": jnp.fft.fft,
            "ifft": jnp.fft.ifft,
            "fft2": jnp.fft.fft2,
            "compare": lambda c: (c == c, c != c.conj()),
            "fftshift": jnp.fft.fftshift,
            "build": lambda c: lax.complex(c.real, c.imag),
        },
        tolerance=3e-5,
    ),  # prod of twenty factors, tan near its poles
    Group(
        "fourier",
        (X,),
        {
            **named(jnp.fft, "rfft fft rfft2 fftn hfft"),
            "irfft": lambda x: jnp.fft.irfft(x.astype(jnp.complex64)),
            "dct": lambda x: jsp.fft.dct(x),
            "fftconvolve": lambda x: jsp.signal.fftconvolve(x[0], x[1]),
            "power": lambda x: jnp.abs(jnp.fft.rfft(x)) ** 2,
        },
    ),
    Group(
        "linear algebra",
        (SQUARE, SPD),
        {
            "cholesky": lambda a, s: jnp.linalg.cholesky(s),
            "solve_triangular": lambda a, s: jsp.linalg.solve_triangular(a, s, lower=True),
            "cho_solve": lambda a, s: jsp.linalg.cho_solve((jnp.linalg.cholesky(s), True), a),
            "solve_triangular t": lambda a, s: jsp.linalg.solve_triangular(a, s, trans=1),
            "solve": jnp.linalg.solve,
            "inv": lambda a, s: jnp.linalg.inv(a),
            "det": lambda a, s: jnp.linalg.det(a),
            "slogdet": lambda a, s: jnp.linalg.slogdet(a),
            "lu": lambda a, s: jsp.linalg.lu(a),
            "lu_solve": lambda a, s: jsp.linalg.lu_solve(jsp.linalg.lu_factor(a), s),
            "expm": lambda a, s: jsp.linalg.expm(a * 0.1),
            "lu batch": lambda a, s: lax.linalg.lu(jnp.stack([a, s])[:, :, :4]),
            "solve batch": lambda a, s: jnp.linalg.solve(jnp.stack([a, s]), jnp.stack([s, a])),
            "cholesky batch": lambda a, s: jnp.linalg.cholesky(jnp.stack([s, -s])),
            "qr": lambda a, s: jnp.linalg.qr(a[:, :4]),
            "qr complete": lambda a, s: jnp.linalg.qr(jnp.stack([a, s])[:, :, :4], mode="complete"),
            "qr complex": lambda a, s: jnp.linalg.qr(a[:4] + 1j * s[:4]),
            "toeplitz": lambda a, s: jsp.linalg.toeplitz(a[0]),
            "block_diag": lambda a, s: jsp.linalg.block_diag(a, s),
        },
        tolerance=1e-4,
    ),  # condition of the matrices
    Group(
        "decompositions",  # signs of vectors are anyone's choice: what does not depend on them
        (SQUARE, SPD),
        {
            "eigh": lambda a, s: (lambda w, v: (w, (v * jnp.sqrt(w)) @ v.T))(*jnp.linalg.eigh(s)),
            "eigh of the upper triangle": lambda a, s: jsp.linalg.eigh(s, lower=False)[0],
            "eigh complex": lambda a, s: jnp.linalg.eigvalsh(s + 1j * (a - a.T)),
            "svd": lambda a, s: (lambda u, d, v: (d, (u * d) @ v))(
                *jnp.linalg.svd(a[:4], full_matrices=False)
            ),
            "svd full": lambda a, s: (lambda u, d, v: jnp.abs(u[:, :4]))(*jnp.linalg.svd(a[:, :4])),
            "svd values": lambda a, s: jnp.linalg.svd(jnp.stack([a, s]), compute_uv=False),
            "pinv": lambda a, s: jnp.linalg.pinv(a[:4]),
            "rank": lambda a, s: jnp.linalg.matrix_rank(a[:, :1] * a[:1]),
            "lstsq": lambda a, s: jnp.linalg.lstsq(a[:, :3], s)[0],
            "tridiagonal_solve": lambda a, s: lax.linalg.tridiagonal_solve(a[0], s[1] + 9, a[2], s[:, :2]),
            "det gradient": lambda a, s: jax.grad(jnp.linalg.det)(a * 0.2),
            "eigh gradient": lambda a, s: jax.grad(lambda x: jnp.sum(jnp.linalg.eigh(x)[0] ** 2))(s),
            "svd gradient": lambda a, s: jax.grad(lambda x: jnp.linalg.norm(x, "nuc"))(a[:4]),
        },
        tolerance=1e-3,
    ),  # condition of the matrices
    Group(
        "eigenvalues",
        (SQUARE,),
        {
            "eigvals": lambda a: jnp.sort(jnp.abs(jnp.linalg.eigvals(a) - 1)),
            "eig": lambda a: (lambda w, v: jnp.real((v * w) @ jnp.linalg.inv(v)))(*jnp.linalg.eig(a)),
            "sqrtm": lambda a: jnp.real(jsp.linalg.sqrtm(a)),
        },
        tolerance=1e-3,
    ),  # condition of the matrix
    Group(
        "statistics",
        (X, POSITIVE),
        {
            "norm logpdf": lambda x, p: jsp.stats.norm.logpdf(x),
            "norm cdf": lambda x, p: jsp.stats.norm.cdf(x),
            "gamma logpdf": lambda x, p: jsp.stats.gamma.logpdf(p, 2.0),
            "beta logpdf": lambda x, p: jsp.stats.beta.logpdf(p / 5, 2.0, 3.0),
            "t logpdf": lambda x, p: jsp.stats.t.logpdf(x, 3.0),
            "poisson": lambda x, p: jsp.stats.poisson.logpmf(jnp.floor(p), 2.0),
            "cauchy": lambda x, p: jsp.stats.cauchy.logpdf(x),
            "laplace": lambda x, p: jsp.stats.laplace.cdf(x),
            "logistic": lambda x, p: jsp.stats.logistic.logpdf(x),
            "expon": lambda x, p: jsp.stats.expon.logpdf(p),
            "chi2": lambda x, p: jsp.stats.chi2.logpdf(p, 3.0),
            "uniform": lambda x, p: jsp.stats.uniform.logpdf(x, -1.0, 3.0),
            "pareto": lambda x, p: jsp.stats.pareto.logpdf(p + 1, 2.0),
            "bernoulli": lambda x, p: jsp.stats.bernoulli.logpmf(p > 1, 0.3),
        },
        tolerance=1e-4,
    ),
    Group(
        "random",
        (),
        {
            "uniform": lambda: jax.random.uniform(jax.random.PRNGKey(1), (5,)),
            "normal": lambda: jax.random.normal(jax.random.PRNGKey(2), (4, 3)),
            "randint": lambda: jax.random.randint(jax.random.PRNGKey(3), (6,), 0, 100),
            "permutation": lambda: jax.random.permutation(jax.random.PRNGKey(4), 9),
            "bernoulli": lambda: jax.random.bernoulli(jax.random.PRNGKey(5), 0.4, (7,)),
            "exponential": lambda: jax.random.exponential(jax.random.PRNGKey(6), (5,)),
            "categorical": lambda: jax.random.categorical(jax.random.PRNGKey(7), jnp.ones(4)),
            "truncated": lambda: jax.random.truncated_normal(jax.random.PRNGKey(8), -1, 1, (5,)),
            "gumbel": lambda: jax.random.gumbel(jax.random.PRNGKey(9), (5,)),
            "split": lambda: jax.random.split(jax.random.PRNGKey(10), 3),
            "laplace": lambda: jax.random.laplace(jax.random.PRNGKey(11), (5,)),
            "bits": lambda: jax.random.bits(jax.random.PRNGKey(12), (5,)),
            "arange": lambda: jnp.arange(5),
            "linspace": lambda: jnp.linspace(0, 1, 7),
            "logspace": lambda: jnp.logspace(0, 2, 4),
            "eye": lambda: jnp.eye(3),
            "hanning": lambda: jnp.hanning(8),
            "hamming": lambda: jnp.hamming(7),
            "kaiser": lambda: jnp.kaiser(6, 3.0),
            "bartlett": lambda: jnp.bartlett(5),
            "blackman": lambda: jnp.blackman(6),
            "indices": lambda: jnp.indices((2, 3)),
        },
    ),
]
_F64 = (
    "arcsin",
    "arctan",
    "cbrt",
    "cos",
    "cosh",
    "exp",
    "expm1",
    "sin",
    "sinh",
    "tan",
    "tanh",
    "sum",
    "mean",
    "var",
    "cumsum",
    "prod",
    "argmax",
    "sort",
    "transpose",
    "abs",
    "floor",
    "sign",
    "square",
)
_WIDE = [
    Group(
        "f64",
        (UNIT.astype(np.float64),),
        {
            **named(jnp, " ".join(_F64)),
            **named(nn, "softmax gelu silu logsumexp"),
            "matmul": lambda x: x @ x.T,
            "erf": lax.erf,
            "erf_inv": lax.erf_inv,
            "lgamma": lax.lgamma,
            "fft": jnp.fft.fft,
        },
        tolerance=1e-9,
    ),
    Group(
        "f64 gradient",
        (UNIT.astype(np.float64),),
        {
            **named(nn, "softmax gelu silu logsumexp"),
            "tanh": jnp.tanh,
            "matmul": lambda x: x @ x.T,
            "log1p": jnp.log1p,
            "var": jnp.var,
            "norm": jnp.linalg.norm,
        },
        gradient=True,
        tolerance=1e-9,
    ),
    Group(
        "c128",
        (C.astype(np.complex128),),
        {
            **named(jnp, "abs angle exp sin cos tanh sqrt log sum mean"),
            "matmul": lambda c: c @ c.T,
            "fft": jnp.fft.fft,
        },
        tolerance=1e-9,
    ),
    Group(
        "s64",
        (N.astype(np.int64) << 33,),
        {
            **named(jnp, "sum cumsum sort abs sign bitwise_not max argmin"),
            "divide": lambda n: n // 7,
            "shift": lambda n: n >> 3,
            "unsigned": lambda n: n.astype(jnp.uint64) % 1000003,
        },
    ),
]
_HALF = (
    "abs",
    "ceil",
    "cos",
    "exp",
    "expm1",
    "floor",
    "log1p",
    "sin",
    "sqrt",
    "square",
    "tanh",
    "sum",
    "mean",
    "max",
    "argmax",
    "cumsum",
    "sort",
)
_NARROW = [
    Group(
        kind,
        (np.abs(UNIT),),
        {
            **{n: (lambda x, n=n, k=kind: getattr(jnp, n)(x.astype(k))) for n in _HALF},
            "softmax": lambda x, k=kind: nn.softmax(x.astype(k)),
            "matmul": lambda x, k=kind: x.astype(k) @ x.astype(k).T,
            "gradient": lambda x, k=kind: jax.grad(lambda v: jnp.tanh(v).astype(jnp.float32).sum())(
                x.astype(k)
            ),
            "convert": lambda x, k=kind: x.astype(k).astype(jnp.int32),
        },
        tolerance=tolerance,
    )
    for kind, tolerance in (("bfloat16", 2e-2), ("float16", 2e-3))
]  # two units of the last place of the type

GROUPS: tuple[Group, ...] = (*_GROUPS, *_NARROW)
WIDE_GROUPS: tuple[Group, ...] = tuple(_WIDE)
"""Groups of 64-bit types, which JAX has when they are switched on."""
