// The names of CUDA C++ that kernels use, for a C++ compiler of a CPU.
#pragma once
#include <cstddef>
// Without the special functions of C++17, which no GPU has: each text would load their templates.
#undef _GLIBCXX_USE_STD_SPEC_FUNCS
#include <cmath>
#include <cfloat>
#include <climits>
#include <math.h>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <type_traits>

#include "runtime.h"

#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __align__(n) __attribute__((aligned(n)))
#define alignas(n) __attribute__((aligned(n)))
#define __grid_constant__

#define threadIdx cuda_thread_index()
#define blockIdx cuda_block_index()
#define blockDim cuda_block_size()
#define gridDim cuda_grid_size()
static const int warpSize = 32;

// ------------------------------------------------------------------------------------ vector types

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef long long longlong;
typedef unsigned long long ulonglong;
typedef signed char schar;

#define VECTORS(name, type, align2, align4)                                                    \
  struct name##1 { type x; };                                                                  \
  struct __align__(align2) name##2 { type x, y; };                                             \
  struct name##3 { type x, y, z; };                                                            \
  struct __align__(align4) name##4 { type x, y, z, w; };                                       \
  static inline name##1 make_##name##1(type x) { return {x}; }                                 \
  static inline name##2 make_##name##2(type x, type y) { return {x, y}; }                      \
  static inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }           \
  static inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
VECTORS(char, schar, 2, 4)
VECTORS(uchar, uchar, 2, 4)
VECTORS(short, short, 4, 8)
VECTORS(ushort, ushort, 4, 8)
VECTORS(int, int, 8, 16)
VECTORS(uint, uint, 8, 16)
VECTORS(long, long, 16, 16)
VECTORS(ulong, ulong, 16, 16)
VECTORS(longlong, longlong, 16, 16)
VECTORS(ulonglong, ulonglong, 16, 16)
VECTORS(float, float, 8, 16)
VECTORS(double, double, 16, 16)
#undef VECTORS

// -------------------------------------------------------------------------------- half, bfloat16

typedef _Float16 half;
typedef _Float16 __half;
struct __align__(4) half2 {
  half x, y;
};
typedef half2 __half2;
static inline half2 make_half2(half x, half y) { return {x, y}; }
static inline half2 __halves2half2(half x, half y) { return {x, y}; }
static inline half __float2half(float x) { return half(x); }
static inline half __float2half_rn(float x) { return half(x); }
static inline float __half2float(half x) { return x; }
template <class To, class From>
static inline To cuda_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "of one size");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
static inline ushort __half_as_ushort(half x) { return cuda_bits<ushort>(x); }
static inline half __ushort_as_half(ushort x) { return cuda_bits<half>(x); }
static inline float __int_as_float(int x) { return cuda_bits<float>(x); }
static inline float __uint_as_float(uint x) { return cuda_bits<float>(x); }
static inline int __float_as_int(float x) { return cuda_bits<int>(x); }
static inline uint __float_as_uint(float x) { return cuda_bits<uint>(x); }
// cvt.rna.tf32: ten bits behind the point, to the nearest, halves away from zero.
static inline uint cuda_tf32(float x) {
  const uint bits = cuda_bits<uint>(x);
  return (bits >> 23 & 0xff) == 0xff ? bits : (bits + 0x1000) & ~0x1fffu;
}

struct nv_bfloat16 {
  uint16_t bits;
  nv_bfloat16() = default;
  nv_bfloat16(float value) {
    const uint32_t whole = cuda_bits<uint32_t>(value);
    bits = value != value ? 0x7fff : (whole + 0x7fff + (whole >> 16 & 1)) >> 16;
  }
  template <class T, class = typename std::enable_if<std::is_arithmetic<T>::value>::type>
  explicit nv_bfloat16(T value) : nv_bfloat16(float(value)) {}
  operator float() const { return cuda_bits<float>(uint32_t(bits) << 16); }
};
typedef nv_bfloat16 __nv_bfloat16;
struct __align__(4) nv_bfloat162 {
  nv_bfloat16 x, y;
  nv_bfloat162() = default;
  nv_bfloat162(nv_bfloat16 first, nv_bfloat16 second) : x(first), y(second) {}
};
typedef nv_bfloat162 __nv_bfloat162;
static inline nv_bfloat16 __float2bfloat16(float x) { return x; }
static inline nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
static inline float __bfloat162float(nv_bfloat16 x) { return x; }
static inline ushort __bfloat16_as_ushort(nv_bfloat16 x) { return x.bits; }

#define HALVES(type)                                                     \
  static inline bool __hgt(type a, type b) { return float(a) > float(b); } \
  static inline bool __hlt(type a, type b) { return float(a) < float(b); } \
  static inline type __habs(type a) { return type(fabsf(float(a))); }      \
  static inline type hexp(type a) { return type(expf(float(a))); }         \
  static inline type hexp2(type a) { return type(exp2f(float(a))); }       \
  static inline type hlog(type a) { return type(logf(float(a))); }         \
  static inline type hlog2(type a) { return type(log2f(float(a))); }       \
  static inline type hlog10(type a) { return type(log10f(float(a))); }     \
  static inline type hsqrt(type a) { return type(sqrtf(float(a))); }       \
  static inline type hrsqrt(type a) { return type(1 / sqrtf(float(a))); }  \
  static inline type hfloor(type a) { return type(floorf(float(a))); }     \
  static inline type hceil(type a) { return type(ceilf(float(a))); }       \
  static inline type htrunc(type a) { return type(truncf(float(a))); }     \
  static inline type hrint(type a) { return type(rintf(float(a))); }       \
  static inline type hsin(type a) { return type(sinf(float(a))); }         \
  static inline type hcos(type a) { return type(cosf(float(a))); }         \
  static inline type htanh(type a) { return type(tanhf(float(a))); }
HALVES(half)
HALVES(nv_bfloat16)
#undef HALVES

// ------------------------------------------------------------------------------------ arithmetic

#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_INF __builtin_inf()
#define CUDART_NAN __builtin_nan("")

// Of floating numbers they give the other operand where one is not a number.
template <class A, class B>
using cuda_common = typename std::enable_if<std::is_arithmetic<A>::value && std::is_arithmetic<B>::value,
                                            std::common_type<A, B>>::type::type;
template <class A, class B>
static inline cuda_common<A, B> max(A a, B b) {
  typedef cuda_common<A, B> T;
  if constexpr (std::is_floating_point<T>::value) return std::fmax(T(a), T(b));
  return T(a) > T(b) ? T(a) : T(b);
}
template <class A, class B>
static inline cuda_common<A, B> min(A a, B b) {
  typedef cuda_common<A, B> T;
  if constexpr (std::is_floating_point<T>::value) return std::fmin(T(a), T(b));
  return T(a) < T(b) ? T(a) : T(b);
}

#define rsqrtf(x) (1.0f / sqrtf(x))
#define rsqrt(x) (1.0 / sqrt(x))
static inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __tanhf(x) tanhf(x)
#define __exp10f(x) powf(10.0f, x)
#define exp10f(x) powf(10.0f, x)
#define __powf(x, y) powf(x, y)
static inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
static inline int __popc(uint x) { return __builtin_popcount(x); }
static inline int __popcll(ulonglong x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
static inline uint __umulhi(uint a, uint b) { return uint((ulonglong)a * b >> 32); }
static inline uint __byte_perm(uint a, uint b, uint selector) {
  ulonglong both = (ulonglong)b << 32 | a;
  uint found = 0;
  for (int i = 0; i < 4; i++) {
    uint byte = uint(both >> 8 * (selector >> 4 * i & 7)) & 255;
    if (selector >> 4 * i & 8) byte = byte & 128 ? 255 : 0;
    found |= byte << 8 * i;
  }
  return found;
}
template <class A, class B>
static inline int cuda_dot4(uint a, uint b, int sum) {
  for (int i = 0; i < 32; i += 8) sum += int(A(a >> i)) * int(B(b >> i));
  return sum;
}
static inline int __dp4a(int a, int b, int c) { return cuda_dot4<int8_t, int8_t>(a, b, c); }
static inline uint __dp4a(uint a, uint b, uint c) { return cuda_dot4<uint8_t, uint8_t>(a, b, c); }
template <class T>
static inline T __ldg(const T* from) { return *from; }

// ----------------------------------------------------------------------- barriers, lanes of a warp

#define __syncthreads() cuda_barrier(__LINE__)
#define __syncwarp(...) cuda_sync_lanes(__LINE__, ##__VA_ARGS__)
#define __activemask() cuda_active_mask(__LINE__)
#define __shfl_sync(...) cuda_shuffle<cuda_from_lane>(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) cuda_shuffle<cuda_from_below>(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) cuda_shuffle<cuda_from_above>(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) cuda_shuffle<cuda_from_crossed>(__LINE__, __VA_ARGS__)
#define __ballot_sync(...) cuda_ballot(__LINE__, __VA_ARGS__)
#define __any_sync(mask, predicate) (cuda_ballot(__LINE__, mask, predicate) != 0)
#define __all_sync(mask, predicate) (cuda_ballot(__LINE__, mask, !(predicate)) == 0)
#define __threadfence()
#define __threadfence_block()
#define __cvta_generic_to_shared(at) size_t(cuda_shared_address(at))
#define NOT_SEEN __attribute__((no_sanitize("thread")))

static inline void cuda_sync_lanes(int line, uint mask = 0xffffffffu) { cuda_warp_barrier(mask, line); }

struct cuda_shuffled {
  ulonglong value, result;
  int source;  // -1: the lane's own
};
NOT_SEEN static void cuda_exchange(void** own) {
  for (int lane = 0; lane < 32; ++lane) {
    if (!own[lane]) continue;
    cuda_shuffled& mine = *(cuda_shuffled*)own[lane];
    const int source = mine.source < 0 ? lane : mine.source;
    mine.result = own[source] ? ((cuda_shuffled*)own[source])->value : ~0ull;  // of no active lane
  }
}
static int cuda_from_lane(int lane, int source, int width) {
  return (lane & ~(width - 1)) + (source & (width - 1));
}
static int cuda_from_below(int lane, int delta, int width) {
  return (lane & (width - 1)) >= delta ? lane - delta : -1;
}
static int cuda_from_above(int lane, int delta, int width) {
  return (lane & (width - 1)) + delta < width ? lane + delta : -1;
}
static int cuda_from_crossed(int lane, int bits, int width) {
  const int source = lane ^ bits;
  return (source & ~(width - 1)) > (lane & ~(width - 1)) ? -1 : source;
}
template <int (*from)(int, int, int), class T>
static inline T cuda_shuffle(int line, uint mask, T value, int which, int width = 32) {
  static_assert(sizeof(T) <= 8, "values of up to 8 bytes are exchanged");
  cuda_shuffled own = {0, 0, from(cuda_lane(), which, width)};
  memcpy(&own.value, &value, sizeof value);
  cuda_meet(mask, line, "a shuffle", &own, cuda_exchange);
  memcpy(&value, &own.result, sizeof value);
  return value;
}

struct cuda_vote {
  uint yes, result;
};
NOT_SEEN static void cuda_count(void** own) {
  uint votes = 0;
  for (int lane = 0; lane < 32; ++lane)
    if (own[lane] && ((cuda_vote*)own[lane])->yes) votes |= 1u << lane;
  for (int lane = 0; lane < 32; ++lane)
    if (own[lane]) ((cuda_vote*)own[lane])->result = votes;
}
static inline uint cuda_ballot(int line, uint mask, int predicate) {
  cuda_vote own = {predicate != 0, 0};
  cuda_meet(mask, line, "a vote", &own, cuda_count);
  return own.result;
}

// Threads take turns, so that a plain step is an atomic one.
#define ATOMIC(name, step)                                      \
  template <class T, class V>                                   \
  NOT_SEEN static T name(T* at, V given) {                      \
    cuda_atomic(at, sizeof(T));                                 \
    const T old = *at, value = T(given);                        \
    *at = step;                                                 \
    return old;                                                 \
  }
ATOMIC(atomicAdd, old + value)
ATOMIC(atomicSub, old - value)
ATOMIC(atomicMax, old > value ? old : value)
ATOMIC(atomicMin, old < value ? old : value)
ATOMIC(atomicExch, value)
ATOMIC(atomicOr, old | value)
ATOMIC(atomicAnd, old & value)
#undef ATOMIC
template <class T>
NOT_SEEN static T atomicCAS(T* at, T expected, T value) {
  cuda_atomic(at, sizeof(T));
  const T old = *at;
  if (old == expected) *at = value;
  return old;
}

// --------------------------------------------------------------------- matrices of a warp (wmma)

namespace nvcuda {
namespace wmma {
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

// Which lane holds which element is nobody's business: lane l holds elements l * n to l * n + n - 1
// of the rows, one after the other.
template <class Use, int M, int N, int K, class T, class Layout = row_major>
struct fragment {
  static constexpr int rows = std::is_same<Use, matrix_b>::value ? K : M;
  static constexpr int columns = std::is_same<Use, matrix_a>::value ? K : N;
  static constexpr int num_elements = rows * columns / 32;
  T x[num_elements];
  static int place(int element, unsigned stride, bool by_columns) {
    const int row = element / columns, column = element % columns;
    return by_columns ? column * stride + row : row * stride + column;
  }
};

template <class F, class T>
static inline void fill_fragment(F& into, T value) {
  for (auto& x : into.x) x = value;
}
template <class Use, int M, int N, int K, class T, class Layout>
static inline void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& into, const T* from, unsigned stride) {
  for (int i = 0; i < into.num_elements; ++i)
    into.x[i] = from[into.place(cuda_lane() * into.num_elements + i, stride,
                                std::is_same<Layout, col_major>::value)];
}
template <int M, int N, int K, class T>
static inline void load_matrix_sync(fragment<accumulator, M, N, K, T>& into, const T* from,
                                    unsigned stride, layout_t layout) {
  for (int i = 0; i < into.num_elements; ++i)
    into.x[i] = from[into.place(cuda_lane() * into.num_elements + i, stride, layout == mem_col_major)];
}
template <int M, int N, int K, class T>
static inline void store_matrix_sync(T* to, const fragment<accumulator, M, N, K, T>& from,
                                     unsigned stride, layout_t layout) {
  for (int i = 0; i < from.num_elements; ++i)
    to[from.place(cuda_lane() * from.num_elements + i, stride, layout == mem_col_major)] = from.x[i];
}

template <class D, class A, class B, class C>
struct operands {
  D* d;
  const A* a;
  const B* b;
  const C* c;
};
template <int M, int N, int K, class D, class A, class B, class C>
NOT_SEEN static void multiply(void** own) {
  typedef operands<D, A, B, C> Of;
  for (int lane = 0; lane < 32; ++lane)
    if (!own[lane]) return;
  float sums[M * N];
  for (int row = 0; row < M; ++row)
    for (int column = 0; column < N; ++column) {
      const int at = row * N + column;
      float sum = ((Of*)own[at / C::num_elements])->c->x[at % C::num_elements];
      for (int k = 0; k < K; ++k) {
        const int left = row * K + k, right = k * N + column;
        sum += float(((Of*)own[left / A::num_elements])->a->x[left % A::num_elements]) *
               float(((Of*)own[right / B::num_elements])->b->x[right % B::num_elements]);
      }
      sums[at] = sum;
    }
  for (int at = 0; at < M * N; ++at)
    ((Of*)own[at / D::num_elements])->d->x[at % D::num_elements] = sums[at];
}
template <int M, int N, int K, class T, class TA, class LA, class TB, class LB, class TC>
static inline void cuda_mma_sync(int line, fragment<accumulator, M, N, K, T>& d,
                                 const fragment<matrix_a, M, N, K, TA, LA>& a,
                                 const fragment<matrix_b, M, N, K, TB, LB>& b,
                                 const fragment<accumulator, M, N, K, TC>& c) {
  typedef fragment<accumulator, M, N, K, T> D;
  typedef fragment<matrix_a, M, N, K, TA, LA> A;
  typedef fragment<matrix_b, M, N, K, TB, LB> B;
  typedef fragment<accumulator, M, N, K, TC> C;
  operands<D, A, B, C> own = {&d, &a, &b, &c};
  cuda_meet(0xffffffffu, line, "mma_sync", &own, multiply<M, N, K, D, A, B, C>);
}
#define mma_sync(...) cuda_mma_sync(__LINE__, __VA_ARGS__)
}  // namespace wmma
}  // namespace nvcuda
