"""Integer convolutions against numpy: every result is exact."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.fakes.placements import altered, with_cache
from helpers.kernels.one_kernel import PLACEMENT
from helpers.networks.graph_builder import run_fused
from helpers.networks.tiny_networks import quantized_resnet
from tilewright.compiler.build import rendered
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.core.forms import PLAIN, Form, blocked, stored_in
from tilewright.core.records import Candidate, Placement
from tilewright.graph.arrange import arrange
from tilewright.graph.evaluate import run_workload
from tilewright.graph.fuse import FusedNetwork
from tilewright.graph.network import TensorType, attributes
from tilewright.graph.tasks import fused_network
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.hardware.device import local_placement
from tilewright.kernels.codes import dot_lanes
from tilewright.kernels.conv2d_int8 import SPEC
from tilewright.kernels.convolution import convolution
from tilewright.kernels.estimates import facts as facts_of
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.int8_case import int8_case, int8_forms
from tilewright.kernels.search_space import KnobSpace, each
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.checking import rounding_of, sample_arguments
from tilewright.measure.targeting import placement_of
from tilewright.models.loading import load_model

HERE = local_placement()
PLACEMENTS = [PLACEMENT, HERE] if dot_lanes(HERE.target) else [PLACEMENT]
needs_dots = pytest.mark.skipif(not dot_lanes(HERE.target), reason="no dot products of bytes here")


def conv(
    data: TensorType,
    filters: int,
    kernel: tuple[int, int],
    epilogue: bool,
    result: str = "int8",
    **named,
) -> Workload:
    """Bare sums, or with a bias and requantized to bytes."""
    given_ = {"strides": (1, 1), "padding": (0,) * 4, "dilation": (1, 1), "groups": 1, **named}
    weight = TensorType((filters, data.shape[1] // given_["groups"], *kernel), "int8")
    constants = [weight]
    steps = [Step(operator="conv2d", inputs=(0, 1), attributes=attributes(**given_))]
    if epilogue:
        constants += [TensorType((filters, 1, 1), "int32"), TensorType((filters, 1, 1))]
        able = np.iinfo(result)
        limits = attributes(minimum=float(able.min), maximum=float(able.max))
        steps += [
            Step(operator="add", inputs=(4, 2)),
            Step(operator="cast", inputs=(5,), attributes=attributes(dtype="float32")),
            Step(operator="multiply", inputs=(6, 3)),
            Step(operator="round", inputs=(7,)),
            Step(operator="clip", inputs=(8,), attributes=limits),
            Step(operator="cast", inputs=(9,), attributes=attributes(dtype=result)),
        ]
    arguments = (Argument(type=data), *(Argument(type=t, role="constant") for t in constants))
    return Workload(arguments=arguments, steps=tuple(steps))


def chosen(
    task: Workload, placement: Placement, forms: tuple[Form, ...], choice: int | None
) -> Candidate:
    """The candidate with the best estimate, or number `choice`."""
    space = KnobSpace(
        knobs=SPEC.knobs(task, placement.target, placement.resources, forms),
        accepts=each(lambda s: SPEC.valid(task, placement.target, placement.resources, forms, s)),
    )
    found = [space.settings(number) for number in space]
    estimates = facts_of(SPEC, task, placement.target, placement.resources, forms, found)[
        "estimate_s"
    ]
    best = found[int(np.argmin(estimates)) if choice is None else choice % len(found)]
    return Candidate(implementation=SPEC.name, settings=tuple(sorted(best.items())), forms=forms)


def check(
    task: Workload, placement: Placement, data: Form, result: Form, choice: int | None = None
):
    """Assert that the kernel gives numpy's result; the candidate."""
    forms = (data, *(PLAIN,) * (len(task.arguments) - 1), result)
    candidate = chosen(task, placement, forms, choice)
    arrays = sample_arguments(task, 0)
    kernel = build_kernel(task, candidate, placement.target, placement.resources)
    result_array = kernel.run(arrays)
    np.testing.assert_array_equal(result_array, run_workload(task, arrays), err_msg=str(candidate))
    return candidate


def fitting(block: int, channels: int) -> Form:
    return blocked(block) if block and channels % block == 0 else PLAIN


@needs_dots
@pytest.mark.parametrize(
    ("channels", "width", "padding", "strides", "dilation", "dtype"),
    [
        (3, 32, (3, 3, 3, 3), (2, 2), (1, 1), "int8"),
        (4, 8, (0, 9, 1, 0), (1, 1), (1, 1), "uint8"),
        (1, 12, (1, 5, 0, 2), (1, 2), (1, 2), "int8"),
        (2, 16, (0, 0, 0, 0), (3, 3), (1, 1), "int8"),
    ],
)
def test_codes_of_few_channels_are_copied_as_words(
    channels, width, padding, strides, dilation, dtype
):
    """Whatever the border on the left is, which is filled up to whole vectors."""
    data = TensorType((2, channels, 9, width), dtype)
    named = {"padding": padding, "strides": strides, "dilation": dilation}
    task = conv(data, 16, (3, 3), True, "uint8", **named)
    used = check(task, HERE, PLAIN, blocked(16))
    vector = SPEC.pixels_at_once(convolution(task), used.forms, dict(used.settings))
    by_words = dict(used.settings)["dot"] == "vnni"
    assert vector == (next(n for n in (16, 8, 4) if width % n == 0) if by_words else 0)
    text = rendered(task, used, HERE.target, HERE.resources, "tir")
    assert bool(re.search(r'copy\w* = .*"uint32"', text)) == by_words


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    dtype=st.sampled_from(["int8", "uint8"]),
    channels=st.sampled_from([3, 4, 8, 10, 16, 32]),
    filters=st.sampled_from([6, 8, 16, 20, 48]),
    extents=st.tuples(st.integers(5, 13), st.integers(5, 13)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    padding=st.one_of(st.just((0,) * 4), st.tuples(*[st.integers(0, 2)] * 4)),
    dilation=st.sampled_from([(1, 1), (1, 1), (1, 2)]),
    blocks=st.tuples(st.sampled_from([0, 4, 5, 16]), st.sampled_from([0, 8, 16])),
    epilogue=st.booleans(),
    result=st.sampled_from(["int8", "uint8"]),
    choice=st.one_of(st.none(), st.integers(0, 10_000)),
    placement=st.sampled_from(PLACEMENTS),
)
def test_random_geometries(
    dtype, channels, filters, extents, kernel, strides, padding, dilation, blocks, epilogue,
    result, choice, placement,
):  # fmt: skip
    task = conv(
        TensorType((1, channels, *extents), dtype), filters, kernel, epilogue, result,
        strides=strides, padding=padding, dilation=dilation,
    )  # fmt: skip
    check(task, placement, fitting(blocks[0], channels), fitting(blocks[1], filters), choice)


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_groups(dtype: str, placement: Placement):
    task = conv(
        TensorType((2, 16, 7, 9), dtype), 32, (3, 3), True, padding=(1,) * 4, groups=2
    )  # fmt: skip
    check(task, placement, blocked(8), blocked(16))
    check(task, placement, PLAIN, PLAIN)


@needs_dots
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("kernel", [1, 3])
def test_the_fused_case_is_vector_code_throughout(kernel: int, dtype: str):
    _, fused = int8_case(kernel, data=dtype)
    forms = int8_forms(fused, HERE.target)
    candidate = check(fused, HERE, forms[0], forms[-1])
    text = rendered(fused, candidate, HERE.target, HERE.resources, "asm")
    assert "vpdpbusd" in text
    for vector in ("vcvtdq2ps", "vmaxps", "vminps", "vcvtps2dq"):
        assert vector in text, vector
    assert not re.search(r"\bv(cvtsi2ss|roundss|rndscaless|cvtt?ss2si|maxss|minss)l?\b", text)


@needs_dots
def test_sums_begin_with_the_bias_and_bytes_saturate_as_they_are_stored():
    task = conv(TensorType((1, 16, 4, 28), "uint8"), 32, (1, 1), True, "uint8")
    candidate = check(task, HERE, blocked(16), blocked(16))
    text = rendered(task, candidate, HERE.target, HERE.resources, "asm")
    assert not re.search(r"vpaddd\s.*%zmm", text)
    assert "vpmovusdb" in text and "vminps" not in text


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("result", ["int8", "uint8"])
def test_what_is_beyond_all_integers_is_the_nearest_code(result: str, placement: Placement):
    task = conv(TensorType((1, 16, 4, 4), "uint8"), 16, (1, 1), True, result)
    forms = (blocked(16), *(PLAIN,) * 3, blocked(16))
    arrays = [*sample_arguments(task, 0)[:3], np.full((16, 1, 1), 3e8, np.float32)]
    kernel = build_kernel(
        task, chosen(task, placement, forms, None), placement.target, placement.resources
    )
    found = kernel.run(arrays)
    np.testing.assert_array_equal(found, run_workload(task, arrays))
    assert {int(found.min()), int(found.max())} == {np.iinfo(result).min, np.iinfo(result).max}


@needs_dots
def test_long_tiles_are_vector_code_too():
    """More pixels than LLVM spells out and joins to vectors by itself."""
    task = conv(TensorType((1, 32, 8, 112), "uint8"), 16, (1, 1), True)
    forms = (blocked(16), *(PLAIN,) * 3, blocked(16))
    knobs = {"lanes": 16, "dot": "vnni", "tile_width": 28, "tile_height": 1, "tile_out": 1}
    settings = tuple(sorted({**knobs, "order": "channels"}.items()))
    candidate = Candidate(implementation=SPEC.name, settings=settings, forms=forms)
    text = rendered(task, candidate, HERE.target, HERE.resources, "asm")
    assert "vpmovdb" in text
    assert "vpextrb" not in text


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(
    ("cpu", "lanes", "register"),
    [
        ("cascadelake", 16, "zmm"),
        ("cascadelake", 8, "ymm"),
        ("cascadelake", 4, "xmm"),
        ("alderlake", 8, "ymm"),
        ("alderlake", 4, "xmm"),
    ],
)
def test_dot_products_of_processors_that_need_not_be_here(
    cpu: str, lanes: int, register: str, dtype: str
):
    """Each instruction takes four bytes of the input, which it reads together and spreads over the
    lanes, and a register of weights; signed bytes are flipped to unsigned ones before."""
    placement = placement_of(f"llvm -mcpu={cpu}", None, 1)
    task = conv(TensorType((1, 16, 4, 4), dtype), lanes, (1, 1), False)
    candidate = chosen(task, placement, (blocked(16), PLAIN, blocked(lanes)), 0)
    assert dict(candidate.settings)["dot"] == "vnni"
    text = rendered(task, candidate, placement.target, placement.resources, "asm")
    dots = re.findall(r"vpdpbusd\s+%(\w)mm\d+, %(\w)mm\d+, %(\w)mm\d+", text)
    assert dots and set(dots) == {(register[0],) * 3}
    read = re.findall(r"(?:vpbroadcastd|movl)\s+(\d*)\(%r\w+,%r\w+\)", text)
    assert len(read) == len(dots) and {int(offset or 0) % 4 for offset in read} == {0}
    flips = len(re.findall(r"\bxorl\s", text)) * (f"${0x80808080 - (1 << 32)}," in text)
    assert flips >= len(dots) if dtype == "int8" else flips == 0
    assert not re.search(r"\bvp(mul|madd)", text), "nothing is multiplied otherwise"


@pytest.mark.parametrize("cpu", ["skylake-avx512", "haswell", "x86-64-v2"])
def test_processors_without_dot_products_widen_bytes(cpu: str):
    placement = placement_of(f"llvm -mcpu={cpu}", None, 1)
    assert dot_lanes(placement.target) == ()
    task = conv(TensorType((1, 16, 4, 4), "int8"), 8, (1, 1), False)
    candidate = chosen(task, placement, (blocked(16), PLAIN, PLAIN), 0)
    assert dict(candidate.settings)["dot"] == "widen"
    text = rendered(task, candidate, placement.target, placement.resources, "asm")
    assert "vpdpbusd" not in text and "pmul" in text


CLIENTS = [
    pytest.param(cpu, marks=pytest.mark.skipif(unit not in HERE.target.features, reason="not here"))
    for cpu, unit in (("haswell", "avx2"), ("alderlake", "avxvnni"))
]
"""Processors with registers of 256 bits, without dot products and with; kernels for them run
here."""


@pytest.mark.parametrize("cpu", CLIENTS)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_processors_of_256_bits_compute_the_same_codes(cpu: str, dtype: str):
    placement = placement_of(f"llvm -mcpu={cpu}", None, 1)
    task = conv(TensorType((1, 32, 9, 9), dtype), 48, (3, 3), True, padding=(1,) * 4)
    candidate = check(task, placement, blocked(8), blocked(8))
    text = rendered(task, candidate, placement.target, placement.resources, "asm")
    assert "%zmm" not in text
    assert ("vpdpbusd" in text) == (cpu == "alderlake")
    assert "vpmaddubsw" not in text, "it saturates"


@needs_dots
def test_weights_are_fetched_ahead_beside_a_full_register_tile():
    """The branch around the fetches keeps LLVM from loading the weights of several steps first, for
    which there are no registers beside 28 sums."""
    here = altered(HERE, **with_cache(HERE.target, 2, 64))
    task = conv(TensorType((1, 64, 4, 28), "uint8"), 128, (1, 1), True)
    forms = (blocked(16), *(PLAIN,) * 3, blocked(16))
    knobs = {"lanes": 16, "dot": "vnni", "tile_width": 14, "tile_height": 1, "tile_out": 2}
    settings = tuple(sorted({**knobs, "order": "channels"}.items()))
    candidate = Candidate(implementation=SPEC.name, settings=settings, forms=forms)
    arrays = sample_arguments(task, 0)
    found = build_kernel(task, candidate, here.target, here.resources).run(arrays)
    np.testing.assert_array_equal(found, run_workload(task, arrays))
    text = rendered(task, candidate, here.target, here.resources, "asm")
    steps = text[text.index("vpdpbusd") : text.rindex("vpdpbusd")]
    assert "prefetcht1" in text
    assert not re.search(r"%zmm\d+, -?\d*\(%rsp", steps), "no sum goes to memory in between"


def largest_sums(result: Form, placement: Placement) -> np.ndarray:
    """What a kernel makes of the largest codes by the least weights, 64 of each."""
    task = conv(TensorType((1, 64, 4, 4), "uint8"), 16, (1, 1), False)
    candidate = check(task, placement, blocked(16), result)
    arrays = [np.full(a.type.shape, v, a.type.dtype)
              for a, v in zip(task.arguments, (255, -128), strict=True)]  # fmt: skip
    return build_kernel(task, candidate, placement.target, placement.resources).run(arrays)


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("result", [PLAIN, blocked(16)])
def test_the_largest_sums_do_not_saturate(result: Form, placement: Placement):
    """Nor do they where there are no dot products: pairs of products of bytes would in 16 bits."""
    assert (largest_sums(result, placement) == -255 * 128 * 64).all()


@pytest.mark.parametrize("cpu", CLIENTS)
def test_the_largest_sums_do_not_saturate_in_256_bits(cpu: str):
    placement = placement_of(f"llvm -mcpu={cpu}", None, 1)
    assert (largest_sums(blocked(8), placement) == -255 * 128 * 64).all()


@pytest.fixture(scope="module")
def quantized() -> FusedNetwork:
    """A small quantized network of residual blocks; its scales are powers of two."""
    return fused_network(load_model(quantized_resnet("basic_1_1"), "tiny").graph)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_kernels_of_a_quantized_network_are_exact(quantized: FusedNetwork, placement: Placement):
    image = np.random.default_rng(0).standard_normal((1, 3, 48, 48), dtype=np.float32)
    tensors = run_fused(quantized, {"input": image})
    residual = 0
    forms = choose_forms(quantized, placement.target, placement.resources)
    for item in arrange(quantized, forms).calls:
        task, call = item.call.workload, item.call
        candidate = default_candidate(task, item.forms, placement)[0]
        values = {**tensors, **quantized.graph.constants}
        arrays = [
            values[name].reshape(argument.type.shape)
            for name, argument in zip(call.inputs, task.arguments, strict=True)
        ]
        result = build_kernel(task, candidate, placement.target, placement.resources).run(arrays)
        wanted = tensors[call.output].reshape(task.result.shape)
        np.testing.assert_array_equal(result, wanted, err_msg=call.name)
        if sum(a.role == "data" for a in task.arguments) == 2:
            assert candidate.implementation in (SPEC.name, "conv2d_amx_int8")
            assert [a.type.dtype for a in task.arguments if a.role == "data"] == ["uint8"] * 2
            assert str(wanted.dtype) in ("uint8", "float32")
            residual += 1
    assert residual == 2


def residual(last: Step) -> tuple[Workload, list[np.ndarray]]:
    """The sum of a convolution and an earlier result, both on codes of any scale, of which `last`
    makes codes again or numbers; and arrays for it."""
    kind, column = TensorType((1, 32, 14, 14), "uint8"), TensorType((32, 1, 1))
    one = TensorType(())
    data = {0: kind, 4: kind}
    kinds = [kind, TensorType((32, 32, 3, 3), "int8"), column, one, kind, one, one]
    arguments = tuple(
        Argument(type=t, role="data" if i in data else "constant") for i, t in enumerate(kinds)
    )
    limits = attributes(minimum=-128.0, maximum=127.0)
    convolve = attributes(strides=(1, 1), padding=(1,) * 4, dilation=(1, 1), groups=1)
    to_float = attributes(dtype="float32")
    steps = [
        ("conv2d", (0, 1), convolve), ("cast", (7,), to_float), ("multiply", (8, 2), ()),
        ("round", (9,), ()), ("clip", (10,), limits), ("multiply", (11, 3), ()),
        ("cast", (4,), to_float), ("multiply", (13, 5), ()), ("add", (12, 14), ()),
        ("divide", (15, 6), ()), ("round", (16,), ()),
        ("clip", (17,), attributes(minimum=0.0, maximum=255.0)),
    ]  # fmt: skip
    task = Workload(
        arguments=arguments,
        steps=(*(Step(operator=o, inputs=i, attributes=a) for o, i, a in steps), last),
    )
    rng = np.random.default_rng(0)
    return task, [
        rng.integers(0, 256, kind.shape).astype("uint8"),
        rng.integers(-64, 64, (32, 32, 3, 3)).astype("int8"),
        rng.uniform(1e-4, 3e-4, (32, 1, 1)).astype("float32"),
        np.asarray(0.043, "float32"),
        rng.integers(0, 256, kind.shape).astype("uint8"),
        np.asarray(0.031, "float32"),
        np.asarray(0.057, "float32"),
    ]


@needs_dots
@pytest.mark.parametrize("choice", [None, 5])
def test_a_residual_of_any_scales_is_off_by_one_code_at_most(choice: int | None):
    to_codes = attributes(dtype="uint8")
    task, arrays = residual(Step(operator="cast", inputs=(18,), attributes=to_codes))
    forms = (blocked(16), *(PLAIN,) * 3, blocked(16), PLAIN, PLAIN, blocked(16))
    candidate = chosen(task, HERE, forms, choice)
    result = build_kernel(task, candidate, HERE.target, HERE.resources).run(arrays)
    wanted = run_workload(task, arrays)
    assert np.abs(result.astype(int) - wanted).max() <= 1
    assert np.mean(result != wanted) < 1e-3
    assert len(np.unique(wanted)) > 100
    text = rendered(task, candidate, HERE.target, HERE.resources, "asm")
    assert text.count("vdiv") == 1, "the inverse of a scale is computed ahead of the loops"


@needs_dots
@pytest.mark.parametrize("stored", ["bfloat16", "float16"])
def test_a_residual_on_codes_is_stored_in_halves(stored: str):
    """What is rounded binds names itself: the sum, before and after it is limited."""
    task, arrays = residual(Step(operator="multiply", inputs=(18, 6)))
    result = stored_in(blocked(16), stored)
    forms = (blocked(16), *(PLAIN,) * 3, blocked(16), PLAIN, PLAIN, result)
    candidate = chosen(task, HERE, forms, None)
    found = build_kernel(task, candidate, HERE.target, HERE.resources).run(arrays)
    wanted = run_workload(task, arrays)
    one_code = float(arrays[6])
    off = np.abs(found.astype(np.float32) - wanted)
    rounding = np.abs(wanted) * rounding_of(result)
    assert (off <= one_code + rounding).all()
    assert np.mean(off > rounding) < 1e-3
    assert len(np.unique(wanted)) > 100
