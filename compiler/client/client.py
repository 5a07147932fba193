"""The client: compiles modules for a platform, in this process."""

from __future__ import annotations

from collections import defaultdict

from ...runtime.devices.device import Feeds
from .. import budget
from ..ir.module import Computation, Module
from ..ir.verifier import verify
from ..options import DEFAULT_OPTIONS, Options
from ..passes.lower_dynamic_boundary import lower_dynamic_boundary
from ..passes.pad_dynamic_dimensions import pad_dynamic_dimensions
from .communication_checks import check_communication
from .device_queues import DeviceQueues
from .executable import Executable
from .global_data import Transfers
from .platforms import platform
from .replicas import counted


class LocalClient(Transfers, DeviceQueues):
    """Compiles and runs in this process, on a platform: `cpu`, `interpreter`, or one that a package brings.

    >>> import numpy as np
    >>> from tfbridge.compiler import LocalClient, parse_hlo
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[2] parameter(0)\\n  ROOT y = f32[2] add(x, x)\\n}"
    >>> LocalClient("cpu").compile(parse_hlo(text)).execute([np.float32([1, 2])])
    [array([2., 4.], dtype=float32)]

    Raises: ShapeError  there is no platform of that name.
    """

    def __init__(self, platform: str = "cpu") -> None:
        self._platform = _platform(platform)
        self._feeds = defaultdict(Feeds)
        self._executables: dict[object, Executable] = {}

    @property
    def platform_name(self) -> str:
        """The platform's name."""
        return self._platform.name

    @property
    def device_count(self) -> int:
        """Devices of the platform."""
        return self._platform.device_count

    def compile(
        self,
        program: Module | Computation,
        options: Options = DEFAULT_OPTIONS,
        *,
        num_replicas: int | None = None,
        num_partitions: int | None = None,
    ) -> Executable:
        """Compiles a module or a computation, for as many replicas and partitions as its header says unless given.

        A program that was compiled before, by this process or another, comes from a cache.

        Raises: ShapeError  ill-formed; UnsupportedError  the platform cannot compile it; LimitError  more than the
            options' limits allow; BudgetError  it takes more than `compile_seconds`, `compile_instructions` or
                `compile_megabytes`.
        """
        module = verify(
            program if isinstance(program, Module) else Module(program.name, program), options.limits
        )
        options = counted(module, options, num_replicas, num_partitions)
        check_communication(module, options)
        with budget.limited(options.compile_seconds, options.compile_instructions, options.compile_megabytes):
            lowered = lower_dynamic_boundary(module)
            bounded = module if lowered is None else pad_dynamic_dimensions(lowered.module, options)
            return Executable(module, self._platform.compile(bounded, options), lowered, options, self._feeds)


_platform = platform
