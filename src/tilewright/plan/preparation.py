"""From a MODEL argument to the tasks of its network."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.core import errors, input_files, processes, records, units
from tilewright.graph import network, tasks
from tilewright.graph.fuse import FusedNetwork
from tilewright.graph.network import Array
from tilewright.graph.plan import NetworkPlan, lane_of
from tilewright.graph.siblings import Group, with_stacked
from tilewright.kernels.base import CODED_WEIGHTS, CPU, FLOAT16, HALVES
from tilewright.kernels.float16_range import told_beyond, unfit
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.generic import ISLAND
from tilewright.kernels.half_forms import in_halves
from tilewright.kernels.halves import has_half_arithmetic
from tilewright.kernels.plans import default_settings, lay_out
from tilewright.kernels.registry import applicable
from tilewright.kernels.weight_codes import with_coded_weights
from tilewright.measure.accesses.registry import access_to
from tilewright.measure.kernels import WORKER
from tilewright.measure.noise import measured_ranges
from tilewright.models import LoadedModel, ModelOptions, loading
from tilewright.models.calibration import noise_inputs
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.mixture import kept_single

_TIMEOUT_S = 120.0


def prepare(argument: str, options: ModelOptions, placement: records.Placement) -> PreparedNetwork:
    """Load a model and cut it into tasks for a device."""
    return prepare_loaded(loading.load(argument, options), options, placement)


def prepare_loaded(
    model: LoadedModel,
    options: ModelOptions,
    placement: records.Placement,
    merges: Sequence[Group] = (),
) -> PreparedNetwork:
    """The same of a model that is loaded, with the calls of each of `merges` as one. Raises
    ModelError where these cannot be stacked."""
    network = _cut(supported(model, options, placement), options, placement, merges)
    return replace(network, precision=placement.precision)


def prepare_outline(
    argument: str, options: ModelOptions, placement: records.Placement
) -> PreparedNetwork:
    """The same tasks where only they are asked for: a single operator is loaded as an outline."""
    return prepare_loaded(loading.load_outline(argument, options), options, placement)


def in_one_half(network: PreparedNetwork, placement: records.Placement) -> PreparedNetwork:
    """A network that is prepared, as a placement whose precision is a half type has it."""
    fused, target = network.fused, placement.target
    forms = choose_forms(fused, target, placement.resources, placement.precision)
    forms = in_halves(fused, forms, placement)
    plan = lay_out(fused, forms, lane_of(placement), default_settings(placement))
    return replace(network, forms=forms, plan=plan, precision=placement.precision)


def _cut(
    model: LoadedModel,
    options: ModelOptions,
    placement: records.Placement,
    merges: Sequence[Group],
) -> PreparedNetwork:
    on_codes = placement.target.kind in CPU
    fused = tasks.fused_network(model.graph, attention_on_codes=on_codes)
    fused = with_stacked(fused, merges)
    _refuse_uncomputed(fused, placement)
    forms = choose_forms(fused, placement.target, placement.resources, placement.precision)
    if placement.precision in HALVES:
        kept = kept_single(fused, options.keep)
        if placement.precision == FLOAT16 and model.reference is not None:
            inputs = noise_inputs(model.graph, options.calibration, options.seed).fitted
            beyond = beyond_float16(fused, placement, inputs)
            kept |= beyond.keys()
            said = told_beyond(beyond, "stay in float32")
            model = replace(model, remark=" ".join(filter(None, (model.remark, said))))
        forms = in_halves(fused, forms, placement, kept)
    if placement.precision == CODED_WEIGHTS:
        forms = with_coded_weights(fused, forms, placement, kept_single(fused, options.keep))
    plan = lay_out(fused, forms, lane_of(placement), default_settings(placement))
    require_memory(fused.graph, plan, input_files.machine_memory_bytes())
    return PreparedNetwork(model=model, fused=fused, forms=forms, plan=plan)


def beyond_float16(
    fused: FusedNetwork, placement: records.Placement, inputs: Sequence[Mapping[str, Array]]
) -> dict[str, str]:
    """The tensors whose numbers, or whose products, do not fit float16, and what is told of each,
    by some inputs."""
    ranges = measured_ranges(fused, placement, inputs)
    return unfit(fused, ranges, in_runs=has_half_arithmetic(placement.target))


def _refuse_uncomputed(fused: FusedNetwork, placement: records.Placement) -> None:
    """Raise ModelError that names the nodes of the first call that nothing computes there."""
    target = placement.target
    known: dict[str, bool] = {}
    for call in fused.calls:
        key = call.workload.key
        if key not in known:
            known[key] = bool(applicable(call.workload, target, placement.resources))
        if not known[key]:
            operators = ", ".join(dict.fromkeys(step.operator for step in call.workload.steps))
            raise errors.ModelError(
                f"nothing computes {', '.join(map(repr, call.nodes))} ({operators}) on a "
                f"{target.model}",
                hint="On this machine's CPU, without --target, everything that ONNX Runtime runs "
                "is computed.",
            )


def require_memory(graph: network.Graph, plan: NetworkPlan, limit_bytes: int) -> None:
    """Raise ModelError for a network whose tensors need more than `limit_bytes`, before any of
    them is made."""
    outside = dict.fromkeys((*graph.inputs, *graph.outputs, *graph.constants))
    needed_bytes = sum(graph.types[name].bytes for name in outside) + plan.arena_bytes
    if needed_bytes <= limit_bytes:
        return
    largest = max(graph.types, key=lambda name: graph.types[name].bytes)
    kind = graph.types[largest]
    raise errors.ModelError(
        f"the network needs {units.format_bytes(needed_bytes)} of memory, this machine has "
        f"{units.format_bytes(limit_bytes)}: tensor {largest!r}, {kind}, alone is "
        f"{units.format_bytes(kind.bytes)}",
        hint="Smaller inputs (--batch, --shape), or a machine with more memory.",
    )


def supported(
    model: LoadedModel, options: ModelOptions, placement: records.Placement
) -> LoadedModel:
    """The model with the opaque nodes that TVM's importer does not take as islands, before work
    begins. Raises ModelError for them where islands are refused, or no engine takes them."""
    if placement.target.kind not in CPU:
        return model  # what no kernel computes is refused where it is a call
    if not access_to(placement.device).here:
        options = replace(options, islands="refuse")
        for island in filter(None, (node.named.get(ISLAND) for node in model.graph.nodes)):
            raise errors.ModelError(
                json.loads(str(island))[1],
                hint="ONNX Runtime could compute it on this machine, and is not on the device.",
            )
    nodes = [n for n in model.graph.nodes if n.operator == "opaque" and not n.named.get(ISLAND)]
    if not nodes:
        return model
    light = replace(model.graph, nodes=tuple(nodes), constants={})
    with processes.Child(WORKER, cpus=placement.binding.cpus) as child:
        refused = child.request(("unsupported", light, placement.tvm_target), _TIMEOUT_S)
    refusals = {
        name: errors.ModelError(message, hint=hint) for name, (message, hint) in refused.items()
    }
    for refusal in refusals.values() if options.islands == "refuse" else ():
        raise refusal
    return loading.with_islands(model, refusals) if refusals else model
