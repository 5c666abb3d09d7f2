// What compute capability 9.0a has for products that run beside the copies of their operands: barriers that count
// arrivals and bytes (mbarrier), the copy engine (TMA), and tensor cores that read shared memory themselves and are
// waited for later (wgmma). PTX ISA 8.0; the layouts are those of its chapter "Asynchronous Warpgroup Level Matrix
// Multiply-Accumulate Instructions". On other architectures a kernel that comes here traps.
//
// A warpgroup is four warps whose first one's number is a multiple of four; all 128 threads call what is said to be of
// the warpgroup. tests/cuda_emulator has another text of this header for the C++ compiler.
#pragma once
#include "scaffolding/backend/cuda/cluster.cuh"
#include "scaffolding/backend/cuda/mma.cuh"
#include "scaffolding/backend/cuda/tensor_map.h"

namespace sf::cuda {

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SF_HOPPER_ASM(...) __trap()
#else
#define SF_HOPPER_ASM(...) asm volatile(__VA_ARGS__)
#endif

// A barrier is 8 bytes of shared memory, 8-byte aligned. Its phase ends when `arrivals` threads have arrived and every
// byte that they expected is there; then the next one begins, which wants as many. Phases are told by their parity:
// the first is 0.
__device__ inline void init_barrier(SharedAddress barrier, unsigned arrivals) {
  SF_HOPPER_ASM("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// By the thread that made barriers, before the __syncthreads() behind which others use them.
__device__ inline void publish_barriers() { SF_HOPPER_ASM("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// Between blocks only reads are ordered, by tensor cores that were waited for, before copies that overwrite what was
// read: no write has to be seen, and the scope of a block does. A release to the cluster is a fence of the whole GPU,
// its acquisition empties the first-level cache. tests/ptx, which knows the rules of the PTX ISA alone, asks for that
// scope.
#ifdef SF_SCOPES_AS_WRITTEN
#define SF_CLUSTER_SCOPE "cluster"
#else
#define SF_CLUSTER_SCOPE "cta"
#endif

// At the barrier that block `rank` of the cluster has in this place; it must not have ended.
__device__ inline void arrive_at(SharedAddress barrier, unsigned rank) {
  [[maybe_unused]] SharedAddress there = 0;
  SF_HOPPER_ASM("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(barrier), "r"(rank));
  SF_HOPPER_ASM("mbarrier.arrive.release." SF_CLUSTER_SCOPE ".shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
}
// Arrives, and makes the phase wait for that many bytes of copies too.
__device__ inline void arrive_and_expect(SharedAddress barrier, unsigned bytes) {
  SF_HOPPER_ASM("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                : "memory");
}
// Until the phase of this parity has ended: that of the other parity, before the first phase, counts as ended. Behind
// it the thread sees what threads of its block did before they arrived, or those of its cluster.
#define SF_WAIT(name, scope)                                                    \
  __device__ inline void name(SharedAddress barrier, unsigned parity) {         \
    [[maybe_unused]] unsigned ended = 1;                                        \
    do {                                                                        \
      SF_HOPPER_ASM("{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire." scope \
                    ".shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"   \
                    : "=r"(ended)                                               \
                    : "r"(barrier), "r"(parity)                                 \
                    : "memory");                                                \
    } while (ended == 0);                                                       \
  }
SF_WAIT(wait_for_phase, "cta")
SF_WAIT(wait_for_cluster_phase, SF_CLUSTER_SCOPE)
#undef SF_WAIT

// By one thread: box (row, column), in elements, of the map's matrix into shared memory, 1024-byte aligned; its bytes
// count for the barrier's phase. Row r of the box is the 128 bytes from 128 r on; the 16 bytes number c of it are in
// place c ^ (r % 8). The map is a parameter of the kernel (const __grid_constant__).
__device__ inline void copy_box(SharedAddress to, const TensorMap& map, int row, int column, SharedAddress barrier) {
  SF_HOPPER_ASM(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}
// The same into the places that each block of `blocks` (a bit for each rank in the cluster) has there, and its bytes
// count for that block's barrier.
__device__ inline void copy_box_to(unsigned blocks, SharedAddress to, const TensorMap& map, int row, int column,
                                   SharedAddress barrier) {
  SF_HOPPER_ASM(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, "
      "%3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier), "h"(static_cast<unsigned short>(blocks))
      : "memory");
}
// The same from a map of heads (heads_map): of one head, from `row` and `column` on.
__device__ inline void copy_box_of_head(SharedAddress to, const TensorMap& map, int batch, int head, int row,
                                        int column, SharedAddress barrier) {
  SF_HOPPER_ASM(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(head), "r"(batch), "r"(barrier)
      : "memory");
}
__device__ inline void prefetch_map(const TensorMap& map) {
  SF_HOPPER_ASM("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// How tensor cores find a matrix of rows of 128 bytes along k, as copy_box leaves it: 8 rows every 1024 bytes, pieces
// of a row swizzled. `at` is the place of row 0 (1024-byte aligned) plus 32 for each 32 bytes of k.
__device__ inline uint64_t rows_along_k(SharedAddress at) {
  return uint64_t((at & 0x3ffff) >> 4) | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

// The same for a matrix whose rows lie along n, 16 of them (k) for a product: `at` is the place of the first one, of a
// box of 64 columns; the next 64 columns are `box_bytes` further on.
__device__ inline uint64_t rows_along_n(SharedAddress at, int box_bytes) {
  return uint64_t((at & 0x3ffff) >> 4) | uint64_t(box_bytes >> 4) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

// Of the warpgroup: before the first product, and before one whose sums other instructions have touched.
__device__ inline void begin_products() { SF_HOPPER_ASM("wgmma.fence.sync.aligned;" ::: "memory"); }
// Of the warpgroup: closes a group of products.
__device__ inline void commit_products() { SF_HOPPER_ASM("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Of the warpgroup: until at most the last `left` groups are under way. What they read must not change before, and
// their sums, which are given so that the compiler knows, must not be looked at before.
template <int left, int n> __device__ inline void wait_for_products(float (&sums)[n]) {
  SF_HOPPER_ASM("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// The same for registers that products read.
template <int n> __device__ inline void release_registers(uint32_t (&a)[n][4]) {
#pragma unroll
  for (int i = 0; i < 4 * n; ++i) asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}

// Of the warpgroup: c[64, N] = a[64, K] b[K, N] (+ c where `add`) of 32 bytes along k, 16 of BFloat16 or Half or 32 of
// Float8E4M3, read through rows_along_k: a's rows, and b's columns. Sums of float8 keep 13 bits of mantissa. Warp w of
// the warpgroup has rows 16 w..: lane l, in group g = l / 4 at place t = l % 4, has in c[4 j ..] the elements
// (g, 8 j + 2 t), (g, 8 j + 2 t + 1), (g + 8, 8 j + 2 t), (g + 8, 8 j + 2 t + 1).
template <class T, int N> __device__ void multiply_add_rows(float (&c)[N / 2], uint64_t a, uint64_t b, bool add);

// Of the warpgroup: c[64, N] += a[64, 16] b[16, N]. a is in registers, each two neighbours along k, as the sums of 16
// columns lie: (g, 2 t), (g + 8, 2 t), (g, 2 t + 8), (g + 8, 2 t + 8); they belong to the product until it is waited
// for (release_registers). b is read through rows_along_n.
template <class T, int N> __device__ void multiply_add_kept(float (&c)[N / 2], const uint32_t (&a)[4], uint64_t b);

#define SF_8(c, i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), SF_4(c, i + 4)
#define SF_4(c, i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define SF_40(c, i) SF_8(c, i), SF_8(c, i + 8), SF_8(c, i + 16), SF_8(c, i + 24), SF_8(c, i + 32)
#define SF_24(c) SF_8(c, 0), SF_8(c, 8), SF_8(c, 16)
#define SF_32(c) SF_24(c), SF_8(c, 24)
#define SF_48(c) SF_40(c, 0), SF_8(c, 40)
#define SF_64(c) SF_40(c, 0), SF_8(c, 40), SF_8(c, 48), SF_8(c, 56)
#define SF_80(c) SF_40(c, 0), SF_40(c, 40)
#define SF_128(c) SF_80(c), SF_40(c, 80), SF_8(c, 120)
// the same as places in the text of the instruction
#define SF_TEN(t) "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9"
#define SF_TEXT_40 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, " SF_TEN(1) ", " SF_TEN(2) ", " SF_TEN(3)
#define SF_TEXT_24 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, " SF_TEN(1) ", %20, %21, %22, %23"
#define SF_TEXT_32 SF_TEXT_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define SF_TEXT_48 SF_TEXT_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define SF_TEXT_64 SF_TEXT_40 ", " SF_TEN(4) ", " SF_TEN(5) ", %60, %61, %62, %63"
#define SF_TEXT_80 SF_TEXT_40 ", " SF_TEN(4) ", " SF_TEN(5) ", " SF_TEN(6) ", " SF_TEN(7)
#define SF_TEXT_128 \
  SF_TEXT_80 ", " SF_TEN(8) ", " SF_TEN(9) ", " SF_TEN(10) ", " SF_TEN(11) ", %120, %121, %122, %123, %124, %125, " \
                                                                           "%126, %127"
#define SF_ROWS(T, form, more, N, text, sums, first, second, adds)                                                     \
  template <> __device__ inline void multiply_add_rows<T, N>(float(&c)[N / 2], uint64_t a, uint64_t b, bool add) {     \
    SF_HOPPER_ASM("{\n.reg .pred p;\nsetp.ne.b32 p, " adds ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N form " {" text \
                  "}, " first ", " second ", p, 1, 1" more ";\n}"                                                      \
                  : sums                                                                                               \
                  : "l"(a), "l"(b), "r"(int(add)));                                                                    \
  }
#define SF_ROWS_OF(T, form, more)                                          \
  SF_ROWS(T, form, more, 80, SF_TEXT_40, SF_40(c, 0), "%40", "%41", "%42") \
  SF_ROWS(T, form, more, 128, SF_TEXT_64, SF_64(c), "%64", "%65", "%66")   \
  SF_ROWS(T, form, more, 160, SF_TEXT_80, SF_80(c), "%80", "%81", "%82")   \
  SF_ROWS(T, form, more, 256, SF_TEXT_128, SF_128(c), "%128", "%129", "%130")
SF_ROWS_OF(BFloat16, "k16.f32.bf16.bf16", ", 0, 0")
SF_ROWS_OF(Half, "k16.f32.f16.f16", ", 0, 0")
SF_ROWS_OF(Float8E4M3, "k32.f32.e4m3.e4m3", "")
#define SF_NARROW_ROWS_OF(T, form)                                          \
  SF_ROWS(T, form, ", 0, 0", 64, SF_TEXT_32, SF_32(c), "%32", "%33", "%34") \
  SF_ROWS(T, form, ", 0, 0", 96, SF_TEXT_48, SF_48(c), "%48", "%49", "%50")
SF_NARROW_ROWS_OF(BFloat16, "k16.f32.bf16.bf16")
SF_NARROW_ROWS_OF(Half, "k16.f32.f16.f16")
#define SF_KEPT(T, form, N, text, sums, a, b)                                                                       \
  template <> __device__ inline void multiply_add_kept<T, N>(float(&c)[N / 2], const uint32_t(&x)[4], uint64_t y) { \
    SF_HOPPER_ASM("wgmma.mma_async.sync.aligned.m64n" #N form " {" text "}, {" a "}, " b ", 1, 1, 1, 1;"            \
                  : sums                                                                                            \
                  : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(y));                                            \
  }
#define SF_KEPT_OF(T, form)                                                  \
  SF_KEPT(T, form, 48, SF_TEXT_24, SF_24(c), "%24, %25, %26, %27", "%28")    \
  SF_KEPT(T, form, 64, SF_TEXT_32, SF_32(c), "%32, %33, %34, %35", "%36")    \
  SF_KEPT(T, form, 80, SF_TEXT_40, SF_40(c, 0), "%40, %41, %42, %43", "%44") \
  SF_KEPT(T, form, 128, SF_TEXT_64, SF_64(c), "%64, %65, %66, %67", "%68")   \
  SF_KEPT(T, form, 160, SF_TEXT_80, SF_80(c), "%80, %81, %82, %83", "%84")   \
  SF_KEPT(T, form, 256, SF_TEXT_128, SF_128(c), "%128, %129, %130, %131", "%132")
SF_KEPT_OF(BFloat16, "k16.f32.bf16.bf16")
SF_KEPT_OF(Half, "k16.f32.f16.f16")
#undef SF_KEPT_OF
#undef SF_KEPT
#undef SF_NARROW_ROWS_OF
#undef SF_ROWS_OF
#undef SF_ROWS
#undef SF_TEXT_128
#undef SF_TEXT_80
#undef SF_TEXT_64
#undef SF_TEXT_48
#undef SF_TEXT_40
#undef SF_TEXT_32
#undef SF_TEXT_24
#undef SF_TEN
#undef SF_128
#undef SF_80
#undef SF_64
#undef SF_48
#undef SF_40
#undef SF_32
#undef SF_24
#undef SF_4
#undef SF_8

// Of the warpgroup: threads of a block share 64 Ki registers; those that only start copies leave theirs to the others.
// n: a multiple of 8 from 24 to 240.
template <int n> __device__ inline void keep_registers() {
  SF_HOPPER_ASM("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
}
template <int n> __device__ inline void take_registers() {
  SF_HOPPER_ASM("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
}

}  // namespace sf::cuda
