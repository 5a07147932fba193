"""Factorizations, whose algorithms are the compiler's. Types below f32 are computed in f32."""

from __future__ import annotations

from collections.abc import Sequence

from ....compiler.builder.computation_builder import Operand
from ....compiler.builder.lib.matrices import real_type, unit, widened
from ....compiler.builder.lib.qr import qr
from ....compiler.builder.lib.svd import svd
from ....compiler.builder.lib.tridiagonal import tridiagonal
from ....compiler.errors import ShapeError
from ..nn.nn import narrowed
from ..node import Node
from ..operands.value_ranges import any_of
from ..registry import translates


@translates("Qr")
def qr_op(node: Node) -> Sequence[Operand]:
    b, type_ = node.b, node.element_type(0)
    if len(node.shape(0)) < 2:
        raise ShapeError(f"Input must have rank >= 2, got {list(node.shape(0))}")
    return [narrowed(b, o, type_) for o in qr(b, widened(b, node[0]), bool(node.attr("full_matrices")))]


@translates("SelfAdjointEigV2")
def self_adjoint_eig(node: Node) -> Sequence[Operand]:
    b, dims, type_ = node.b, node.shape(0), node.element_type(0)
    if len(dims) < 2 or dims[-1] != dims[-2]:
        raise ShapeError(f"Input matrix must be square, got {list(dims)}")
    with_vectors = bool(node.attr("compute_v"))
    both = b.self_adjoint_eig(widened(b, node[0]), with_vectors)
    values = b.get_tuple_element(both, 0)
    is_bad = any_of(b, b.ne(values, values), range(len(dims) - 1))
    node.bail_out_if(is_bad, "the decomposition was not successful")
    # zero is what TensorFlow gives for an output that its kernel does not make
    vectors = b.get_tuple_element(both, 1) if with_vectors else b.constant(0, type_)
    return narrowed(b, values, type_), narrowed(b, vectors, type_)


@translates("Svd")
def svd_op(node: Node) -> Sequence[Operand]:
    b, (*outer, rows, columns), type_ = node.b, node.shape(0), node.element_type(0)
    full, rank = bool(node.attr("full_matrices")), min(rows, columns)
    real = real_type(b, node[0])
    if 0 in node.shape(0):
        s = b.broadcast(b.constant(0, real), (*outer, rank))
        u, v = (unit(b, (*outer, n, n if full else rank), type_) for n in (rows, columns))
    else:
        s, u, v = svd(b, widened(b, node[0]), full)
    if not node.attr("compute_uv"):
        u = v = b.constant(0, type_)
    return narrowed(b, s, type_), narrowed(b, u, type_), narrowed(b, v, type_)


@translates("TridiagonalSolve")
def tridiagonal_solve(node: Node) -> Operand:
    dims, right = node.shape("diagonals"), node.shape("rhs")
    if dims[-2] != 3 or dims[-1] != right[-2] or dims[:-2] != right[:-2]:
        raise ShapeError(f"diagonals {list(dims)} do not go with the right-hand sides {list(right)}")
    if 0 in right:
        return node["rhs"]
    return tridiagonal(node.b, node["diagonals"], node["rhs"], bool(node.attr("partial_pivoting")))
