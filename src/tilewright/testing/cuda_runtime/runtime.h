// What a kernel's text calls while it is executed on a CPU. `line` is a line of the text, for
// messages, and tells two places of the text apart.
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" {

struct cuda_triple {
  unsigned x, y, z;
};

// Of the running thread, and of the launch. They stay the same while a kernel's function runs.
cuda_triple cuda_thread_index() __attribute__((const));
cuda_triple cuda_block_index() __attribute__((const));
cuda_triple cuda_block_size() __attribute__((const));
cuda_triple cuda_grid_size() __attribute__((const));
unsigned cuda_lane() __attribute__((const));

// All threads of the block; the lanes of a mask; the lanes that are here together.
void cuda_barrier(int line);
void cuda_warp_barrier(unsigned mask, int line);
unsigned cuda_active_mask(int line);

// Lanes of a mask meet, and `perform` runs once for all of them: it gets what each gave as `own`,
// null for those that are not there.
typedef void (*cuda_performed)(void** own);
void cuda_meet(unsigned mask, int line, const char* what, void* own, cuda_performed perform);

// Shared memory: where the dynamic part begins, and addresses as PTX counts them.
void* cuda_dynamic_shared();
uint32_t cuda_shared_address(const void* generic);
void* cuda_generic_address(uint32_t shared);

// cp.async: bytes beyond `source_bytes` become zero.
void cuda_copy_async(uint32_t to, const void* from, int bytes, int source_bytes);
void cuda_copy_commit();
void cuda_copy_wait(int groups_left);

// ldmatrix of 1, 2 or 4 matrices of 8x8 halves.
void cuda_load_matrix(uint32_t row, int matrices, bool transposed, uint32_t* into, int line);

// mma.sync.m16n8: registers of the operands; `kind` is one of "f16", "bf16", "tf32", "s8", "u8".
struct cuda_product {
  const char* kind;
  int a_registers, b_registers;
  bool half_sums;
  uint32_t a[4], b[2], c[4], d[4];
};
void cuda_multiply(cuda_product* product, int line);

// An atomic access, which is ordered against all others.
void cuda_atomic(const void* address, size_t bytes);

}
