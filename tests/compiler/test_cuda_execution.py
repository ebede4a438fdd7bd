"""CUDA text on the CPU: what comes out, and what is caught."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - numpy's bfloat16
import numpy as np
import pytest

from helpers.commands.fenced_blocks import blocks
from tilewright.core.scratch import PrivateFolder
from tilewright.graph.network import Array
from tilewright.hardware.gpus import CudaLaunch
from tilewright.testing import cuda_execution
from tilewright.testing.cuda_execution import (
    KernelFault,
    compiler,
    cuda_executable,
)

executed = pytest.mark.skipif(compiler() is None, reason="no C++ compiler executes CUDA text here")
SEEDS = (0, 1, 2)
UNORDERED = "(a race|which no thread has written|still under way)"
"""What is said where a barrier is missing: it depends on which thread came first."""


def run(
    text: str,
    arrays: Mapping[str, Array],
    *scalars: float,
    grid: int = 1,
    block: int | tuple[int, int, int] = 32,
    **more: Any,
) -> None:
    """The only kernel of a text on these arrays and then these numbers, in three orders."""
    program = cuda_executable(text)
    (name,) = program.functions
    launch = CudaLaunch(
        kernel=name,
        grid=(grid, 1, 1),
        block=block if isinstance(block, tuple) else (block, 1, 1),
        arguments=(*arrays, *scalars),
        **more,
    )
    for seed in SEEDS:
        program.run([launch], arrays, seed=seed)


def read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


def numbers(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def unknown(*shape: int) -> Array:
    return np.full(shape, np.nan, np.float32)


# ------------------------------------------------------------------------------- what comes out

VECTORS = """
extern "C" __global__ void __launch_bounds__(64) scale(float* __restrict__ out,
                                                       const float* __restrict__ in, float by) {
  int at = ((int)blockIdx.x) * 256 + ((int)threadIdx.x) * 4;
  float4 v = *(float4*)(in + at);
  *(float4*)(out + at) = make_float4(v.x * by, v.y * by, v.z * by, max(v.w * by, 0.0f));
}
"""

MEAN = """
extern "C" __global__ void mean(float* out, const float* in, int n) {
  __shared__ alignas(16) float part[4];
  float sum = 0.0f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += in[blockIdx.x * n + i];
  uint mask = __activemask();
  for (int by = 16; by > 0; by /= 2) sum = sum + __shfl_down_sync(mask, sum, by, 32);
  if (((int)threadIdx.x) % 32 == 0) part[((int)threadIdx.x) >> 5] = sum;
  __syncthreads();
  if (threadIdx.x < 4) {
    mask = __activemask();
    sum = part[threadIdx.x];
    sum += __shfl_xor_sync(mask, sum, 2);
    sum += __shfl_xor_sync(mask, sum, 1);
  }
  if (threadIdx.x == 0) out[blockIdx.x] = __shfl_sync(1, sum, 0) / n;
}
"""

COUNTS = """
__global__ void count(int* counts, const int* values) {
  __shared__ int here[8];
  if (threadIdx.x < 8) here[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&here[values[blockIdx.x * blockDim.x + threadIdx.x]], 1);
  __syncthreads();
  if (threadIdx.x < 8) atomicAdd(counts + threadIdx.x, here[threadIdx.x]);
}
"""

PRODUCT = """
#include <cuda_fp16.h>
extern "C" __global__ void product(float* c, const half* a, const half* b) {
  __shared__ alignas(16) half left[256];
  extern __shared__ __align__(1024) unsigned char right[];
  int lane = threadIdx.x;
  ((uint4*)left)[lane] = ((const uint4*)a)[lane];
  if (lane < 16) ((uint4*)right)[lane] = ((const uint4*)b)[lane];
  __syncthreads();
  unsigned ra[4], rb[2];
  {
    unsigned int addr = __cvta_generic_to_shared(left + (lane % 16) * 16 + lane / 16 * 8);
    __asm__ __volatile__(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
      "{%0, %1, %2, %3}, [%4];\\n"
      : "=r"((ra)[0]), "=r"((ra)[1]), "=r"((ra)[2]), "=r"((ra)[3])
      : "r"(addr)
    );
  }
  unsigned at;
  asm volatile ("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }"
    : "=r"(at) : "l"((half*)right + lane % 16 * 8));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
    : "=r"(rb[0]), "=r"(rb[1]) : "r"(at));
  float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};\\n"
    : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
    : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]),
      "f"(d[0]), "f"(d[1]), "f"(d[2]), "f"(d[3]));
  for (int i = 0; i < 4; ++i)
    c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = d[i];
}
"""

FRAGMENTS = """
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void fragments(float* c, half* a, half* b) {
  nvcuda::wmma::fragment<wmma::matrix_a, 16, 16, 16, half, nvcuda::wmma::row_major> left[1];
  nvcuda::wmma::fragment<wmma::matrix_b, 16, 16, 16, half, nvcuda::wmma::col_major> right[1];
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> sum[1];
  nvcuda::wmma::fill_fragment(sum[0], 1.0f);
  nvcuda::wmma::load_matrix_sync(left[0], a, 16);
  nvcuda::wmma::load_matrix_sync(right[0], b, 16);
  nvcuda::wmma::mma_sync(sum[0], left[0], right[0], sum[0]);
  nvcuda::wmma::store_matrix_sync(c, sum[0], 16, nvcuda::wmma::mem_row_major);
}
"""


@executed
def test_vectors_scalars_and_blocks() -> None:
    given, out = numbers(3 * 256), unknown(3 * 256)
    run(VECTORS, {"out": out, "in": read_only(given)}, 2.0, grid=3, block=64)
    expected = 2 * given
    expected[3::4] = np.maximum(expected[3::4], 0)
    np.testing.assert_array_equal(out, expected)


@executed
def test_some_blocks_of_many() -> None:
    given, out = numbers(40 * 256), unknown(40 * 256)
    launch = CudaLaunch(
        kernel="scale", grid=(40, 1, 1), block=(64, 1, 1), arguments=("out", "in", 2.0)
    )
    cuda_executable(VECTORS).run([launch], {"out": out, "in": given}, blocks=7)
    written = np.isfinite(out).reshape(40, 256)
    assert written.all(1).sum() == written.any(1).sum() == 7
    assert not written[:7].all()


@executed
def test_lanes_exchange_values() -> None:
    given, out = numbers(5, 300), unknown(5)
    run(MEAN, {"out": out, "in": given}, 300, grid=5, block=128)
    np.testing.assert_allclose(out, given.mean(1), rtol=1e-4, atol=1e-6)


@executed
def test_atomic_operations_lose_nothing() -> None:
    values = np.random.default_rng(1).integers(0, 8, 600).astype(np.int32)
    counts = np.zeros(8, np.int32)
    run(COUNTS, {"counts": counts, "values": values}, grid=3, block=200)
    np.testing.assert_array_equal(counts, len(SEEDS) * np.bincount(values, minlength=8))


@executed
def test_matrices_of_a_warp() -> None:
    left, right = numbers(16, 16).astype(np.float16), numbers(16, 8).astype(np.float16)
    out = unknown(16, 8)
    run(PRODUCT, {"c": out, "a": left, "b": right}, dynamic_shared_bytes=256)
    np.testing.assert_allclose(out, left.astype(float) @ right.astype(float), rtol=1e-5, atol=1e-5)


KINDS = {
    "f32.f16.f16.f32": (8, 2, 2, "float16"),
    "f16.f16.f16.f16": (16, 2, 4, "float16"),
    "f32.bf16.bf16.f32": (16, 2, 4, "bfloat16"),
    "f32.tf32.tf32.f32": (8, 4, 4, "float32"),
    "s32.s8.s8.s32": (32, 1, 4, "int8"),
    "s32.u8.u8.s32": (32, 1, 4, "uint8"),
}
"""By the types of a matrix instruction: depth, bytes of an element, registers of the left operand,
the type of both operands."""


def instruction(types: str) -> str:
    """A kernel of one warp that multiplies 16 rows with 8 columns, both with the depth inmost, with
    registers filled as the manual of PTX says."""
    depth, size, registers, _ = KINDS[types]
    sums, half = types.split(".")[0], types.startswith("f16")
    left = ", ".join(f'"r"(ra[{i}])' for i in range(registers))
    right = ", ".join(f'"r"(rb[{i}])' for i in range(registers // 2))
    letter, count = ("r", 2) if half else ("r" if sums == "s32" else "f", 4)
    kind = "unsigned" if half else "int" if sums == "s32" else "float"
    out = "half" if half else kind
    written = ", ".join(f'"={letter}"(d[{i}])' for i in range(count))
    read = ", ".join(f'"{letter}"(d[{i}])' for i in range(count))
    places = [count, registers, registers // 2, count]
    numbers = iter(range(sum(places)))
    operands = ", ".join(
        "{" + ", ".join(f"%{next(numbers)}" for _ in range(n)) + "}" for n in places
    )
    per = 4 // size
    return f"""extern "C" __global__ void multiply({out}* c, const char* a, const char* b) {{
      int group = threadIdx.x / 4, in = threadIdx.x % 4 * {per};
      unsigned ra[4], rb[2];
      for (int r = 0; r < {registers}; ++r)
        ra[r] = *(unsigned*)(a + ((group + r % 2 * 8) * {depth} + in + r / 2 * {4 * per}) * {size});
      for (int r = 0; r < {registers // 2}; ++r)
        rb[r] = *(unsigned*)(b + (group * {depth} + in + r * {4 * per}) * {size});
      {kind} d[4] = {{0, 0, 0, 0}};
      asm volatile("mma.sync.aligned.m16n8k{depth}.row.col.{types} {operands};"
        : {written} : {left}, {right}, {read});
      for (int i = 0; i < 4; ++i)
        c[(group + i / 2 * 8) * 8 + threadIdx.x % 4 * 2 + i % 2] = (({out}*)d)[i];
    }}"""


@executed
@pytest.mark.parametrize("types", KINDS)
def test_matrix_instructions_of_all_types(types: str) -> None:
    depth, _, _, dtype = KINDS[types]
    rng = np.random.default_rng(3)
    low = 0 if dtype == "uint8" else -8
    left, right = (rng.integers(low, 9, (rows, depth)).astype(np.float32) for rows in (16, 8))
    kept = [array.astype(np.dtype(dtype)) for array in (left, right)]
    kind = {"f32": np.float32, "f16": np.float16, "s32": np.int32}[types.split(".")[0]]
    out = np.full((16, 8), 7777, kind)
    run(instruction(types), {"c": out, "a": kept[0], "b": kept[1]})
    np.testing.assert_array_equal(out, left @ right.T)


@executed
def test_fragments_of_a_warp() -> None:
    left, right = (numbers(2, 16, 16)[i].astype(np.float16) for i in range(2))
    out = unknown(16, 16)
    run(FRAGMENTS, {"c": out, "a": left, "b": right})
    expected = 1 + left.astype(float) @ right.astype(float).T
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


# ------------------------------------------------------------------------------ what is caught

TURNED = """
__global__ void turned(float* out, const float* in) {
  __shared__ float row[256];
  for (int i = 0; i < 2; ++i) {
    row[threadIdx.x] = in[i * 256 + threadIdx.x];
    __syncthreads();
    out[i * 256 + threadIdx.x] = row[255 - threadIdx.x];
    __syncthreads();
  }
}
"""

PIPELINE = """
__forceinline__ __device__ void copy(void* dst, int dst_off, void* src, int src_off,
                                     int predicate) {
  uint8_t* dst_p = (uint8_t*)dst + dst_off * 4;
  uint8_t* src_p = (uint8_t*)src + src_off * 4;
  unsigned int dst_addr = __cvta_generic_to_shared(dst_p);
  __asm__ __volatile__(
    "{\\n"
    " .reg .pred p;\\n"
    " setp.eq.u32 p, %3, 1;\\n"
    " @p cp.async.cg.shared.global [%0], [%1], %2;\\n"
    " @!p st.shared.v4.u32 [%0], {%4, %4, %4, %4};\\n"
    "}\\n"
    :: "r"(dst_addr), "l"(src_p), "n"(16), "r"(predicate), "r"(0)
  );
}
extern "C" __global__ void __launch_bounds__(64) pipeline(float* out, float* in, int steps) {
  __shared__ alignas(16) float tiles[3][256];
  int me = threadIdx.x;
  float sum = 0.0f;
  for (int i = 0; i < 2; ++i) {
    copy(tiles[i], me * 4, in, i * 256 + me * 4, me < 60);
    asm volatile("cp.async.commit_group;");
  }
  for (int i = 0; i < steps; ++i) {
    asm volatile("cp.async.wait_group 1;");
    __syncthreads();
    sum += tiles[i % 3][255 - me];
    if (i + 2 < steps) copy(tiles[(i + 2) % 3], me * 4, in, (i + 2) * 256 + me * 4, me < 60);
    asm volatile("cp.async.commit_group;");
  }
  out[me] = sum;
}
"""


@executed
def test_a_pipeline_of_asynchronous_copies() -> None:
    given, out = numbers(7, 256), unknown(64)
    run(PIPELINE, {"out": out, "in": given}, 7, block=64)
    expected = np.where(np.arange(256) < 240, given, 0).sum(0)[::-1][:64]
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


@executed
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("wait_group 1", "wait_group 2"), "asynchronous copy is still under way"),
        (("wait_group 1;", "commit_group;"), "asynchronous copy is still under way"),
        (("    __syncthreads();\n", "\n"), UNORDERED),
        (("tiles[3]", "tiles[2]"), "a race"),
        (("% 3]", "% 2]"), "a race"),
        (("in, i * 256 + me * 4", "in, i * 256 + me * 4 + 1"), "no multiple of 16"),
        (("if (i + 2 < steps) ", ""), "which has 7168 bytes"),
    ],
)
def test_a_wrong_pipeline_is_caught(wrong: tuple[str, str], said: str) -> None:
    text = PIPELINE.replace(*wrong).replace("% 3]", "% 2]" if "tiles[2]" in wrong else "% 3]")
    with pytest.raises(KernelFault, match=said):
        run(text, {"out": unknown(64), "in": numbers(7, 256)}, 7, block=64)


@executed
@pytest.mark.parametrize("barrier", [0, 1])
def test_each_barrier_is_missed(barrier: int) -> None:
    given, out = numbers(2, 256), unknown(2, 256)
    run(TURNED, {"out": out, "in": given}, block=256)
    np.testing.assert_array_equal(out, given[:, ::-1])
    parts = TURNED.split("    __syncthreads();\n")
    text = "".join(
        part + ("    __syncthreads();\n" if place not in (barrier, 2) else "")
        for place, part in enumerate(parts)
    )
    with pytest.raises(KernelFault, match=r"turned: thread \(\d+, 0, 0\) .*" + UNORDERED):
        run(text, {"out": out, "in": given}, block=256)


FAULTS = {
    "in[threadIdx.x + 1]": "reads 4 bytes at byte 256 of in, which has 256 bytes",
    "in[(int)threadIdx.x - 1]": "reads 4 bytes at byte -4 of in",
    "((float4*)in)[threadIdx.x].x": "byte 256 of in",
    "([=] { float4 v = *(float4*)(in + 1); return v.x + v.w; })()": "no multiple of 16",
    "(in[threadIdx.x] = 1.0f)": "writes to in, which it may only read",
    "kept[threadIdx.x]": "static shared memory, which no thread has written",
    "kept[(kept[threadIdx.x % 32] = 1.0f) > 0 ? threadIdx.x : 0]": "which no thread has written",
    "*(float*)(size_t)4096": "outside all memory",
    "kept[threadIdx.x + 64]": "bytes at byte 2.. of static shared memory, of which there are 256",
    "more[threadIdx.x]": "of dynamic shared memory, of which there are 0",
    "__shfl_sync(0xffffu, 1.0f, 0)": "to which its lane 16 does not belong",
    "(threadIdx.x < 32 ? __shfl_sync(threadIdx.x % 2 ? ~0u : 0xffffu, 1.0f, 0) : 0.0f)": "mask",
}


@executed
@pytest.mark.parametrize("value", FAULTS)
def test_a_fault_says_where_and_what(value: str) -> None:
    text = f"""__global__ void wrong(float* out, float* in) {{
      extern __shared__ float more[];
      __shared__ float kept[64];
      float value = {value};
      kept[threadIdx.x] = value;
      out[threadIdx.x] = value + kept[threadIdx.x];
    }}"""
    given = read_only(numbers(64))
    with pytest.raises(KernelFault, match=FAULTS[value]):
        run(text, {"out": unknown(64), "in": given}, block=64)


@executed
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("if (threadIdx.x < 40) { __syncthreads(); }", "24 threads ended without the barrier"),
        (
            "if (threadIdx.x < 32) {\n __syncthreads();\n } else {\n __syncthreads(); }",
            "barrier of line",
        ),
        ("if (threadIdx.x < 5) __syncthreads(); else __shfl_sync(~0u, 1, 0);", "lane 5 of warp 0"),
    ],
)
def test_a_barrier_that_some_never_reach(body: str, said: str) -> None:
    with pytest.raises(KernelFault, match=said):
        run(f"__global__ void stuck(float* out) {{ {body} }}", {"out": unknown(1)}, block=64)


@executed
def test_writes_of_the_same_value_are_no_race() -> None:
    text = """__global__ void same(float* out) {
      __shared__ float one[1];
      one[0] = WHAT;
      __syncthreads();
      out[threadIdx.x] = one[0];
    }"""
    out = unknown(64)
    run(text.replace("WHAT", "3.0f"), {"out": out}, block=64)
    assert (out == 3).all()
    with pytest.raises(KernelFault, match="a race"):
        run(text.replace("WHAT", "threadIdx.x"), {"out": out}, block=64)


@executed
def test_a_barrier_of_a_warp_orders_its_lanes_only() -> None:
    text = """__global__ void near(float* out) {
      __shared__ float row[64];
      row[threadIdx.x] = threadIdx.x;
      __syncwarp();
      out[threadIdx.x] = row[threadIdx.x ^ WHICH];
    }"""
    out = unknown(64)
    run(text.replace("WHICH", "1"), {"out": out}, block=64)
    np.testing.assert_array_equal(out, np.arange(64) ^ 1)
    with pytest.raises(KernelFault, match=UNORDERED):
        run(text.replace("WHICH", "32"), {"out": out}, block=64)
    with pytest.raises(KernelFault, match=UNORDERED):
        run(text.replace("WHICH", "1").replace("__syncwarp();", ""), {"out": out}, block=64)


def test_the_runtime_is_compiled_once_for_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []

    def run(arguments: list[str], what: str) -> None:
        compiled.append(what)
        Path(arguments[-1]).write_text("an object file")

    own = PrivateFolder(tmp_path, "own-")
    monkeypatch.setattr(cuda_execution, "_run", run)
    monkeypatch.setattr(cuda_execution, "_folder", lambda: own)
    in_a_new_process = cuda_execution._runtime.__wrapped__
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    assert in_a_new_process() == in_a_new_process()
    assert compiled == ["the runtime"]
    for number, nowhere in enumerate(("/proc/nowhere", str(tmp_path / ("long" * 99)))):
        monkeypatch.setenv("TILEWRIGHT_CACHE", nowhere)
        assert in_a_new_process().read_text() == "an object file"
        assert len(compiled) == 2 + number


def test_what_is_kept_of_a_header_is_made_of_files_that_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clang refuses one whose sources are gone, as a process's own folder is after it."""
    asked: list[str] = []

    def run(arguments: list[str], _: str) -> None:
        asked.extend(arguments)
        Path(arguments[-1]).touch()

    own = PrivateFolder(tmp_path, "own-")
    monkeypatch.setattr(cuda_execution, "_run", run)
    monkeypatch.setattr(cuda_execution, "_folder", lambda: own)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    header = cuda_execution._header.__wrapped__("-O0")
    assert header.is_relative_to(own.path) and str(header) not in asked
    assert Path(f"{header}.gch").resolve().is_relative_to(tmp_path / "cache")


@executed
def test_the_example_of_the_reference() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cuda-execution.md"
    code = blocks(page)[0].code
    exec(compile(code, page.name, "exec"), {})
    with pytest.raises(KernelFault, match=UNORDERED):
        exec(compile(code.replace("__syncthreads();", ""), page.name, "exec"), {})
