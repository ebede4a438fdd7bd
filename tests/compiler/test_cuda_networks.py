"""Networks on a GPU: planned, compiled to CUDA C++, executed on the CPU, against numpy."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from msgspec import structs

from helpers.networks.cuda_networks import (
    PLACEMENT,
    by_tvm,
    check_cuda_network,
    check_outputs,
    compiled,
    loaded,
    planned,
)
from helpers.networks.graph_builder import Builder
from helpers.networks.random_graphs import POOL, graphs
from tilewright.compiler import cuda_network
from tilewright.compiler.cuda.compilers import Compiled, compiled_source
from tilewright.compiler.cuda.execute import LoadedCudaNetwork, require_architecture
from tilewright.compiler.cuda.network import (
    LIBRARY,
    CudaNetwork,
    Place,
    read_network,
    write_network,
)
from tilewright.core.errors import DamagedArtifact, InputError, TargetError
from tilewright.graph.evaluate import run_graph
from tilewright.graph.inputs import random_inputs
from tilewright.graph.network import Graph
from tilewright.graph.workload import Workload
from tilewright.hardware.gpus import CudaLaunch, CudaProgram
from tilewright.testing.cuda_execution import compiler
from tilewright.testing.simulated_driver import H100, SimulatedDriver

pytestmark = pytest.mark.skipif(
    compiler() is None, reason="no C++ compiler executes CUDA text here"
)


def residual() -> Graph:
    """Convolutions with a residual between them, pooling, a dense layer."""
    b = Builder()
    x = b.add("relu", b.conv(b.input(1, 8, 6, 6), 8))
    x = b.add("relu", b.conv(x, 8))
    x = b.add("relu", b.add("add", b.conv(x, 8), x))
    pooled = b.add("reduce_mean", x, axes=(2, 3), keepdims=False)
    return b.graph(b.add("dense", pooled, b.weight(8, 5)))


def transformer() -> Graph:
    """A block of a transformer: layer norm, attention of two heads, a layer with GELU."""
    b = Builder()
    x = b.input(1, 6, 8)
    normed = b.add("layer_norm", x, b.weight(8), b.weight(8), axis=2, epsilon=1e-5)
    heads = [
        b.add(
            "transpose",
            b.add("reshape", b.add("dense", normed, b.weight(8, 8)), shape=(1, 6, 2, 4)),
            permutation=order,
        )
        for order in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
    ]
    scores = b.add("softmax", b.add("batch_matmul", *heads[:2], transpose_b=False), axis=3)
    mixed = b.add(
        "transpose",
        b.add("batch_matmul", scores, heads[2], transpose_b=False),
        permutation=(0, 2, 1, 3),
    )
    x = b.add("add", x, b.add("reshape", mixed, shape=(1, 6, 8)))
    wide = b.add("gelu", b.add("dense", x, b.weight(8, 16)))
    return b.graph(b.add("add", x, b.add("dense", wide, b.weight(16, 8))))


def fire() -> Graph:
    """A convolution and a function that write one concatenation in place."""
    b = Builder()
    x = b.input(1, 4, 8, 8)
    joined = b.add("concat", b.add("relu", b.conv(x, 4)), b.add("tanh", x), axis=1)
    return b.graph(b.add("max_pool2d", joined, **POOL))


@pytest.mark.parametrize("build", [residual, transformer, fire])
def test_small_networks(build: Callable[[], Graph]) -> None:
    check_cuda_network(build())


@given(graphs())
@settings(max_examples=4, deadline=None)
def test_random_networks(graph: Graph) -> None:
    check_cuda_network(graph, seed=1)


def chain() -> Graph:
    """Functions one after the other, cheap to execute."""
    b = Builder()
    x = b.input(1, 40)
    return b.graph(b.add("softmax", b.add("dense", b.add("tanh", x), b.weight(40, 12)), axis=1))


@pytest.fixture(scope="module")
def network() -> CudaNetwork:
    return compiled(planned(chain())[0])


def test_equal_texts_are_one_module_and_launches_name_it() -> None:
    plan, _ = planned(residual())
    network = compiled(plan)
    assert [name for name, _ in network.calls] == [call.name for call in plan.calls]
    assert len(network.modules) == len(plan.symbols) < len(plan.calls)
    first, second = (it for it in network.launches if it.call < 2)
    assert first.module == second.module
    assert first.arrays["result"] == second.arrays["argument0"]


def test_memory_is_the_plans_with_words_and_workspaces_around_it() -> None:
    plan, _ = planned(transformer(), by_tvm)
    network = compiled(plan)
    device = plan.only_lane.device
    outputs = {
        each.call: each.arrays["result"] for each in network.launches if "result" in each.arrays
    }
    for number, place in outputs.items():
        root = plan.tensors[plan.calls[number].output].root
        if place.memory == "arena":
            assert place.offset_bytes == plan.memory[device].offsets[root]
    taken = sum(network.workspaces.values())
    assert taken > 0, "attention in the default schedule takes several kernels"
    assert plan.arena_bytes < network.arena_bytes <= plan.arena_bytes + 2 * taken


def test_what_several_kernels_keep_between_them_is_not_overwritten() -> None:
    """Pieces of one call are apart in the arena, and all of it is right when executed."""
    graph = transformer()
    plan, weights = planned(graph, by_tvm)
    network = compiled(plan)
    attention = next(n for n, (name, _) in enumerate(network.calls) if "attention" in name)
    launches = [each for each in network.launches if each.call == attention]
    assert len(launches) > 1
    places = [place for each in launches for place in each.arrays.values()]
    own = sorted({(it.offset_bytes, it.bytes) for it in places if it.memory == "arena"})
    for (begin, size), (following, _) in zip(own, own[1:], strict=False):
        assert begin + size <= following
    inputs = random_inputs(graph, 0)
    outputs = LoadedCudaNetwork(network, weights, SimulatedDriver(seed=2))(list(inputs.values()))
    check_outputs(graph, outputs, run_graph(graph, inputs))


def test_a_file_holds_all_of_a_network(network: CudaNetwork, tmp_path: Path) -> None:
    path = tmp_path / LIBRARY
    write_network(network, path)
    assert read_network(path) == network
    again = tmp_path / "again"
    write_network(read_network(path), again)
    assert path.read_bytes() == again.read_bytes()
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    kernels = [f"{it.name}{ending}" for it in network.modules for ending in (".cubin", ".cu")]
    assert names == ["network.json", *kernels]


def test_what_is_read_runs_as_what_was_written(network: CudaNetwork, tmp_path: Path) -> None:
    write_network(network, tmp_path / LIBRARY)
    graph = chain()
    loaded = LoadedCudaNetwork(
        read_network(tmp_path / LIBRARY), planned(graph)[1], SimulatedDriver()
    )
    inputs = random_inputs(graph, 3)
    check_outputs(graph, loaded(list(inputs.values())), run_graph(graph, inputs))


@pytest.mark.parametrize("part", [0.0, 0.3, 0.98])
def test_a_truncated_file_is_damaged(network: CudaNetwork, tmp_path: Path, part: float) -> None:
    path = tmp_path / LIBRARY
    write_network(network, path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(part * len(whole))])
    with pytest.raises(DamagedArtifact, match="damaged"):
        read_network(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 9}, "format is 9"),
        ({"calls": ()}, "is not whole"),
    ],
)
def test_a_changed_file_is_damaged(
    network: CudaNetwork, tmp_path: Path, change: dict[str, object], said: str
) -> None:
    write_network(replace(network, **change), tmp_path / LIBRARY)
    with pytest.raises(DamagedArtifact, match=said):
        read_network(tmp_path / LIBRARY)


def test_a_place_beyond_its_memory_is_damage(network: CudaNetwork, tmp_path: Path) -> None:
    first = network.launches[0]
    beyond = Place(memory="input", offset_bytes=1 << 20, bytes=4)
    changed = replace(first, arrays={**first.arrays, "argument0": beyond})
    write_network(replace(network, launches=(changed, *network.launches[1:])), tmp_path / LIBRARY)
    with pytest.raises(DamagedArtifact, match="outside"):
        read_network(tmp_path / LIBRARY)


def test_inputs_of_another_shape_or_type_are_refused() -> None:
    network = loaded(chain())
    with pytest.raises(InputError, match=r"'x0' is float32\[1, 41\].*float32\[1,40\]"):
        network([np.zeros((1, 41), np.float32)])
    with pytest.raises(InputError, match="float64"):
        network([np.zeros((1, 40))])
    with pytest.raises(InputError, match="0 arrays given for 1 inputs"):
        network([])


@pytest.mark.parametrize(
    ("compiled_for", "card", "runs"),
    [
        ("sm_90", "sm_90", True),
        ("sm_80", "sm_86", False),
        ("sm_80", "sm_90", False),
        ("sm_90a", "sm_90", True),
        ("sm_100a", "sm_103", False),
        ("sm_90", "sm_100", False),
    ],
)
def test_architectures(compiled_for: str, card: str, runs: bool) -> None:
    if runs:
        require_architecture(compiled_for, card)
        return
    with pytest.raises(TargetError, match=f"compiled for {compiled_for}, the GPU here is {card}"):
        require_architecture(compiled_for, card)


def test_a_cubin_for_another_architecture_is_not_loaded(network: CudaNetwork) -> None:
    old = SimulatedDriver(replace(H100, capability=(8, 0)))
    with pytest.raises(TargetError, match="compiled for sm_90, the GPU here is sm_80"):
        LoadedCudaNetwork(network, planned(chain())[1], old)


def test_too_little_memory_is_said(network: CudaNetwork) -> None:
    small = SimulatedDriver(replace(H100, memory_bytes=1 << 10))
    with pytest.raises(TargetError, match=r"needs .* of the GPU's memory, of which 1"):
        LoadedCudaNetwork(network, planned(chain())[1], small)


def test_memory_is_given_back() -> None:
    driver = SimulatedDriver()
    free = driver.free_bytes()
    plan, weights = planned(chain())
    network = compiled(plan)
    loaded = LoadedCudaNetwork(network, weights, driver)
    assert free - driver.free_bytes() == network.memory_bytes
    loaded.close()
    assert driver.free_bytes() == free


def test_times_are_of_the_graph_and_of_each_call() -> None:
    """The simulated clock goes by launches: 10 µs each."""
    graph = chain()
    network = loaded(graph)
    given = list(random_inputs(graph, 0).values())
    assert network.time(given, 3, 1) == pytest.approx([3e-5] * 3)
    told = network.time_calls(given, 3)
    assert [symbol.split("_", 2)[2] for symbol, _ in told] == ["elementwise", "dense", "softmax"]
    assert [seconds for _, seconds in told] == pytest.approx([1e-5] * 3)
    assert network.repeat(given, 0.0) >= 1


def test_a_call_of_several_launches_has_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum in two kernels, with what is between them in the arena."""
    text = """
extern "C" __global__ void parts(float* out, const float* in) {
  float sum = 0;
  for (int i = threadIdx.x; i < 40; i += 4) sum += in[i];
  out[threadIdx.x] = sum;
}
extern "C" __global__ void whole(float* out, const float* in) {
  out[threadIdx.x] = in[0] + in[1] + in[2] + in[3];
}
"""
    one, four = (1, 1, 1), (4, 1, 1)
    program = CudaProgram(
        source=text,
        launches=(
            CudaLaunch(kernel="parts", grid=one, block=four, arguments=("kept", "argument0")),
            CudaLaunch(kernel="whole", grid=one, block=one, arguments=("result", "kept")),
        ),
        workspaces={"kept": (4, "float32")},
    )
    own = cuda_network.program_of

    def program_of(workload: Workload, *others: object) -> CudaProgram:
        summed = workload.anchor_name == "reduce_sum"
        return program if summed else own(workload, *others)

    monkeypatch.setattr(cuda_network, "program_of", program_of)
    b = Builder()
    summed = b.add("reduce_sum", b.input(1, 40), axes=(1,), keepdims=True)
    graph = b.graph(b.add("softmax", b.add("concat", summed, summed, axis=1), axis=1), summed)
    check_cuda_network(graph)
    told = loaded(graph).time_calls([np.ones((1, 40), np.float32)], 2)
    assert [seconds for _, seconds in told] == pytest.approx([2e-5, *[1e-5] * (len(told) - 1)])


def looked_up() -> Graph:
    """Rows of a table by indices that the network computes."""
    b = Builder()
    index = b.add("add", b.input(1, 3, dtype="int64"), b.constant(np.int64(1)))
    return b.graph(b.add("gather", b.weight(5, 4), index, axis=0))


def test_indices_within_their_range_are_used_as_they_are() -> None:
    graph = looked_up()
    network = loaded(graph)
    for values in ([-6, 0, 3], [-2, 3, 1]):
        inputs = {"x0": np.array([values])}
        check_outputs(graph, network([inputs["x0"]]), run_graph(graph, inputs))


@pytest.mark.parametrize("values", [[0, 4, 0], [-7, 0, 0], [1 << 40, 1, 1]])
def test_an_index_out_of_range_is_an_error_of_the_input(values: list[int]) -> None:
    network = loaded(looked_up())
    with pytest.raises(InputError, match=r"'node1' is given an index that is not in -5 … 4"):
        network([np.array([values])])
    assert network([np.array([[0, 0, 0]])])[0].shape == (1, 3, 4), "the next run is right again"


def test_a_text_that_is_refused_names_its_kernel() -> None:
    plan, _ = planned(chain())
    with pytest.raises(TargetError, match="the CUDA text of kernel_0_elementwise cannot be comp"):
        cuda_network.network_of(plan, PLACEMENT.target, lambda *_: Compiled(reason="no compiler"))


def test_calls_that_no_cuda_kernel_computes_are_refused_by_name() -> None:
    plan, _ = planned(chain())
    island = structs.replace(plan.calls[1].candidate, implementation="onnxruntime")
    calls = (plan.calls[0], replace(plan.calls[1], candidate=island), *plan.calls[2:])
    with pytest.raises(TargetError, match=r"'node1' .*computed by 'onnxruntime'"):
        cuda_network.network_of(
            replace(plan, calls=calls), PLACEMENT.target, lambda *_: Compiled(binary=b"x")
        )


def test_it_is_compiled_for_the_targets_architecture() -> None:
    """By nvcc or NVRTC, where one of them is."""
    plan, _ = planned(chain())
    if not compiled_source('extern "C" __global__ void f() {}', "sm_90").binary:
        pytest.skip("nothing here compiles CUDA C++")
    network = cuda_network.network_of(plan, PLACEMENT.target, compiled_source)
    assert network.arch == "sm_90"
    assert all(module.binary[:4] == b"\x7fELF" for module in network.modules)
