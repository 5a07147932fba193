"""Rows of LSTM and GRU cells."""

from __future__ import annotations

from op_row import Given, Random, row

R = Random
SUMS = 3e-5
STATE, BELOW = R((3, 5)), R((3, 5), 0.1, 0.9)
PEEPHOLES = [R((5,))] * 3
for peephole, clip in ((False, -1.0), (True, 0.4)):
    row("LSTMBlockCell", R((3, 4)), STATE, STATE, R((9, 20)), *PEEPHOLES, R((20,)), types="float32 float16",
        use_peephole=peephole, cell_clip=clip, forget_bias=0.7, tolerance=SUMS)
    row("LSTMBlockCellGrad", R((3, 4)), STATE, STATE, R((9, 20)), *PEEPHOLES, R((20,)), BELOW, STATE, BELOW, BELOW,
        BELOW, BELOW, STATE, STATE, types="float32", use_peephole=peephole, tolerance=SUMS)
    row("BlockLSTM BlockLSTMV2", Given(6, "int64"), R((6, 3, 4)), STATE, STATE, R((9, 20)), *PEEPHOLES, R((20,)),
        types="float32", use_peephole=peephole, cell_clip=clip, tolerance=SUMS)
    STEPS, INSIDE = R((6, 3, 5)), R((6, 3, 5), 0.1, 0.9)
    for op in ("BlockLSTMGrad", "BlockLSTMGradV2"):
        row(op, Given(6, "int64"), R((6, 3, 4)), STATE, STATE, R((9, 20)), *PEEPHOLES, R((20,)), INSIDE, STEPS, INSIDE,
            INSIDE, INSIDE, INSIDE, STEPS, STEPS, STEPS, types="float32", use_peephole=peephole, tolerance=2e-4)
row("GRUBlockCell", R((3, 4)), STATE, R((9, 10)), R((9, 5)), R((10,)), R((5,)), types="float32", tolerance=SUMS)
row("GRUBlockCellGrad", R((3, 4)), STATE, R((9, 10)), R((9, 5)), R((10,)), R((5,)), BELOW, BELOW, BELOW, STATE,
    types="float32", tolerance=SUMS)

PLACES = Given([[0, 0], [0, 1], [0, 2], [1, 0], [2, 0], [2, 1]], "int64")
for merge in (True, False):
    for values in ([1, 1, 3, 0, 2, 0], [2, 0, 2, 3, 3, 3]):
        LABELS = PLACES, Given(values, "int32")
        row("CTCLoss", R((7, 3, 5)), *LABELS, Given([7, 5, 3], "int32"), types="float32", ctc_merge_repeated=merge,
            tolerance=2e-5)
        row("CTCLoss", R((7, 3, 5)), *LABELS, Given([2, 0, 7], "int32"), types="float32", ctc_merge_repeated=merge,
            ignore_longer_outputs_than_inputs=True, tolerance=2e-5)
        row("CTCLoss", R((7, 3, 5)), *LABELS, Given([7, 5, 3], "int32"), types="float64", ctc_merge_repeated=merge,
            tolerance=1.0)  # TensorFlow adds logarithms in f32
row("CTCLoss", R((7, 3, 5), -400, 400), *LABELS, Given([7, 5, 3], "int32"), types="float32")
