"""`tune --beside`: every candidate beside the partner, the best ones alone too, kept apart."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from helpers.fakes.measuring import failed
from tilewright.core.errors import NegativeVerdict, UsageError
from tilewright.core.events import Event, Note
from tilewright.core.neighbours import VersionsResult
from tilewright.core.records import (
    Candidate,
    Failure,
    KernelCheck,
    Measurement,
    Outcome,
    Placement,
    PlacementKey,
)
from tilewright.core.targets import threads_alone
from tilewright.deploy import partnering, tuning_beside
from tilewright.deploy.partnering import Company, Partner
from tilewright.deploy.tuning_beside import BesideTuner, Work, work_of
from tilewright.deploy.wishes import request_of
from tilewright.measure import targeting
from tilewright.measure.base import Job, Measurer
from tilewright.measure.circumstances import is_beside, is_usual
from tilewright.models import ModelOptions
from tilewright.plan.beside_versions import tuned_beside

MODEL = "op:conv2d[c=32,h=14,w=14,out=32,k=3,pad=1]"
WORK = Work(name="stream", model="op:add[shape=8]", threads=1)
NAME = "other1x1"
Slower = Callable[[Candidate], float]


@dataclass
class Here:
    """What one command works with; `slower` is how many times as long a kernel takes beside the
    partner. `batches` counts what was measured beside it, of which the one after `most` fails."""

    session: tw.Session
    slower: Slower = lambda _candidate: 2.0
    most: int = 1000
    batches: int = 0
    told: list[Event] = field(default_factory=list[Event])

    @property
    def alone(self) -> PlacementKey:
        return self.session.placement.key

    @property
    def beside(self) -> PlacementKey:
        return replace(self.alone, device_class=f"{self.alone.device_class}+beside={NAME}")

    def accompanied(self, place: Placement, _player: object, *, name: str, seed: int) -> Measurer:
        """A measurer of the simulated device whose kernels are slowed down."""
        assert name == WORK.name and is_beside(place.device.class_key, self.alone.device_class)
        opened = targeting.open_measurer(place, seed=seed)
        timed = opened._time_all  # pyright: ignore[reportPrivateUsage]

        def time_all(jobs: Any, protocol: Any, give_up_s: float, finish: Any) -> None:
            self.batches += 1
            if self.batches > self.most:
                raise NegativeVerdict("beside stream: it crashed")

            def slowed(job: Job) -> None:
                job.samples_s = [self.slower(job.candidate) * each for each in job.samples_s]
                finish(job)

            timed(jobs, protocol, give_up_s, slowed)

        opened._time_all = time_all  # type: ignore[method-assign]  # pyright: ignore
        return opened

    def tune(self, budget: str = "40", model: str = MODEL, **said: Any) -> VersionsResult:
        options = ModelOptions(**said)
        request = request_of(model, options, {"budget": budget}, Path(), 0)
        tuner = BesideTuner(
            placement=self.session.placement,
            store=self.session.store,
            events=self.told.append,
            accompanied=self.accompanied,
        )
        return tuner.run(request, WORK)

    def rows(self, found: VersionsResult, where: PlacementKey) -> list[Outcome]:
        return self.session.store.outcomes(found.tasks[0].key, where)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    @contextmanager
    def company(given: Partner, *_more: Any, **_named: Any) -> Generator[Company]:
        yield Company(partner=given, name=NAME, player=lambda _files: [])

    def with_partner(_asked: Any, place: Placement) -> tuple[Placement, Partner]:
        return place, Partner(model=WORK.model, placement=place)

    monkeypatch.setattr(partnering, "with_partner", with_partner)
    monkeypatch.setattr(partnering, "company", company)
    with tw.open(db=tmp_path / "a.db", target="simulated", threads=2) as opened:
        yield Here(session=opened)


def best_of(found: VersionsResult, what: Any) -> Any:
    (task,) = found.tasks
    return next(each for each in task.versions if what in each.best)


def test_the_best_versions_are_told_and_kept_under_what_ran_beside(here: Here) -> None:
    """Beside the partner the usual best implementation loses most."""
    quiet = here.tune()
    usual = best_of(quiet, "alone").implementation
    here.slower = lambda candidate: 20.0 if candidate.implementation == usual else 1.5
    found = here.tune("80")
    alone, beside = best_of(found, "alone"), best_of(found, "beside")
    assert alone.implementation == usual != beside.implementation
    assert alone.alone_s < beside.alone_s and beside.beside_s < alone.beside_s
    assert best_of(found, "one core").one_core_s is not None
    (task,) = found.tasks
    assert task.gain == pytest.approx(alone.beside_s / beside.beside_s, rel=0.05)
    assert task.gain_low is not None and task.gain_low > 1
    assert (found.partner, found.threads, found.partner_threads) == ("stream", 2, 1)
    assert found.device_class == here.beside.device_class and not is_usual(found.device_class)
    rows = {where: here.rows(found, where) for where in (here.alone, here.beside)}
    tried = {each.candidate for each in rows[here.beside]}
    looked_at = {each.candidate for each in rows[here.alone]}
    assert looked_at < tried, "every candidate was tried beside, the best of them alone"
    one = replace(here.alone, resources=threads_alone(1))
    assert {each.candidate for each in here.rows(found, one)} <= looked_at
    assert {each.model for rows_of in rows.values() for each in rows_of} == {MODEL}
    shown = str(found)
    for text in ("Versions of kernels beside stream", usual, "1 of 1", "kept under"):
        assert text in shown, text


def test_planners_find_what_was_tuned_beside(here: Here) -> None:
    usual = best_of(here.tune(), "alone").implementation
    here.slower = lambda candidate: 20.0 if candidate.implementation == usual else 1.5
    found = here.tune("80")
    (task,) = found.tasks
    store, place = here.session.store, here.session.placement
    workload = store.workload(task.key)
    assert workload is not None
    alone = min(
        (each for each in here.rows(found, here.alone) if isinstance(each, Measurement)),
        key=lambda each: each.latency_s,
    )
    kernel = (workload, alone.candidate)
    (quieter,) = tuned_beside([kernel], store, place).values()
    assert quieter.kernel[1].implementation == best_of(found, "beside").implementation
    assert 0 <= quieter.lost < 0.5


def test_a_repeated_command_spends_the_rest_of_the_budget(here: Here) -> None:
    first = here.tune("20")
    assert 0 < first.measurements + first.failures <= 20
    again = here.tune("20")
    assert again.measurements == 0 and again.tasks == first.tasks
    assert here.tune("30").measurements > 0


def test_what_has_converged_is_not_searched_again(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = "op:relu[shape=8]"
    while not here.tune("4000", model).converged:
        pass

    def searching(_self: object) -> bool:
        pytest.fail("searched")

    monkeypatch.setattr(tuning_beside.NetworkTuner, "run", searching)
    assert here.tune("4000", model).converged


def test_with_a_budget_of_nothing_it_tells_what_is_known(here: Here) -> None:
    nothing = here.tune("0")
    assert nothing.tasks == () and len(nothing.unmeasured) == 1 and here.batches == 0
    assert "Not measured" in str(nothing)
    known = here.tune("20")
    assert here.tune("0").tasks == known.tasks


def test_a_partner_that_ends_leaves_what_was_measured_until_then(here: Here) -> None:
    here.most = 2
    with pytest.raises(NegativeVerdict, match="beside stream: it crashed"):
        here.tune()
    kept = here.session.store.stored_measurements(placement=here.beside)
    assert kept and {each.device_class for each in kept} == {here.beside.device_class}
    (network,) = {each.run_id for each in kept}
    assert network is not None
    here.most = 1000
    assert here.tune().tasks, "a repeated command goes on"


def test_what_is_wrong_is_no_version(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: list[Candidate] = []

    def check(_measurer: Any, workload: Any, candidate: Candidate, _seed: int) -> KernelCheck:
        if wrong and candidate != wrong[0]:
            return KernelCheck(error=0.0, bound=1.0)
        wrong.append(candidate)
        failure = failed(workload, candidate, "wrong result", resources=here.alone.resources)
        return KernelCheck(error=9.0, bound=1.0, failure=failure)

    monkeypatch.setattr(tuning_beside, "check_kernel", check)
    found = here.tune()
    settings = [each.settings for each in found.tasks[0].versions]
    assert dict(wrong[0].settings) not in settings
    one = replace(here.alone, resources=threads_alone(1))
    for where in (here.alone, one, here.beside):
        failures = [each for each in here.rows(found, where) if isinstance(each, Failure)]
        assert [each.candidate for each in failures if each.kind == "wrong result"] == wrong[:1]
    assert any(isinstance(each, Note) and "wrong result" in each.message for each in here.told)


def test_types_are_not_chosen_beside_a_partner(here: Here) -> None:
    with pytest.raises(UsageError, match="in one precision"):
        here.tune(precision="auto")


@pytest.mark.parametrize(
    ("text", "threads", "found"),
    [
        ("stream", None, ("op:add[shape=1x64x512x512]", 1, True)),
        ("stream", 3, ("op:add[shape=1x64x512x512]", 3, True)),
        ("streamx2", None, ("op:add[shape=1x64x512x512]", 2, True)),
        ("streamx2", 2, ("op:add[shape=1x64x512x512]", 2, True)),
        ("op:relu[shape=8]", 2, ("op:relu[shape=8]", 2, False)),
        ("op:relu[shape=8]x2", None, ("op:relu[shape=8]", 2, False)),
        ("zoo:resnet18", None, ("zoo:resnet18", 1, False)),
        ("zoo:resnet18", 2, ("zoo:resnet18", 2, False)),
        ("net.onnx", None, ("net.onnx", 1, False)),
        ("out/net", 2, ("out/net", 2, False)),
    ],
)
def test_work_is_what_was_asked_for(text: str, threads: Any, found: tuple[str, int, bool]) -> None:
    assert work_of(text, threads) == Work(
        name=text, model=found[0], threads=found[1], short=found[2]
    )


def test_a_folder_is_an_artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fast").mkdir()
    monkeypatch.chdir(tmp_path)
    assert work_of("fast", None).model == "fast"


@pytest.mark.parametrize(
    ("text", "threads", "said"),
    [("none", None, "no partner"), ("streem", None, "no neighbour is called 'streem'"),
     ("streamx2", 3, "on 2 threads, and --beside-threads says 3")],
)  # fmt: skip
def test_what_is_no_work_is_refused(text: str, threads: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said) as told:
        work_of(text, threads)
    assert "none" not in (told.value.hint or ""), "it would be refused"
