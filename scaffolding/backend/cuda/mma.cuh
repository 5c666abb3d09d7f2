// Instructions of the GPU (compute capability 8.0 and later) that C++ has no name for: tensor cores, copies to shared
// memory that run beside the arithmetic, conversions of two numbers at once. PTX ISA 7.0 and later; fragment layouts
// are those of its chapter "Warp Level Matrix Multiply-Accumulate Instructions":
// lane l is in group g = l / 4 at place t = l % 4.
//
// All 32 lanes of a warp call what is said to be of the warp.
// tests/cuda_emulator has another text of this header for the C++ compiler.
#pragma once
#include <cuda_runtime.h>

#include "scaffolding/core/dtype.h"

namespace sf::cuda {

using SharedAddress = uint32_t;  // in bytes, in the window of shared memory

// The block's dynamic shared memory, 16-byte aligned.
__device__ inline unsigned char* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char sf_dynamic_shared[];
  return sf_dynamic_shared;
}
__device__ inline SharedAddress shared_address(const void* p) { return SharedAddress(__cvta_generic_to_shared(p)); }

// Of the warp: four matrices of 8 x 8 16-bit elements. Lane l gives the address (16-byte aligned) of row l % 8 of
// matrix l / 8, and gets in r[m] the elements (g, 2t) and (g, 2t + 1) of matrix m.
__device__ inline void load_matrices(uint32_t (&r)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}
// The same with each matrix transposed: elements (2t, g) and (2t + 1, g).
__device__ inline void load_matrices_turned(uint32_t (&r)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}

// Of the warp: c += a b with a[16, 16], b[16, 8] of BFloat16 or Half, c[16, 8] of float.
// a: (g, 2t..) (g + 8, 2t..) (g, 2t + 8..) (g + 8, 2t + 8..), two elements each; b: (2t.., g) (2t + 8.., g); c: (g,
// 2t..) (g + 8, 2t..).
template <class T> __device__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ inline void multiply_add<BFloat16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <> __device__ inline void multiply_add<Half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Of the warp: the same with a[16, 8], b[8, 8] of floats, of which the instruction reads the upper 19 bits (TF32).
// a: (g, t) (g + 8, t) (g, t + 4) (g + 8, t + 4); b: (t, g) (t + 4, g).
template <>
__device__ inline void multiply_add<float>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// The bits of a float rounded to TF32.
__device__ inline uint32_t tf32_bits(float x) {
  uint32_t r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
}

// 16 bytes from device to shared memory, both 16-byte aligned; zeros when not `exists`. There when the thread has
// waited for the group of the copy, for other threads behind a barrier after that.
__device__ inline void copy_async(SharedAddress to, const void* from, bool exists) {
  int bytes = exists ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)),
               "r"(bytes)
               : "memory");
}
// Closes the thread's group of copies; waits until at most the last `all_but` groups are under way.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int all_but> __device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(all_but) : "memory");
}

// Two floats rounded to 16 bits, the first in the lower half.
template <class T> __device__ uint32_t pack(float low, float high);
template <> __device__ inline uint32_t pack<BFloat16>(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
template <> __device__ inline uint32_t pack<Half>(float low, float high) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// 2^x in one instruction: relative error below 2^-22, results below 2^-126 are 0.
__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// x, unknown to the compiler: what is computed from it is computed anew,
// not kept in registers over a loop that has none to spare.
__device__ inline int computed_again(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

}  // namespace sf::cuda
