"""a * x + y, in the two ways in which a program can have its inputs: as parameters and as constants.

The steps are those of a compiler with a client and a server: transfer the inputs, build the computation, execute it,
fetch the result. Run it with `python docs/examples/axpy.py`.
"""

from __future__ import annotations

import numpy as np
from tfbridge.compiler import ComputationBuilder, Literal, LocalClient


def compute_axpy_parameters(alpha: Literal, x: Literal, y: Literal, platform: str = "cpu") -> Literal:
    """alpha * x + y, of literals that are transferred: the computation can be run again on others."""
    client = LocalClient(platform)

    # Build the graph: a function of three parameters with one result.
    builder = ComputationBuilder("axpy", client)
    param_alpha = builder.parameter(0, alpha.shape, "alpha")
    param_x = builder.parameter(1, x.shape, "x")
    param_y = builder.parameter(2, y.shape, "y")
    builder.add(builder.mul(param_alpha, param_x), param_y)
    computation = builder.build()

    # Transfer the arguments to the server, and get handles that refer to them.
    alpha_data = client.transfer_to_server(alpha)
    x_data = client.transfer_to_server(x)
    y_data = client.transfer_to_server(y)

    # Compile and execute the computation, and fetch its result.
    return client.execute_and_transfer(computation, [alpha_data, x_data, y_data])


def compute_axpy_constants(alpha: float, x: list[float], y: list[float], platform: str = "cpu") -> Literal:
    """alpha * x + y, of numbers that are part of the computation: the compiler knows them and folds them."""
    client = LocalClient(platform)
    builder = ComputationBuilder("axpy", client)
    constant_alpha = builder.constant_r0(alpha, "f32")
    constant_x = builder.constant_r1(x, "f32")
    constant_y = builder.constant_r1(y, "f32")
    builder.add(builder.mul(constant_alpha, constant_x), constant_y)
    computation = builder.build()

    # There are no parameters, so there are no arguments.
    return client.execute_and_transfer(computation, [])


def main() -> None:
    """Both ways on the same numbers."""
    x, y = np.arange(10, dtype=np.float32), np.full(10, 0.5, np.float32)
    print(compute_axpy_parameters(Literal(np.float32(2)), Literal(x), Literal(y)).array)
    print(compute_axpy_constants(2.0, x.tolist(), y.tolist()).array)


if __name__ == "__main__":
    main()
