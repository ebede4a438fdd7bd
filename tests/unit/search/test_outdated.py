"""Times of older templates are not believed, those of today's are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate, Failure, Measurement, Outcome, Protocol
from tilewright.core.targets import threads_alone
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.search.tuning import without_outdated

WORKLOAD = Workload(
    arguments=(Argument(type=TensorType((4,))),), steps=(Step(operator="relu", inputs=(0,)),)
)
KEY = (WORKLOAD.key, (PLAIN, PLAIN))


def candidate(number: int, name: str = "one") -> Candidate:
    return Candidate(implementation=name, settings=(("k", number),), forms=KEY[1])


def took(number: int, template: str, at: float, name: str = "one") -> Measurement:
    return Measurement(
        workload_key=KEY[0],
        candidate=candidate(number, name),
        device_class="d",
        resources=threads_alone(1),
        protocol=Protocol(),
        kernel_hash=f"{template}{number}",
        samples_s=(1.0,),
        build_s=0.0,
        created_at=at,
    )


def failed(at: float) -> Failure:
    return Failure(
        workload_key=KEY[0],
        candidate=candidate(99),
        device_class="d",
        resources=threads_alone(1),
        kind="wrong result",
        message="",
        created_at=at,
    )


def check(outcomes: list[Outcome], template: str = "new") -> tuple[list[Outcome], int, int]:
    asked = 0

    def hashes(kernels):
        nonlocal asked
        asked += len(kernels)
        return [f"{template}{c.setting('k')}" for _, c in kernels]

    kept, gone = without_outdated({KEY: outcomes}, {KEY: WORKLOAD}, hashes)
    return kept[KEY], gone, asked


def test_unchanged_templates_cost_one_lowering() -> None:
    outcomes: list[Outcome] = [took(n, "new", n) for n in range(50)]
    assert check(outcomes) == (outcomes, 0, 1)
    assert check([]) == ([], 0, 0)


def test_changed_templates_forget_everything_also_failures() -> None:
    kept, gone, _ = check([took(1, "old", 1), failed(2), took(2, "old", 3), took(1, "x", 4, "two")])
    assert kept == [] and gone == 2


@given(st.integers(0, 20), st.integers(1, 20))
def test_what_was_measured_after_the_change_counts(old: int, new: int) -> None:
    before: list[Outcome] = [took(n, "old", n) for n in range(old)]
    after: list[Outcome] = [took(n, "new", 100 + n) for n in range(new)]
    kept, gone, asked = check([failed(-1), *before, failed(50), *after, failed(200)])
    assert gone == 0 and asked <= 8
    assert kept == ([failed(-1), failed(50)] if not old else []) + [*after, failed(200)]


def test_other_implementations_keep_theirs() -> None:
    kept, gone, _ = check([took(1, "old", 1), took(2, "new", 2, "two")])
    assert [o.candidate.implementation for o in kept] == ["two"] and gone == 1
