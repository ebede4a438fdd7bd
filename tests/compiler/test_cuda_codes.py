"""Products of codes on GPUs: their text, executed on the CPU in three orders, gives numpy's sums
exactly."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.cuda_kernels import check_cuda_kernel, executed
from helpers.kernels.gpu_kernels import a_gpu, check_facts_of_code, space_of
from helpers.kernels.one_kernel import step
from tilewright.compiler.builders.cuda import program_of
from tilewright.compiler.cuda.compilers import compiled_source, disassembled, missing_compiler
from tilewright.core.errors import TargetError
from tilewright.core.forms import CHANNELS_LAST, Form
from tilewright.core.records import Candidate, Settings
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Workload
from tilewright.hardware.gpus import CudaProgram
from tilewright.kernels.cuda.code_products import SPEC
from tilewright.kernels.estimates import facts
from tilewright.kernels.registry import applicable, implementation
from tilewright.kernels.spaces import MAX_ERROR, default_candidate
from tilewright.measure.checking import sample_arguments
from tilewright.testing.cuda_execution import KernelFault, compiler
from tilewright.testing.implementations import candidate_of, plain, single, some_settings

NAME = SPEC.name
executes = pytest.mark.skipif(compiler() is None, reason="no C++ compiler executes CUDA text here")
compiles = pytest.mark.skipif(bool(missing_compiler()), reason="no compiler of NVIDIA's is here")
CONV = dict(strides=(1, 1), padding=(1,) * 4, dilation=(1, 1), groups=1)
Shape = tuple[int, ...]


def signed(*shape: int) -> TensorType:
    return TensorType(shape, "int8")


def unsigned(*shape: int) -> TensorType:
    return TensorType(shape, "uint8")


def dense(x: TensorType, columns: int, *, constant: bool = True) -> Workload:
    constants = (1,) if constant else ()
    return single("dense", x, signed(x.shape[-1], columns), constants=constants)


def batched(x: TensorType, w: TensorType, *, turned: bool) -> Workload:
    return single("batch_matmul", x, w, transpose_b=turned)


def convolution(x: TensorType, *filters: int, **named) -> Workload:
    return single("conv2d", x, signed(*filters), constants=(1,), **(CONV | named))


def requantized(task: Workload) -> Workload:
    """With a bias, a scale for each channel and the zero point 3, to unsigned codes."""
    shape = task.result.shape
    image = task.anchor_name == "conv2d"
    line = (shape[1], 1, 1) if image else (shape[-1],)
    more = tuple(
        Argument(type=TensorType(line, dtype), role="constant") for dtype in ("int32", "float32")
    )
    first = len(task.arguments) + 2
    steps = (
        *task.steps,
        step("add", first, 2),
        step("cast", first + 1, dtype="float32"),
        step("multiply", first + 2, 3),
        step("round", first + 3),
        step("clip", first + 4, minimum=0.0, maximum=255.0),
        step("cast", first + 5, dtype="uint8"),
    )
    return Workload(arguments=(*task.arguments, *more), steps=steps)


TASKS = {
    "prime dense": dense(unsigned(3, 7, 53), 71),
    "dense in words": requantized(dense(signed(33, 64), 36)),
    "one row": dense(unsigned(1, 301), 1),
    "computed weights of odd rows": dense(unsigned(9, 21), 24, constant=False),
    "keys": batched(unsigned(2, 3, 20, 32), signed(1, 3, 24, 32), turned=True),
    "odd keys": batched(signed(3, 21, 33), signed(3, 17, 33), turned=True),
    "values": batched(unsigned(3, 20, 40), signed(3, 40, 24), turned=False),
    "values of odd rows": batched(unsigned(3, 13, 37), signed(3, 37, 24), turned=False),
    "odd values": batched(signed(2, 20, 30), signed(2, 30, 17), turned=False),
    "unsigned both": batched(unsigned(2, 11, 36), unsigned(2, 12, 36), turned=True),
    "one tensor twice": Workload(
        arguments=(Argument(type=signed(2, 24, 24)),),
        steps=(step("batch_matmul", 0, 0, transpose_b=False),),
    ),
    "first layer": requantized(
        convolution(unsigned(1, 3, 17, 19), 24, 3, 7, 7, strides=(2, 2), padding=(3,) * 4)
    ),
    "words of channels": requantized(convolution(signed(1, 32, 7, 9), 12, 32, 3, 3)),
    "groups": convolution(signed(1, 16, 5, 6), 12, 8, 3, 3, groups=2),
    "odd groups": convolution(signed(2, 10, 7, 11), 6, 5, 3, 3, groups=2, padding=(0,) * 4),
    "pointwise": convolution(unsigned(2, 22, 6, 6), 20, 22, 1, 1, padding=(0,) * 4),
    "pointwise with stride": convolution(
        signed(1, 24, 7, 7), 9, 24, 1, 1, padding=(0,) * 4, strides=(2, 2)
    ),
}


def drawn(task: Workload, number: int, forms: tuple[Form, ...] = ()) -> Settings:
    """One of sixty settings from all over the space."""
    found = some_settings(space_of(NAME, task, a_gpu(), forms), 60)
    return found[number % len(found)]


def check(task: Workload, chosen: Settings, forms: tuple[Form, ...] = ()) -> Candidate:
    on = a_gpu()
    candidate = candidate_of(SPEC, chosen, forms or plain(task))
    program = program_of(task, candidate, on.target, on.resources)
    check_cuda_kernel(program, task, name=NAME, candidate=candidate)
    return candidate


@executes
@pytest.mark.parametrize("name", TASKS)
def test_settings_from_all_over_the_space(name: str) -> None:
    """Bare sums may not differ at all."""
    task = TASKS[name]
    assert SPEC.error_bound(task) < 1e-9 or task.result.dtype == "uint8"
    check(task, drawn(task, 7 * list(TASKS).index(name)))


@executes
@pytest.mark.parametrize(
    ("name", "place"),
    [("first layer", 0), ("words of channels", 0), ("words of channels", 1), ("groups", 2)],
)
def test_channels_last(name: str, place: int) -> None:
    """Of what is read, of what is written, and of both."""
    task, on = TASKS[name], a_gpu()
    ports = [it for it in SPEC.port_forms(task, on.target, on.resources) if CHANNELS_LAST in it]
    check(task, drawn(task, 11 * place, ports[place]), ports[place])


@executes
@pytest.mark.parametrize(("stages", "split"), [(1, 2), (2, 1)])
def test_tap_after_tap(stages: int, split: int) -> None:
    tiles = dict(tile_rows=32, tile_columns=16, thread_rows=4, thread_columns=2, tile_depth=8)
    orders = {"stages": stages, "split": split, "by_taps": True}
    check(convolution(unsigned(1, 42, 7, 8), 9, 42, 3, 3, strides=(1, 2)), {**tiles, **orders})


@executes
@settings(max_examples=4, deadline=None)
@given(
    st.integers(1, 40), st.integers(1, 60), st.integers(1, 40), st.booleans(), st.integers(0, 59)
)
def test_odd_products(rows: int, depth: int, columns: int, turned: bool, number: int) -> None:
    right = (columns, depth) if turned else (depth, columns)
    task = batched(unsigned(1, rows, depth), signed(1, *right), turned=turned)
    check(task, drawn(task, number))


@executes
@pytest.mark.parametrize("dtype", ["bool", "float16", "bfloat16", "int64", "float64"])
def test_results_of_other_types(dtype: str) -> None:
    """Four of them side by side."""
    check(as_type(dtype), {**TILES, "stages": 1, "split": 1})


@compiles
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64", "float64"])
def test_results_of_other_types_compile(dtype: str) -> None:
    source = made(as_type(dtype), {**TILES, "stages": 1, "split": 1}).source
    assert not compiled_source(source, "sm_90").reason


def as_type(dtype: str) -> Workload:
    """Sums that are made another type."""
    product = dense(unsigned(9, 24), 36)
    converted = step("cast", len(product.arguments), dtype=dtype)
    return Workload(arguments=product.arguments, steps=(*product.steps, converted))


PRODUCT = batched(unsigned(1, 40, 200), signed(1, 200, 36), turned=False)
TILES = dict(
    tile_rows=32, tile_columns=32, thread_rows=4, thread_columns=4, tile_depth=8, by_taps=False
)


def made(task: Workload, chosen: Settings, described: str = "-model=H100") -> CudaProgram:
    on, candidate = a_gpu(described), candidate_of(SPEC, chosen, plain(task))
    return program_of(task, candidate, on.target, on.resources)


@executes
@pytest.mark.parametrize("stages", [1, 2])
def test_a_removed_barrier_is_caught(stages: int) -> None:
    program = made(PRODUCT, {**TILES, "stages": stages, "split": 1})
    first, *others = program.source.split("__syncthreads();")
    assert len(others) == 2
    for place in range(2):
        parts = [first, *others]
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
        faulty = replace(program, source="__syncthreads();".join(parts))
        with pytest.raises(KernelFault):
            executed(faulty, PRODUCT, sample_arguments(PRODUCT, 0), seed=place)


@executes
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dp4a.u32.s32 %0", "dp4a.s32.s32 %0"),
        ("dp4a.u32.s32 %0", "dp4a.u32.u32 %0"),
        ("words[2] = __byte_perm(low2, high2, 0x5410)", "words[2] = words[2]"),
    ],
)
def test_a_wrong_sign_and_a_word_that_is_not_turned_are_caught(old: str, new: str) -> None:
    program = made(PRODUCT, {**TILES, "stages": 1, "split": 1})
    assert old in program.source
    faulty = replace(program, source=program.source.replace(old, new))
    with pytest.raises(AssertionError, match="error"):
        check_cuda_kernel(faulty, PRODUCT, name=NAME)


def test_where_it_applies() -> None:
    """Where there is the instruction, and not to convolutions each channel for itself."""
    on, task = a_gpu(), TASKS["prime dense"]
    assert SPEC.applies(task, on.target, on.resources)
    assert not SPEC.applies(task, a_gpu("-model=P100").target, on.resources)
    assert SPEC.applies(task, a_gpu("-model=P40").target, on.resources)
    floats = single("dense", (3, 8), (8, 4))
    depthwise = convolution(signed(1, 8, 6, 6), 8, 1, 3, 3, groups=8)
    assert not SPEC.applies(floats, on.target, on.resources)
    assert not SPEC.applies(depthwise, on.target, on.resources)
    assert NAME not in [it.name for it in applicable(depthwise, on.target, on.resources)]


@pytest.mark.parametrize("described", ["-model=H100", "-model=T4"])
def test_codes_take_no_longer_than_singles_by_the_model(described: str) -> None:
    """A product of bert_base, by default settings that are chosen from facts alone."""
    left, right, on = (12, 128, 64), (12, 128, 64), a_gpu(described)
    times = dict[str, float]()
    for task in (
        batched(unsigned(*left), signed(*right), turned=True),
        single("batch_matmul", left, right, transpose_b=True),
    ):
        candidate, _ = default_candidate(task, plain(task), on, MAX_ERROR)
        spec, chosen = implementation(candidate.implementation), dict(candidate.settings)
        known = facts(spec, task, on.target, on.resources, plain(task), [chosen])
        times[spec.name] = float(known["estimate_s"][0])
    codes_s = times.pop(NAME)
    assert codes_s < min(times.values())


LARGE = {
    "dense": requantized(dense(unsigned(128, 768), 768)),
    "values": batched(unsigned(12, 128, 128), signed(12, 128, 64), turned=False),
    "convolution": requantized(convolution(unsigned(1, 64, 56, 56), 64, 64, 3, 3)),
}


@compiles
@pytest.mark.parametrize(
    ("arch", "name"), [("sm_75", "convolution"), ("sm_90", "dense"), ("sm_120", "values")]
)
def test_every_product_is_an_instruction_and_nothing_is_spilled(arch: str, name: str) -> None:
    task = LARGE[name]
    candidate, _ = default_candidate(task, plain(task), a_gpu(f"-arch={arch}"), MAX_ERROR)
    assert candidate.implementation == NAME
    chosen = dict(candidate.settings)
    source = made(task, chosen, f"-arch={arch}").source
    tiles = SPEC.tiles(SPEC.product(task, candidate.forms), lambda each: int(chosen[each]))
    done = compiled_source(source, arch)
    for report in done.reports.values():
        assert (report.spill_store_bytes, report.stack_bytes) == (0, 0), chosen
    ptx = compiled_source(source, arch, "ptx").binary.decode()
    multiplied = len(re.findall(r"\bdp4a\.\w32\.\w32\b", ptx))
    assert multiplied % (tiles.thread_fast * tiles.thread_slow * tiles.depth) == 0 < multiplied


@compiles
def test_the_machine_code_has_dot_products_of_bytes() -> None:
    source = made(PRODUCT, {**TILES, "stages": 2, "split": 1}).source
    try:
        code = disassembled(compiled_source(source, "sm_90").binary)
    except TargetError as error:
        pytest.skip(str(error))
    assert "IDP.4A" in code
    assert "LDL" not in code and "STL" not in code


def test_words_are_read_and_written_at_once() -> None:
    """Sixteen codes of a row of x and of packed weights, four of a row of the result."""
    source = made(LARGE["dense"], {**TILES, "tile_depth": 16, "stages": 1, "split": 1}).source
    body = source[source.rindex("main_kernel(") :]
    assert re.search(r"\*\(int4\*\)\(argument0", body)
    assert re.search(r"\*\(int4\*\)\(argument1", body)
    assert re.search(r"\*\(uint\*\)\(result", body)


@pytest.mark.parametrize("name", LARGE)
def test_facts_agree_with_the_text(name: str) -> None:
    for number in (3, 17):
        chosen = {**drawn(LARGE[name], number), "split": 1}
        check_facts_of_code(SPEC.name, LARGE[name], chosen, sectors=0.5)
