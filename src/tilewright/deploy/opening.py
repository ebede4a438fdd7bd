"""Artifacts where a MODEL is expected: the network that one was made from, and its kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.core.errors import InternalError, ModelError
from tilewright.core.records import Candidate, Placement
from tilewright.core.targets import threads_alone
from tilewright.deploy.manifest import Manifest, read_manifest, require_files
from tilewright.graph.tasks import Task, TaskKey
from tilewright.kernels.knobspace import knob_space
from tilewright.kernels.registry import implementations
from tilewright.models.prepared import PreparedNetwork, laid_out
from tilewright.plan.preparation import prepare
from tilewright.store.choices import shipping_key


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedArtifact:
    """The folder of a compiled network and its manifest, both as they were written."""

    folder: Path
    manifest: Manifest

    def network(self, placement: Placement) -> PreparedNetwork:
        """The model it was made from, imported again, in the layouts it was built in.

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
        try:
            return laid_out(network, origin.plan)
        except (KeyError, ValueError, InternalError) as error:
            raise self._other_network(f"its layouts do not fit: {error}") from error

    def candidates(
        self, network: PreparedNetwork, placement: Placement
    ) -> dict[TaskKey, Candidate]:
        """What it computes each task with.

        Raises ModelError for a task that it lacks, and for settings that no kernel has here.
        """
        known, tuned = self.manifest.candidates, self.manifest.machine.threads
        made_for = replace(placement, resources=threads_alone(tuned))
        found: dict[TaskKey, Candidate] = {}
        for key, task in network.tasks.items():
            candidate = known.get(shipping_key(key))
            if candidate is None:
                raise self._other_network(f"it has no task {task.workload.key}")
            if not _is_possible(task, candidate, made_for):
                raise self._other_network(
                    f"{candidate.implementation} has no such settings for {task.workload.key}"
                )
            found[key] = candidate
        return found

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
    if spec is None or candidate.forms != task.forms:
        return False
    if not spec.applies(
        task.workload, placement.target, placement.resources
    ):  # those that are never enumerated, such as traces
        return True
    knobs = knob_space(spec, task.workload, placement.target, placement.resources, task.forms)
    return knobs.number(dict(candidate.settings)) is not None
