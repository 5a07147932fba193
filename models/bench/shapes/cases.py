"""The table of cases."""

from __future__ import annotations

from functools import partial

from ..workloads import WORKLOADS
from . import data_dependent, generation, keras_models, new_shapes, server, workload_cases
from .case import ANY_SHAPE, TENSORFLOW, Case

_KERAS = ("tf", "xla", "tfbridge-auto")  # fit and predict call no function that a wrapper could take

_ROWS = [
    Case("server", "server", server.server, ANY_SHAPE),
    Case("new_shapes", "new_shapes", new_shapes.new_shapes, ANY_SHAPE),
    Case("new_shapes_beside_warm", "new_shapes_beside_warm", new_shapes.new_shapes_beside_warm, ANY_SHAPE),
    Case("generation", "growing_cache", generation.growing_cache, ANY_SHAPE),
    Case("generation", "fixed_cache", generation.fixed_cache, ANY_SHAPE),
    Case("keras_fit_predict", "ragged_batches", keras_models.ragged_batches, _KERAS),
    Case("keras_fit_predict", "bucketed_sentences", keras_models.bucketed_sentences, _KERAS),
    Case("keras_fit_predict", "image_sizes", keras_models.image_sizes, _KERAS),
    Case("keras_fit_predict", "ragged_tensors", keras_models.ragged_tensors, TENSORFLOW),
    Case("data_dependent", "graph_attention", data_dependent.graph_attention, ANY_SHAPE),
    Case("data_dependent", "sliding_attention", data_dependent.sliding_attention, ANY_SHAPE),
    Case("data_dependent", "boolean_mask", data_dependent.boolean_mask, TENSORFLOW),
    Case("data_dependent", "non_max_suppression", data_dependent.non_max_suppression, ANY_SHAPE),
    *(
        Case(
            "generic_against_specialised",
            f"generic_against_specialised/{name}",
            partial(workload_cases.generic_against_specialised, name),
            ANY_SHAPE,
            row.quick,
        )
        for name, row in WORKLOADS.items()
        if row.kind == "inference" and not row.one_shape
    ),
    *(
        Case(
            "first_call",
            f"first_call/{name}",
            partial(workload_cases.first_call, name),
            TENSORFLOW,
            row.quick,
        )
        for name, row in WORKLOADS.items()
    ),
]
CASES = {case.name: case for case in _ROWS}
