"""Artifacts where a MODEL is expected: the network that one was made from, and its kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.core.errors import InternalError, ModelError
from tilewright.core.records import Candidate, Placement
from tilewright.core.targets import threads_alone
from tilewright.deploy.manifest import Manifest, read_manifest, require_files
from tilewright.graph.plan import NetworkPlan, lane_of
from tilewright.graph.tasks import Task
from tilewright.kernels.knobspace import knob_space
from tilewright.kernels.registry import implementations, is_for
from tilewright.models.prepared import PreparedNetwork
from tilewright.plan.preparation import prepare
from tilewright.store.shipped_plans import PlanOfBefore, shipping_key


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedArtifact:
    """The folder of a compiled network and its manifest, both as they were written."""

    folder: Path
    manifest: Manifest

    def network(self, placement: Placement) -> PreparedNetwork:
        """The model it was made from, imported again.

        Raises ModelError when that is another network by now.
        """
        origin, manifest = self.manifest.origin, self.manifest
        network = prepare(origin.model, origin.options, placement)
        types = network.model.graph.types
        inputs = [(name, types[name].shape, types[name].dtype) for name in network.graph.inputs]
        known = [(port.name, port.shape, port.dtype) for port in manifest.inputs]
        outputs = tuple(port.name for port in manifest.outputs)
        if inputs != known or network.model.outputs != outputs:
            raise self._other_network("its inputs and outputs are others now")
        if manifest.network_key and manifest.network_key != network.key:
            raise self._other_network("its operators are others now")
        return network

    def plan(self, network: PreparedNetwork, placement: Placement) -> NetworkPlan:
        """What was compiled, for this placement.

        Raises ModelError for a plan that does not fit the network, and for settings that no kernel
        has here.
        """
        found = self.manifest.shipped_plan
        try:
            if isinstance(found, PlanOfBefore):
                plan = found.planned(network, placement)
                self._require_tasks(plan, found)
            else:
                plan = found.on(lane_of(placement))
        except (KeyError, ValueError, InternalError) as error:
            raise self._other_network(f"its layouts do not fit: {error}") from error
        made_for = replace(placement, resources=threads_alone(self.manifest.machine.threads))
        for key, task in plan.tasks.items():
            candidate = plan.candidates[key]
            if not _is_possible(task, candidate, made_for):
                raise self._other_network(
                    f"{candidate.implementation} has no such settings for {task.workload.key}"
                )
        return plan

    def _require_tasks(self, plan: NetworkPlan, known: PlanOfBefore) -> None:
        """Raise ModelError for a task that was not among those of a manifest of before."""
        for key, task in plan.tasks.items():
            if shipping_key(key) not in known.assignment:
                raise self._other_network(f"it has no task {task.workload.key}")

    def _other_network(self, reason: str) -> ModelError:
        return ModelError(
            f"{str(self.folder)!r} is not what {self.manifest.source.model!r} becomes: {reason}",
            hint="Run `tilewright optimize` again.",
        )


def open_artifact(folder: Path, *, verify: bool = True) -> OpenedArtifact:
    """An artifact whose files are there and, with `verify`, as they were written.

    Raises ModelError otherwise.
    """
    manifest = read_manifest(folder, verify=verify)
    require_files(folder, manifest, verify=verify)
    return OpenedArtifact(folder=folder, manifest=manifest)


def _is_possible(task: Task, candidate: Candidate, placement: Placement) -> bool:
    spec = implementations().get(candidate.implementation)
    if spec is None or candidate.forms != task.forms or not is_for(spec, placement.target):
        return False
    if not spec.applies(
        task.workload, placement.target, placement.resources
    ):  # those that are never enumerated, such as traces
        return True
    knobs = knob_space(spec, task.workload, placement.target, placement.resources, task.forms)
    return knobs.number(dict(candidate.settings)) is not None
