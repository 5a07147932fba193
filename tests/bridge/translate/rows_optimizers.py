"""Rows of optimizer ops."""

from __future__ import annotations

from op_row import COMPLEXES, FLOATS, Content, Given, Random, row

R = Random
SLOT, POSITIVE, GRAD = Content(R((5, 3))), Content(R((5, 3), 0.5, 2)), R((5, 3))


def rate(value: float = 0.1) -> Given:
    """A scalar."""
    return Given(value)


row("ResourceApplyGradientDescent", SLOT, rate(), GRAD, types=f"{FLOATS} {COMPLEXES}")
row("ResourceApplyMomentum ResourceApplyKerasMomentum", SLOT, SLOT, rate(), GRAD, rate(0.9))
for nesterov in (False, True):
    row("ResourceApplyMomentum ResourceApplyKerasMomentum", SLOT, SLOT, rate(), GRAD, rate(0.9), types="float32",
        use_nesterov=nesterov)
    row("ResourceApplyAdam", SLOT, SLOT, POSITIVE, rate(0.9), rate(0.8), rate(), rate(0.9), rate(0.8), rate(1e-3), GRAD,
        types="float32 float64", use_nesterov=nesterov)
row("ResourceApplyAdam", Content(R((0, 3))), Content(R((0, 3))), Content(R((0, 3))), rate(0.9), rate(0.8), rate(),
    rate(0.9), rate(0.8), rate(1e-3), R((0, 3)), types="float32")
row("ResourceApplyAdamWithAmsgrad", SLOT, SLOT, POSITIVE, POSITIVE, rate(0.9), rate(0.8), rate(), rate(0.9), rate(0.8),
    rate(1e-3), GRAD, types="float32 float64")
row("ResourceApplyAdaMax", SLOT, SLOT, POSITIVE, rate(0.9), rate(), rate(0.9), rate(0.8), rate(1e-3), GRAD,
    types="float32 float64")
for update in (False, True):
    row("ResourceApplyAdagrad", SLOT, POSITIVE, rate(), GRAD, types="float32 float64", update_slots=update)
    row("ResourceApplyAdagradV2", SLOT, POSITIVE, rate(), rate(1e-3), GRAD, types="float32 float64",
        update_slots=update)
    row("ResourceApplyFtrl", SLOT, POSITIVE, SLOT, GRAD, rate(), rate(0.2), rate(0.3), rate(-0.5),
        types="float32 float64", multiply_linear_by_lr=update, tolerance=1e-4)
    row("ResourceApplyFtrlV2", SLOT, POSITIVE, SLOT, GRAD, rate(), rate(0.2), rate(0.3), rate(0.1), rate(-0.5),
        types="float32 float64", multiply_linear_by_lr=update, tolerance=1e-4)
row("ResourceApplyAdadelta", SLOT, POSITIVE, POSITIVE, rate(), rate(0.9), rate(1e-3), GRAD, types="float32 float64")
row("ResourceApplyRMSProp", SLOT, POSITIVE, SLOT, rate(), rate(0.9), rate(0.8), rate(1e-3), GRAD,
    types="float32 float64")
row("ResourceApplyCenteredRMSProp", SLOT, Content(R((5, 3), -0.1, 0.1)), POSITIVE, SLOT, rate(), rate(0.9), rate(0.8),
    rate(1e-3), GRAD, types="float32 float64")
row("ResourceApplyProximalGradientDescent", SLOT, rate(), rate(0.2), rate(0.3), GRAD, types="float32 float64")
row("ResourceApplyProximalAdagrad", SLOT, POSITIVE, rate(), rate(0.2), rate(0.3), GRAD, types="float32 float64")
row("ResourceApplyAdagradDA", SLOT, SLOT, POSITIVE, GRAD, rate(), rate(0.2), rate(0.3), Given(3, "int64"),
    types="float32 float64")
row("ResourceApplyAddSign ResourceApplyPowerSign", SLOT, SLOT, rate(), rate(0.7), rate(0.5), rate(0.9), GRAD,
    types="float32 float64")


# -- on rows

ROWS = R((3, 3))
for numbers in (Given([4, 0, 2], "int32"), Given([1, 3, 0], "int64")):
    row("ResourceSparseApplyProximalGradientDescent", SLOT, rate(), rate(0.2), rate(0.3), ROWS, numbers,
        types="float32 float64")
    row("ResourceSparseApplyProximalAdagrad", SLOT, POSITIVE, rate(), rate(0.2), rate(0.3), ROWS, numbers,
        types="float32 float64")
    row("ResourceSparseApplyAdagradDA", SLOT, SLOT, POSITIVE, ROWS, numbers, rate(), rate(0.2), rate(0.3),
        Given(3, "int64"), types="float32 float64")
    for flag in (False, True):
        row("ResourceSparseApplyMomentum ResourceSparseApplyKerasMomentum", SLOT, SLOT, rate(), ROWS, numbers,
            rate(0.9), types="float32 float64", use_nesterov=flag)
        row("ResourceSparseApplyAdagrad", SLOT, POSITIVE, rate(), ROWS, numbers, types="float32 float64",
            update_slots=flag)
        row("ResourceSparseApplyAdagradV2", SLOT, POSITIVE, rate(), rate(1e-3), ROWS, numbers, types="float32 float64",
            update_slots=flag)
        row("ResourceSparseApplyFtrl", SLOT, POSITIVE, SLOT, ROWS, numbers, rate(), rate(0.2), rate(0.3), rate(-0.5),
            types="float32 float64", multiply_linear_by_lr=flag, tolerance=1e-4)
        row("ResourceSparseApplyFtrlV2", SLOT, POSITIVE, SLOT, ROWS, numbers, rate(), rate(0.2), rate(0.3), rate(0.1),
            rate(-0.5), types="float32 float64", multiply_linear_by_lr=flag, tolerance=1e-4)
    row("ResourceSparseApplyAdadelta", SLOT, POSITIVE, POSITIVE, rate(), rate(0.9), rate(1e-3), ROWS, numbers,
        types="float32 float64")
    row("ResourceSparseApplyRMSProp", SLOT, POSITIVE, SLOT, rate(), rate(0.9), rate(0.8), rate(1e-3), ROWS, numbers,
        types="float32 float64")
    row("ResourceSparseApplyCenteredRMSProp", SLOT, Content(R((5, 3), -0.1, 0.1)), POSITIVE, SLOT, rate(), rate(0.9),
        rate(0.8), rate(1e-3), ROWS, numbers, types="float32 float64")
row("ResourceSparseApplyMomentum", SLOT, SLOT, rate(), R((0, 3)), Given([], "int32"), rate(0.9), types="float32")
