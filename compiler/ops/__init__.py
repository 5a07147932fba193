"""The ops: one class each (elementwise ops without attributes: one row each of `ROWS`)."""

from .block_scaled_dot import BlockScaledDot
from .broadcast import Broadcast
from .cholesky import Cholesky
from .collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    Collective,
    CollectiveBroadcast,
    CollectivePermute,
    PartitionId,
    ReduceScatter,
    ReplicaId,
)
from .concatenate import Concatenate
from .constant import Constant, Copy, GetTupleElement, Parameter, Tuple
from .control import Call, Concurrent, Conditional, Map, While
from .convolution import Convolution, ConvolutionDims
from .custom_call import CustomCall
from .dot import Dot
from .dynamic_slice import DynamicSlice, DynamicUpdateSlice
from .elementwise import (
    ROWS,
    BitcastConvert,
    Compare,
    Convert,
    Elementwise,
    Opcode,
    ReducePrecision,
    Row,
    elementwise,
    is_op,
)
from .fft import Fft
from .fusion import Fusion
from .gather import Gather
from .get_dimension_size import GetDimensionSize, SetDimensionSize
from .iota import Iota
from .isotonic_regression import IsotonicRegression
from .lu_decomposition import LuDecomposition
from .nonzero import Nonzero
from .op import OPS, Indexer, Op, attribute, require
from .optimization_barrier import OptimizationBarrier
from .pad import Pad
from .reduce import Reduce, reducer_kind
from .reduce_window import ReduceWindow, SelectAndScatter
from .reshape import Reshape
from .reverse import Reverse
from .rng import Rng, RngBitGenerator
from .scatter import Scatter
from .self_adjoint_eig import SelfAdjointEig
from .size import SizeConstant, size_constant
from .slice import Slice
from .sort import Sort
from .table_lookup import TableLookup
from .top_k import TopK
from .transfers import AddDependency, AfterAll, Infeed, Outfeed, Recv, RecvDone, Send, SendDone, Trace
from .transpose import Transpose
from .triangular_solve import TriangularSolve
from .window import Window

__all__ = [
    "OPS",
    "ROWS",
    "AddDependency",
    "AfterAll",
    "AllGather",
    "AllReduce",
    "AllToAll",
    "BitcastConvert",
    "BlockScaledDot",
    "Broadcast",
    "Call",
    "Cholesky",
    "Collective",
    "CollectiveBroadcast",
    "CollectivePermute",
    "Compare",
    "Concatenate",
    "Concurrent",
    "Conditional",
    "Constant",
    "Convert",
    "Convolution",
    "ConvolutionDims",
    "Copy",
    "CustomCall",
    "Dot",
    "DynamicSlice",
    "DynamicUpdateSlice",
    "Elementwise",
    "Fft",
    "Fusion",
    "Gather",
    "GetDimensionSize",
    "GetTupleElement",
    "Indexer",
    "Infeed",
    "Iota",
    "IsotonicRegression",
    "LuDecomposition",
    "Map",
    "Nonzero",
    "Op",
    "Opcode",
    "OptimizationBarrier",
    "Outfeed",
    "Pad",
    "Parameter",
    "PartitionId",
    "Recv",
    "RecvDone",
    "Reduce",
    "ReducePrecision",
    "ReduceScatter",
    "ReduceWindow",
    "ReplicaId",
    "Reshape",
    "Reverse",
    "Rng",
    "RngBitGenerator",
    "Row",
    "Scatter",
    "SelectAndScatter",
    "SelfAdjointEig",
    "Send",
    "SendDone",
    "SetDimensionSize",
    "SizeConstant",
    "Slice",
    "Sort",
    "TableLookup",
    "TopK",
    "Trace",
    "Transpose",
    "TriangularSolve",
    "Tuple",
    "While",
    "Window",
    "attribute",
    "elementwise",
    "is_op",
    "size_constant",
    "reducer_kind",
    "require",
]
