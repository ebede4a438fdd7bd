"""Verbs about whole networks: make them faster, run them, see where their time goes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Unpack

from tilewright.core.arguments import (
    Error,
    Text,
    count_of,
    named_of,
    path_of,
    require_known,
    text_of,
    text_or_none,
    truth_of,
)
from tilewright.core.comparisons import CompareResult
from tilewright.core.neighbours import VersionsResult
from tilewright.core.results import ProfileResult, SolveResult
from tilewright.core.settings import read_settings
from tilewright.deploy import artifact as artifacts
from tilewright.deploy import (
    comparing,
    decoder_artifact,
    optimizing,
    profiling,
    several_shapes,
    showing,
    tuning_beside,
)
from tilewright.deploy.decoder_artifact import OptimizedDecoder
from tilewright.deploy.decoding import cache_sizes
from tilewright.deploy.partnering import with_partner
from tilewright.deploy.several_shapes import OptimizedShapes
from tilewright.deploy.shipment import OptimizedNetwork
from tilewright.deploy.wishes import Wishes, request_of
from tilewright.graph.network import Array
from tilewright.hardware.meters import meter_of
from tilewright.measure.targeting import describable_placement, placement_of
from tilewright.models import ModelOptions
from tilewright.models.given import Model, several_models
from tilewright.models.shape_grid import ShapeGrid
from tilewright.plan.assignment.solving import solve_file
from tilewright.search.levels import GraphLevel, OptimizeRequest, checked_level
from tilewright.search.tuners.registry import tuner_factory
from tilewright.serving.handoffs import part_handoffs
from tilewright.session.opened import Opened
from tilewright.store.known_candidates import allowed_error, checked_settings


class NetworkVerbs(Opened):
    """`optimize`, `tune`, `tune --beside`, `run`, `solve`, `plan`, `profile`, `compare`, `show`."""

    def optimize(self, model: Model, **wishes: Unpack[Wishes]) -> OptimizedNetwork:
        """Make a network faster: tune its tasks, choose layouts, compile, check and time it.

        The wishes are `budget`: what may be spent in total, earlier runs included, a time ("90s",
        "10m", "1h30m") or a number of measurements (500), "10m" by default, 0 to search nothing;
        `out`: the folder for the artifact, by default tilewright-out/NAME; `options`: batch, shapes
        seed and precision of the model; `max_error`: the allowed error of the outputs, relative to
        the largest value of each, or the least ratio of their signal to noise, "30dB"; by default
        1e-4, in bfloat16 2e-2, in int8 5e-2. A repeated call continues where the last one stopped.
        Raises `NegativeVerdict` where no network gives right results, and `OutputError` where the
        folder cannot be written.
        """
        return self._optimized(replace(self._request(model, wishes), level=GraphLevel()))

    def optimize_shapes(
        self, model: Model, grid: ShapeGrid, **wishes: Unpack[Wishes]
    ) -> OptimizedShapes:
        """Make a network faster in several shapes, and ship them as one artifact.

            grid = tilewright.ShapeGrid(batch=(1, 4, 16), axes={"tokens": (32, 64)})
            network = session.optimize_shapes("encoder.onnx", grid, budget="20m").load()

        The wishes are those of `optimize`; the budget is for all shapes together, each has a part.
        Weights that several shapes pack alike are stored once, and a shape packs them as an earlier
        one does where that costs little. What was made before a failure stays, and a repeated call
        goes on from there. Raises as `optimize`.
        """
        whole = replace(self._request(model, wishes), level=GraphLevel())
        asked = several_shapes.shapes_request(whole, grid)
        result = several_shapes.optimize_shapes(asked, self.placement, self.store, self.events)
        return OptimizedShapes(result=result, folder=whole.folder)

    def optimize_decoder(
        self,
        model: Model,
        *,
        tokens: int = 64,
        cache: int | Sequence[int] = (128, 512),
        **wishes: Unpack[Wishes],
    ) -> OptimizedDecoder:
        """Make a language model with its cache faster, and ship it as one artifact.

            decoder = session.optimize_decoder("model.onnx", cache=(128, 512)).load()
            made = decoder.generate([12, 7, 431], 100)

        `tokens` is the longest prompt, `cache` are numbers of slots, one per token: a text begins
        in the smallest and moves on when it is full. The wishes are those of `optimize`; the budget
        is for all networks together. Raises as `optimize`, and ModelError for a model without a
        cache, with fixed lengths, or that counts positions by the length of its cache.
        """
        request = replace(self._request(model, wishes), level=GraphLevel())
        asked = decoder_artifact.DecoderRequest(
            request=request,
            tokens=count_of(tokens, "tokens", 1),
            cache=cache_sizes(cache),
            made=read_settings().cache,
        )
        result = decoder_artifact.optimize_decoder(asked, self.placement, self.store, self.events)
        return OptimizedDecoder(result=result, folder=request.folder)

    def tune(
        self,
        model: Model,
        *,
        level: str | GraphLevel = "subgraph",
        tuner: str = "default",
        **wishes: Unpack[Wishes],
    ) -> OptimizedNetwork:
        """Do what `optimize` does, with a tuner and a level of one's choice.

        `level` is "op" (tune each operator by itself and use its settings in the fused kernel),
        "subgraph" (tune the fused kernels), or "graph" (subgraphs, then layouts and algorithms
        over the whole network); a `GraphLevel` names a solver, too. `tuner` is one of
        docs/reference/tuners.md or of another package. The wishes are those of `optimize`.
        """
        tuner_factory(text_of(tuner, "tuner"))
        request = replace(self._request(model, wishes), tuner=tuner, level=checked_level(level))
        return self._optimized(replace(request, command="tune"))

    def tune_beside(
        self,
        model: Model,
        beside: str,
        *,
        threads: int | None = None,
        tuner: str = "default",
        **wishes: Unpack[Wishes],
    ) -> VersionsResult:
        """Search settings of each fused kernel while something else runs, and tell which version is
        fastest alone, on one core, and beside that.

            found = session.tune_beside("zoo:resnet18", "stream", budget="5m")

        `beside` is "stream" (it streams memory), "compute" (it computes on what its caches hold),
        another model, or an artifact, on so many `threads`, 1 by default ("streamx2" says two). It
        runs on cores that the session's threads leave. The wishes are those of `optimize`, less
        `out`; the budget is for this model beside this partner. Times are kept in the database
        under what ran beside, and `plan` chooses among these versions, too.

        Raises `UsageError` for a partner that is none, and where kernels do not run on this
        machine's CPU, `TargetError` where there are too few cores, `NegativeVerdict` where the
        partner crashes, hangs or ends early.
        """
        tuner_factory(text_of(tuner, "tuner"))
        count = None if threads is None else count_of(threads, "threads", 1)
        work = tuning_beside.work_of(text_of(beside, "beside"), count)
        request = replace(self._request(model, wishes), tuner=tuner, command="tune")
        found = tuning_beside.BesideTuner(
            placement=self.placement, store=self.store, events=self.events
        )
        return found.run(request, work)

    def _request(self, model: Model, wishes: Wishes) -> OptimizeRequest:
        require_known(wishes, Wishes)
        said = self._said(wishes.get("options"), wishes.get("max_error"))
        return request_of(model, said, wishes, read_settings().cache, self.seed)

    def _optimized(self, request: OptimizeRequest) -> OptimizedNetwork:
        return OptimizedNetwork(
            result=optimizing.optimize(request, self.placement, self.store, self.events),
            folder=request.folder,
        )

    def run(self, artifact: Text, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run a compiled network once on the session's device.

        `inputs` and the result are arrays by the names that the ONNX file has for them; shapes and
        types must be those it was compiled for. Raises `ModelError` for a folder that is no
        artifact or is damaged, `TargetError` where it was compiled for another machine or version
        of TVM, `InputError` for an index outside a table.
        """
        folder, given = path_of(artifact, "artifact"), named_of(inputs, "inputs")
        return artifacts.run_on(
            folder, given, self.placement, verify=self.verify, events=self.events
        )

    def solve(self, file: Text, solver: str = "auto") -> SolveResult:
        """Solve a graph problem from a file, as `tune --level graph --save-problem` writes it.

        Measures nothing. Raises `ModelError` for a file that is no problem or a problem that allows
        no assignment, `NegativeVerdict` where the solver found none.
        """
        return solve_file(path_of(file, "file"), text_of(solver, "solver"))

    def profile(
        self,
        model: Model,
        *,
        options: ModelOptions | None = None,
        settings: str = "best",
        max_error: Error | None = None,
        **measured: Unpack[profiling.Measured],
    ) -> ProfileResult:
        """Time every task by itself and in the whole network, in seconds, and say what limits it,
        in "default" `settings`, the "best" known, or those of the last artifact, "shipped"."""
        require_known(measured, profiling.Measured)
        named, said = text_or_none(measured.get("meter"), "meter"), self._said(options, max_error)
        placement, partner = with_partner(measured.get("beside"), self.placement)
        return profiling.Profiler(
            placement=placement,
            partner=partner,
            part_handoffs=part_handoffs,
            store=self.store,
            events=self.events,
            seed=self.seed,
            meter=None if named is None else meter_of(named, self.placement.target),
            memory=truth_of(measured.get("memory", False), "memory"),
            verify=self.verify,
            max_error=allowed_error(max_error, said.precision),
        ).run(self._given(model, said).argument, said, checked_settings(settings))

    def compare(
        self,
        models: Model | Iterable[Model],
        *,
        peers: str | Sequence[str] | None = None,
        options: ModelOptions | None = None,
        settings: str = "best",
        max_error: Error | None = None,
        rounds: int = 5,
    ) -> CompareResult:
        """Time networks in turn with other engines, on the same cores or GPU, in `rounds` rounds.

        `peers` are names such as "onnxruntime"; engines that are not installed are skipped, and
        `skipped` of the result says why. A speed-up is the peer's time divided by ours.
        """
        compared = several_models(models)
        comparing.require_models(compared)
        said = self._said(options, max_error)
        return comparing.Comparer(
            peers=comparing.asked_peers(peers, self.placement.target),
            settings=checked_settings(settings),
            rounds=count_of(rounds, "rounds", 1),
            max_error=allowed_error(max_error, said.precision),
            verify=self.verify,
            placement=self.placement,
            store=self.records,
            events=self.events,
            seed=self.seed,
        ).run([self._given(each, said).argument for each in compared], said)

    def show(self, task: Model, what: str = "graph") -> str:
        """Text that shows what became of a task, a model or an artifact.

        `what` is "graph" (operators and tensors), "tir" (the scheduled loops) or "asm" (the machine
        code), of a GPU's kernel also "cuda" (the text), "ptx" and "sass" (the machine code). A task
        is an `op:…` text or a task's key from a report.
        """
        placement = describable_placement(placement_of(self._target, self._tracker, self._threads))
        return showing.show(
            self._given(task, ModelOptions(seed=self.seed)).argument,
            text_of(what, "what"),
            placement,
            self.records,
            self.seed,
            verify=self.verify,
        )
