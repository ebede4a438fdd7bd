"""Comparisons on a simulated device, with made-up engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import tilewright as tw
from helpers.fakes.engines import NumpyReference
from helpers.networks.tiny_networks import quantized_resnet
from tilewright.core.comparisons import CompareResult, CompareRow, beside_ours
from tilewright.core.errors import TargetError, UsageError
from tilewright.core.events import Event, Note
from tilewright.core.records import NetworkCheck
from tilewright.deploy import comparing
from tilewright.deploy.comparing import Comparer, checked_peers
from tilewright.models import ModelOptions
from tilewright.models.loaded import LoadedModel
from tilewright.plan.preparation import prepare


@pytest.mark.regression
def test_models_of_one_name_are_told_apart_and_all_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network and its artifact, say: the mean was that of one of them."""
    speedups = {"zoo:mlp": 0.5, "out/mlp": 2.0, "other/mlp": 4.0}

    def compared(_self: Any, model: str, _options: Any, _skipped: Any) -> list[Any]:
        return [
            CompareRow(
                model="mlp",
                peer="onnxruntime",
                precision="fp32",
                threads=1,
                latency_s=1.0,
                peer_latency_s=speedups[model],
                speedup=speedups[model],
                max_abs_error=0.0,
                max_rel_error=0.0,
                latency_spread=0.0,
                peer_spread=0.0,
            )
        ]

    monkeypatch.setattr(Comparer, "_compare", compared)
    comparer = Comparer(
        placement=cast("Any", None),
        store=cast("Any", None),
        events=lambda _event: None,
        seed=0,
        peers=("onnxruntime",),
        settings="best",
        rounds=1,
    )
    found = comparer.run([*speedups, "out/mlp"], ModelOptions())
    assert [row.model for row in found.rows] == [
        "mlp",
        "mlp (out/mlp)",
        "mlp (other/mlp)",
        "mlp (out/mlp, 2)",
    ]
    assert found.geomean_speedup == pytest.approx((0.5 * 2.0 * 4.0 * 2.0) ** 0.25)


MODEL = "op:conv2d[c=16,h=14,w=14,out=16,k=3,pad=1]"
PLAIN = ModelOptions()


@dataclass
class Engine:
    """A peer that takes `seconds`, by default in `usually`; `missing` and `refuses` say why not,
    `fails` what its first run ends with."""

    name: str
    seconds: float = 1e-3
    usually: str = "fp32"
    missing: str | None = None
    refuses: str = ""
    precision: str = ""
    starts: list[str] = field(default_factory=list)
    stops: int = 0
    fails: str = ""
    mode: str = ""
    computes: Any = None

    def available(self) -> str | None:
        return self.missing

    def start(self, _model: Path, _threads: int, _cpus: object, request: str = "fp32") -> None:
        if self.refuses:
            raise TargetError(self.refuses)
        self.starts.append(request)
        self.precision = "fp32" if request == "fp32" else self.usually

    def stop(self) -> None:
        self.stops += 1

    def run(self, inputs: Any) -> Mapping[str, np.ndarray[Any, Any]]:
        if self.fails:
            raise TargetError(self.fails)
        return self.computes(inputs)

    def time(self, _inputs: object, repeats: int, _warmup: int) -> Sequence[float]:
        return [self.seconds] * repeats


@dataclass
class Yard:
    """Compares `MODEL` with engines by name; `made` are those that were, in order."""

    session: tw.Session
    engines: dict[str, Engine]
    made: list[Engine] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    computes: Any = None
    model: str = MODEL
    options: ModelOptions = PLAIN

    def engine(self, name: str) -> Engine:
        known = self.engines[name]
        made = replace(known, starts=[], computes=known.computes or self.computes)
        self.made.append(made)
        return made

    def compare(self, *models: str) -> CompareResult:
        return Comparer(
            placement=self.session.placement,
            store=self.session.records,
            events=self.events.append,
            seed=0,
            peers=tuple(self.engines),
            settings="default",
            rounds=2,
        ).run(models or [self.model], self.options)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[tw.Session]:
    with tw.open(db=tmp_path / "a.db", target="simulated") as opened:
        yield opened


def yard(
    session: tw.Session,
    monkeypatch: pytest.MonkeyPatch,
    *engines: Engine,
    off_by: float = 0.0,
    model: str = MODEL,
    options: ModelOptions = PLAIN,
) -> Yard:
    """The reference computes what the network does in numpy, but for `off_by`."""
    known = {engine.name: engine for engine in engines}
    made = Yard(session, known, model=model, options=options)
    network = prepare(model, ModelOptions(), session.placement)
    made.computes = NumpyReference(network).run
    monkeypatch.setattr(comparing, "peer_beside", lambda _worker, name: made.engine(name))
    monkeypatch.setattr(comparing, "make_peer", lambda _name: NumpyReference(network, off_by))
    if options == PLAIN:
        monkeypatch.setattr(LoadedModel, "onnx_path", Path("made-up.onnx"))
    return made


def test_each_peer_is_a_row(session: tw.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    made = yard(session, monkeypatch, Engine("slow", 1e-2), Engine("fast", 1e-9))
    found = made.compare()
    assert [(row.peer, row.precision, row.default_precision) for row in found.rows] == [
        ("slow", "fp32", False),
        ("fast", "fp32", False),
    ]
    slow, fast = found.rows
    assert slow.peer_latency_s == 1e-2 and fast.peer_latency_s == 1e-9
    assert slow.latency_s == fast.latency_s > 0, "ours is timed once, in turn with all"
    assert slow.speedup == pytest.approx(1e-2 / slow.latency_s) and fast.speedup < 1 < slow.speedup
    assert slow.threads == session.placement.resources.threads
    assert slow.max_rel_error is not None and slow.max_rel_error < 1e-5
    assert found.geomean_speedup == pytest.approx(fast.speedup), "the fastest peer of each"
    assert found.geomean_speedup_low is not None and found.geomean_speedup_high is not None
    assert found.geomean_speedup_low <= found.geomean_speedup <= found.geomean_speedup_high
    assert found.skipped == {}


def test_a_peer_is_compared_again_where_its_own_precision_is_another(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = yard(session, monkeypatch, Engine("same"), Engine("other", usually="bf16"))
    rows = made.compare().rows
    assert [(row.peer, row.precision, row.default_precision) for row in rows] == [
        ("same", "fp32", False),
        ("other", "fp32", False),
        ("other", "bf16", True),
    ]
    assert [engine.starts for engine in made.made] == [["fp32"], ["default"]] * 2
    assert all(engine.stops >= 1 for engine in made.made), "none is left behind"


def test_errors_are_those_against_the_reference(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = yard(session, monkeypatch, Engine("peer"), off_by=0.5).compare().rows
    assert row.max_abs_error == pytest.approx(0.5, rel=1e-3)
    assert row.max_rel_error is not None and 1e-3 < row.max_rel_error < 0.5


def test_a_peer_says_how_it_computes_and_is_held_against_the_reference(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounded = Engine("rounded", mode="CUDA graph", usually="tf32")
    made = yard(session, monkeypatch, Engine("exact"), rounded)
    exact = made.computes
    rounded.computes = lambda inputs: {name: y * 1.01 for name, y in exact(inputs).items()}
    rows = made.compare().rows
    assert [row.mode for row in rows] == ["", "CUDA graph", "CUDA graph"]
    assert [row.precision for row in rows] == ["fp32", "fp32", "tf32"]
    assert [row.peer_rel_error for row in rows] == pytest.approx([0, 0.01, 0.01], rel=1e-3)
    assert all((row.max_rel_error or 0) < 1e-5 for row in rows), "ours are not concerned"


def test_errors_of_peers_are_told_beside_ours(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second mean is over peers whose error is no more than ours."""
    engines = (Engine("exact", 1e-2), Engine("rounded", 1e-4), Engine("coarse", 1e-6))
    made = yard(session, monkeypatch, *engines, off_by=0.1)
    exact = made.computes
    for engine, off_by in zip(engines, (0.1, 0.0, 0.3), strict=True):
        engine.computes = lambda inputs, off_by=off_by: {
            name: y + np.float32(off_by) for name, y in exact(inputs).items()
        }
    found = made.compare()
    assert [row.peer_error for row in found.rows] == ["less", "equal", "more"]
    rounded, coarse = found.rows[1:]
    assert found.geomean_speedup == pytest.approx(coarse.speedup)
    assert found.geomean_at_no_more_error == pytest.approx(rounded.speedup)
    assert found.geomean_at_no_more_error_low == rounded.speedup_low
    assert (rounded.sqnr_db or 0) < 60 and (rounded.peer_sqnr_db or 0) < 60
    assert found.rows[0].peer_sqnr_db == 300 > (coarse.sqnr_db or 0) > (coarse.peer_sqnr_db or 0)
    assert {(row.top1_agreement, row.peer_top1_agreement) for row in found.rows} == {(1.0, 1.0)}


@pytest.mark.parametrize(("off_by", "told"), [(0.0, False), (1e6, True)])
def test_outputs_that_tell_little_are_noted(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch, off_by: float, told: bool
) -> None:
    """With so much added, what the reference makes of one input is nearly that of another."""
    made = yard(session, monkeypatch, Engine("peer"), off_by=off_by)
    made.compare()
    notes = [event.message for event in made.events if isinstance(event, Note)]
    assert any("hardly depends on the network's inputs" in note for note in notes) is told


@pytest.mark.parametrize(
    ("theirs", "ours", "told"),
    [
        ((0.0, 300.0), (9e-5, 85.0), "equal"),
        ((2e-4, 80.0), (0.0, 300.0), "more"),
        ((2e-2, 48.4), (1e-2, 48.8), "equal"),
        ((1e-2, 48.8), (2e-2, 48.4), "equal"),
        ((1e-2, 48.2), (2e-2, 48.8), "more"),
        ((2e-2, 48.8), (1e-2, 48.2), "less"),
        ((float("inf"), -300.0), (1e-2, 40.0), "more"),
        ((1e-2, None), (1e-2, 40.0), ""),
        ((1e-2, 40.0), (1e-2, None), ""),
    ],
)
def test_noise_that_is_alike_is_equal_whatever_single_elements_are(
    theirs: tuple[float, float | None], ours: tuple[float, float | None], told: str
) -> None:
    both = (NetworkCheck(max_abs_error=e, max_rel_error=e, sqnr_db=db) for e, db in (theirs, ours))
    assert beside_ours(*both) == told


def test_a_model_on_codes_is_marked_so(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ours and the peers', with what the rest is computed in."""
    model = tmp_path / "codes.onnx"
    model.write_bytes(quantized_resnet("basic_1_1").SerializeToString())
    engines = Engine("single"), Engine("halves", usually="bf16", mode="one stream")
    made = yard(session, monkeypatch, *engines, model=str(model))
    rows = made.compare().rows
    assert {(row.precision, row.own_precision) for row in rows} == {("int8", "int8")}
    assert [(row.peer, row.mode, row.default_precision) for row in rows] == [
        ("single", "", False),
        ("halves", "one stream", False),
        ("halves", "one stream, the rest in bf16", True),
    ]


def test_coarser_networks_are_compared_on_inputs_that_results_are_judged_on(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every other one of the file: the others are those that codes were calibrated on."""
    images = np.random.default_rng(0).normal(size=(4, 1, 16, 14, 14)).astype(np.float32)
    (name,) = prepare(MODEL, ModelOptions(), session.placement).graph.inputs
    np.savez(tmp_path / "images.npz", **{name: images})
    options = ModelOptions(precision="int8", calibration=tmp_path / "images.npz")
    made = yard(session, monkeypatch, Engine("peer"), options=options)
    exact, seen = made.computes, []

    def computed(inputs: Mapping[str, Any]) -> Any:
        seen.append(inputs[name])
        return exact(inputs)

    made.computes = computed
    single, codes = made.compare().rows
    assert np.array_equal(seen, [images[1], images[3]] * 2)
    assert (single.precision, codes.precision, codes.own_precision) == ("fp32", "int8", "int8")
    assert single.peer_error == codes.peer_error == "less", "they are computed by numpy"
    assert 20 < (codes.sqnr_db or 0) < 60


def test_a_peer_whose_first_run_fails_is_left_out(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of a GPU's memory, say, or it hangs."""
    made = yard(session, monkeypatch, Engine("large", fails="CUDA out of memory"), Engine("here"))
    found = made.compare()
    assert [row.peer for row in found.rows] == ["here"]
    assert list(found.skipped.values()) == ["CUDA out of memory"]


def test_peers_that_cannot_be_used_are_told(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = (Engine("gone", missing="not installed"), Engine("shy", refuses="not this one"))
    made = yard(session, monkeypatch, *engines, Engine("here"))
    found = made.compare()
    assert [row.peer for row in found.rows] == ["here"]
    network = found.rows[0].model
    assert found.skipped == {"gone": "not installed", f"shy ({network})": "not this one"}
    notes = [event.message for event in made.events if isinstance(event, Note)]
    assert notes == ["shy left out: not this one"]
    assert [(each.name, each.starts) for each in made.made][:2] == [("gone", []), ("shy", [])]


def test_without_any_peer_nothing_is_compared(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = [Engine(name, missing="not installed") for name in ("a", "b")]
    made = yard(session, monkeypatch, *gone, Engine("c", missing="too old"))
    with pytest.raises(TargetError, match="no peer can be used: a, b: not installed; c: too old"):
        made.compare()


def test_an_artifact_runs_as_it_is(
    session: tw.Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = yard(session, monkeypatch, Engine("peer"))
    network = prepare(MODEL, ModelOptions(), session.placement)
    plan = comparing.choose_plan(network, session.records, session.placement, "default")
    with comparing.targeting.open_networks(session.placement) as worker:
        worker.compile(plan, network.graph.constants, tmp_path / "out")
    manifest = type(
        "Manifest",
        (),
        {"machine": "that one", "constants": plan.constant_names, "shipped_plan": plan},
    )
    artifact = type(
        "Opened", (), {"folder": tmp_path / "out", "manifest": manifest, "islands": ("An island.",)}
    )
    refused: list[Any] = []
    monkeypatch.setattr(comparing, "open_model", lambda *_a, **_n: (network, artifact))
    monkeypatch.setattr(comparing, "refuse_elsewhere", lambda *given: refused.append(given))
    monkeypatch.setattr(comparing, "choose_plan", lambda *_: pytest.fail("nothing is chosen"))
    (row,) = made.compare().rows
    assert row.max_rel_error is not None and row.max_rel_error < 1e-5
    assert refused == [(artifact, session.placement)]


def test_peers_are_known_and_named_once() -> None:
    assert checked_peers(["onnxruntime", "torch", "onnxruntime"]) == ("onnxruntime", "torch")
    with pytest.raises(UsageError, match="no peer is named"):
        checked_peers([])
    with pytest.raises(UsageError, match="nonsense"):
        checked_peers(["onnxruntime", "nonsense"])


def test_something_is_compared() -> None:
    comparing.require_models(["zoo:mlp"])
    with pytest.raises(UsageError, match="at least one MODEL"):
        comparing.require_models([])
