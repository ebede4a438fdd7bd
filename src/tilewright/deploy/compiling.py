"""A network compiled in this process with default settings: nothing is measured, and nothing is
written where it stays."""

from __future__ import annotations

from functools import partial

from tilewright.core import arguments
from tilewright.core.errors import InternalError, UsageError
from tilewright.core.records import Placement
from tilewright.core.scratch import scratch_folder
from tilewright.deploy.engines import on_cpu
from tilewright.deploy.network_calls import CallableNetwork
from tilewright.deploy.ports import input_ports, output_ports
from tilewright.hardware.device import local_placement
from tilewright.kernels.base import MIXED
from tilewright.measure.targeting import allowing
from tilewright.models import ModelOptions
from tilewright.models.given import Model, given_model
from tilewright.models.loaded import PreparedNetwork, options_of
from tilewright.plan.preparation import prepare
from tilewright.report import islands


class CompiledNetwork(CallableNetwork):
    """A network that was compiled in this process, and is gone with it.

    Call it with arrays in the order of `inputs`, or by the names of the ONNX file. With one output
    it returns the array, with several a dictionary by name. `threads` is how many a call uses. Any
    thread may call it. `islands` says of each part that ONNX Runtime computes what and why.
    """

    def __init__(self, network: PreparedNetwork, placement: Placement, made_from: str) -> None:
        from tilewright.compiler.execute import LoadedNetwork

        self._made_from = made_from
        self.islands = islands.of_plan(network.plan)
        ports = input_ports(network), output_ports(network)
        constants = network.fused.graph.constants
        opening = partial(LoadedNetwork.compiled, network.plan, placement.target, constants)
        super().__init__(ports, on_cpu(placement), opening)

    def _title(self) -> str:
        return self._made_from

    def _broken(self, reason: str) -> InternalError:
        return InternalError(f"the compiled network does not run: {reason}")


def compile(
    model: Model,
    *,
    options: ModelOptions | None = None,
    threads: int | None = None,
    seed: int = 0,
) -> CompiledNetwork:
    """Compile a network with default settings, to be called right away.

        network = tilewright.compile("network.onnx")
        results = network.run({"input": array})

    Nothing is measured and no database is asked: `optimize` makes faster networks, and artifacts
    that stay. `model` is a path or a name such as "zoo:resnet50", an onnx.ModelProto, a
    torch.nn.Module with its shapes in `options`, or a pair of a module and its example inputs;
    `threads` defaults to the physical cores allotted to this process. Raises UsageError for what is
    no model and the precision "auto", ModelError for one that cannot be compiled, TargetError for a
    precision in which the processor does not multiply.
    """
    count = None if threads is None else arguments.count_of(threads, "threads", 1)
    wanted = options_of(options, arguments.count_of(seed, "seed", 0))
    if wanted.precision == MIXED:
        raise UsageError(
            "a type for each tensor is chosen by `optimize`, which compares it with ONNX Runtime",
            hint="session.optimize(model, budget=0, options=…) measures no kernels.",
        )
    placement = allowing(local_placement(count), wanted)
    with scratch_folder() as folder:
        given = given_model(model, wanted, folder)
        network = prepare(given.argument, wanted, placement)
        return CompiledNetwork(network, placement, given.origin or given.argument)
