"""Our kernels as PTX: a .cu without its host functions, or a header, with instances and a kernel that fills in the
parameters by their names in C++, so that their layout is the compiler's."""

import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).parents[2]
# cmake/cuda.cmake has the same
FLAGS = ["-ptx", "-arch=sm_90a", "-std=c++20", f"-I{ROOT}", "--expt-relaxed-constexpr", "-diag-suppress=186",
         "-DSF_SCOPES_AS_WRITTEN"]  # fmt: skip
# source, where its host functions begin, what follows instead
UNITS = {
    "attention": (
        "attention/attention_mma.cu",
        "\nvoid forward(",
        """
template <class T> __device__ void fill(Forward<T>& f, const T* q, const T* k, const T* v, T* y, float* lse, int heads,
                                        int Lq, int Lk, bool causal) {
  f = {};
  f.shape.Hq = heads, f.shape.Lq = Lq, f.shape.Lk = Lk, f.shape.D = f.shape.Dv = 64;
  f.shape.causal = causal, f.shape.scale = 0.125f;
  f.q.data = q, f.k.data = k, f.v.data = v, f.y.data = y, f.lse = lse;
  f.q.head = f.y.head = Lq * 64, f.k.head = f.v.head = Lk * 64, f.q.row = f.k.row = f.v.row = f.y.row = 64;
  f.tiles = (Lq + 127) / 128, f.parts = f.slices = 1, f.rows = heads * Lq, f.vectors = true;
}
#define INSTANCE(T) \\
  template __global__ void attention_mma<T, 64>(Forward<T>, PreviousGrid); \\
  extern "C" __global__ void fill_##T(Forward<T>* f, const T* q, const T* k, const T* v, T* y, float* lse, int heads, \\
                                      int Lq, int Lk, bool causal) { \\
    fill(*f, q, k, v, y, lse, heads, Lq, Lk, causal); \\
  } \\
  extern "C" __device__ const int bytes_##T = sizeof(Forward<T>);
INSTANCE(BFloat16) INSTANCE(Half) INSTANCE(float)
}}""",
    ),
    "attention_backward": (
        "attention/attention_mma_backward.cu",
        "\n// Warps of a block",
        """
template __global__ void query_gradients_mma<BFloat16, 64>(Gradients<BFloat16>, PreviousGrid);
template __global__ void key_gradients_mma<BFloat16, 64>(Gradients<BFloat16>, PreviousGrid);
extern "C" __global__ void fill(Gradients<BFloat16>* to, const BFloat16* q, const BFloat16* k, const BFloat16* v,
                                const BFloat16* dy, float* lse, float* delta, BFloat16* dq, BFloat16* dk,
                                BFloat16* dv, int heads, int Lq, int Lk, bool causal) {
  *to = {};
  Backward<BFloat16>& g = to->g;
  g.shape.Hq = heads, g.shape.Lq = Lq, g.shape.Lk = Lk, g.shape.D = g.shape.Dv = 64;
  g.shape.causal = causal, g.shape.scale = 0.125f;
  g.q.data = q, g.k.data = k, g.v.data = v, g.dy.data = dy, g.dq.data = dq, g.dk.data = dk, g.dv.data = dv;
  g.q.head = g.dy.head = g.dq.head = Lq * 64, g.k.head = g.v.head = g.dk.head = g.dv.head = Lk * 64;
  g.q.row = g.k.row = g.v.row = g.dy.row = g.dq.row = g.dk.row = g.dv.row = 64;
  g.lse = lse, g.delta = delta, to->tiles = to->slices = 1, to->vectors = true;
}
extern "C" __device__ const int bytes = sizeof(Gradients<BFloat16>);
}}""",
    ),
    "gemm": (
        "matmul/gemm.cu",
        "\ntemplate <class T> void multiply(",
        """
template __global__ void gemm_tiles<Half>(Tiles<Half>, FinishOf<Half>);
extern "C" __global__ void fill(Tiles<Half>* t, FinishOf<Half>* f, const Half* a, const Half* b, Half* c, float* bias,
                                int m, int n, int k) {
  *t = {};
  t->a = a, t->b = b, t->as[1] = k, t->as[2] = 1, t->bs[1] = 1, t->bs[2] = k;
  t->m = m, t->n = n, t->k = k, t->tiles_m = (m + 63) / 64, t->tiles_n = (n + 63) / 64, t->alpha = 0.5f;
  f->c.numbers.data = c, f->c.numbers.dtype = kFloat16;
  f->c.strides[0] = 0, f->c.strides[1] = n, f->c.strides[2] = 1;
  f->pre.numbers.data = nullptr, f->bias.data = bias, f->bias.dtype = kFloat32;
  f->act = Activation::Silu, f->beta = 0;
}
}}""",
    ),
    "fp8": (
        "quantize/fp8.cu",
        "\nbool is_aligned(",
        """
#define INSTANCE(Q) \\
  template __global__ void scaled_elements<Half, Q, 8>(const Half*, Q*, const float*, int64_t, PreviousGrid); \\
  template __global__ void widened<Q, Half, 16>(const Q*, Half*, const float*, int64_t, int64_t, bool, PreviousGrid); \\
  extern "C" __global__ void cast_##Q(const float* x, uint16_t* codes) { \\
    const unsigned i = blockIdx.x * 256 + threadIdx.x; \\
    codes[i] = uint16_t(cast_to<Q>(x[i]).bits << 8 | from_float<Q>(x[i]).bits); \\
  }
INSTANCE(Float8E4M3) INSTANCE(Float8E5M2)
template __global__ void measured_rows<BFloat16, Float8E4M3, 8>(const BFloat16*, Float8E4M3*, float*, int64_t,
                                                                PreviousGrid);
}}""",
    ),
    "nf4": (
        "quantize/nf4.cu",
        "\ntemplate <class T>\n__global__ void __launch_bounds__(kThreads) dynamic_numbers",
        """
template __global__ void nibble_numbers<BFloat16>(const uint8_t*, BlockScales, BFloat16*, int64_t, bool, bool);
}}""",
    ),
    "group_norm": (
        "group_norm/held_groups.cuh",
        None,
        """
#include "scaffolding/ops/group_norm/held_groups.cuh"
#include "scaffolding/ops/group_norm/kept_groups.cuh"
using namespace sf;
using namespace sf::cuda;
template __global__ void sf::cuda::held_groups<BFloat16, true, 2>(Channels<BFloat16>, Hold, PreviousGrid);
template __global__ void sf::cuda::kept_groups<BFloat16, true>(Channels<BFloat16>, Keep, PreviousGrid);
__device__ void divide_by(Divider& to, uint32_t d) {
  to.d = d, to.shift = 0;
  while ((1u << to.shift) < d) ++to.shift;
  to.magic = uint32_t(((uint64_t(1) << 32) * ((uint64_t(1) << to.shift) - d)) / d + 1);
}
extern "C" __global__ void fill(Channels<BFloat16>* c, Hold* k, Keep* keep, const BFloat16* x, BFloat16* y,
                                float* weight, float* bias, float* mean, float* rstd, int batch, int space,
                                int channels, int groups, int of_chunk, int log_cluster, int threads, int slices) {
  const int width = channels / groups, columns = of_chunk * width / 8;
  *c = {};
  c->x = c->beside = x, c->out = y, c->weight.data = weight, c->bias.data = bias;
  c->batch = batch, c->space = space, c->channels = c->near = channels, c->groups = groups, c->width = width;
  c->mean = mean, c->rstd = rstd, c->eps = 1e-5f, c->last = c->silu = true;
  divide_by(k->columns, columns), divide_by(k->chunks, groups / of_chunk), divide_by(k->width, width);
  divide_by(k->groups, of_chunk);
  k->pixels = (space + (1 << log_cluster) - 1) >> log_cluster, k->rows = (k->pixels + 1) / 2, k->slices = slices;
  k->of_slice = (k->rows + slices - 1) / slices, k->log_cluster = log_cluster, k->held = 2, k->threads = threads;
  keep->columns = columns, keep->chunks = groups / of_chunk, keep->groups = of_chunk, keep->slices = slices;
  keep->pixels = k->pixels, keep->cluster = 1u << log_cluster, keep->threads = threads;
}
extern "C" __device__ const int bytes[] = {sizeof(Channels<BFloat16>), sizeof(Hold), sizeof(Keep)};""",
    ),
    "wgmma_product": (
        "matmul/wgmma_product.cuh",
        None,
        """
#include "scaffolding/ops/matmul/wgmma_product.cuh"
using namespace sf;
using namespace sf::cuda;
#define INSTANCE(Q, T, kGroups, kSums, act) \\
  template __global__ void sf::cuda::wgmma_product<Q, T, kGroups, kSums, Activation::act>( \\
      const __grid_constant__ TensorMap, const __grid_constant__ TensorMap, const __grid_constant__ TensorMap, \\
      const WgmmaCall, PreviousGrid);
INSTANCE(BFloat16, BFloat16, 2, 160, None) INSTANCE(Half, Half, 1, 80, None) INSTANCE(BFloat16, BFloat16, 2, 256, None)
INSTANCE(BFloat16, BFloat16, 2, 256, GeluErf) INSTANCE(Half, Half, 1, 160, Silu)
INSTANCE(Float8E4M3, BFloat16, 2, 160, None)
extern "C" __global__ void fill(WgmmaCall* g, int m, int n, int row_bytes, int rows, int columns, const void* bias,
                                const void* gate_bias, bool wide, const void* addend, void* c, const float* row_scale,
                                const float* column_scale, bool scaled_rows, bool scaled_columns, int cluster) {
  *g = {};
  g->m = m, g->n = n, g->steps = (row_bytes + 127) / 128, g->cluster = cluster;
  g->tiles_m = (m + rows * cluster - 1) / (rows * cluster);
  g->tiles_n = (n + columns - 1) / columns, g->alpha = 0.5f, g->beta = 2, g->bias = bias, g->gate_bias = gate_bias;
  g->wide_bias = wide, g->addend = addend, g->addend_row = n, g->c = c, g->c_row = n, g->row_scale = row_scale;
  g->column_scale = column_scale, g->scaled_rows = scaled_rows, g->scaled_columns = scaled_columns;
}
extern "C" __device__ const int bytes = sizeof(WgmmaCall);""",
    ),
    "attention_wgmma": (
        "attention/attention_wgmma.cuh",
        None,
        """
#include "scaffolding/ops/attention/attention_wgmma.cuh"
using namespace sf;
using namespace sf::cuda;
#define INSTANCE(T, W, masked) \\
  template __global__ void sf::cuda::attention_wgmma<T, W, masked>( \\
      const __grid_constant__ TensorMap, const __grid_constant__ TensorMap, const __grid_constant__ TensorMap, \\
      const AttentionCall<T>, PreviousGrid);
INSTANCE(BFloat16, 64, false) INSTANCE(Half, 48, false) INSTANCE(Half, 80, true) INSTANCE(BFloat16, 128, false)
INSTANCE(BFloat16, 160, false)
template <class T> __device__ void fill(AttentionCall<T>& f, T* y, float* lse, const float* mask, int heads, int shared,
                                        int Lq, int Lk, int width, bool causal, int queries) {
  f = {};
  f.shape.Hq = heads, f.shape.G = shared, f.shape.Lq = Lq, f.shape.Lk = Lk, f.shape.D = f.shape.Dv = width;
  f.shape.causal = causal, f.shape.scale = 0.125f, f.shape.mask.data = mask, f.shape.mask.dtype = kFloat32;
  f.shape.mask.strides[2] = Lk, f.shape.mask.strides[3] = 1;
  f.y.data = y, f.y.head = width, f.y.row = heads * width, f.lse = lse;
  f.tiles = (Lq + queries - 1) / queries, f.all = heads * f.tiles;
}
#define FILL(T) \\
  extern "C" __global__ void fill_##T(AttentionCall<T>* f, T* y, float* lse, const float* mask, int heads, \\
                                      int shared, int Lq, int Lk, int width, bool causal, int queries) { \\
    fill(*f, y, lse, mask, heads, shared, Lq, Lk, width, causal, queries); \\
  } \\
  extern "C" __device__ const int bytes_##T = sizeof(AttentionCall<T>);
FILL(BFloat16) FILL(Half)
#define SHARED(W, masked) \\
  extern "C" __device__ const int tile_##W[] = {WarpgroupAttention<W, masked>::kShared, \\
                                                WarpgroupAttention<W, masked>::kQueries, \\
                                                WarpgroupAttention<W, masked>::kKeys};
SHARED(64, false) SHARED(48, false) SHARED(80, true) SHARED(128, false) SHARED(160, false)""",
    ),
    "row_norm": (
        "layer_norm/row_norm.cuh",
        None,
        """
#include "scaffolding/ops/layer_norm/row_norm.cuh"
using namespace sf;
using namespace sf::cuda;
#define INSTANCE(kGroup, K) \\
  template __global__ void sf::cuda::row_norm_of_pair<true, BFloat16, BFloat16, kGroup, 8, K>( \\
      RowNorm<BFloat16>, NormPair<BFloat16>, unsigned, PreviousGrid);
INSTANCE(kWarp, 5) INSTANCE(kThreads, 2)
extern "C" __global__ void fill(RowNorm<BFloat16>* n, NormPair<BFloat16>* p, const BFloat16* x, BFloat16* y,
                                const BFloat16* weight, const BFloat16* bias, float* mean, float* rstd, int rows,
                                int cols) {
  *n = {};
  n->x = x, n->y = y, n->rows = rows, n->cols = cols, n->eps = 1e-5f, n->mean = mean, n->rstd = rstd;
  *p = {weight, bias, 0, 0, false, false};
}
extern "C" __device__ const int bytes[] = {sizeof(RowNorm<BFloat16>), sizeof(NormPair<BFloat16>)};""",
    ),
    "warpgroup": (  # no kernel of ours: what warpgroup.cuh has, used as a kernel would
        "../backend/cuda/warpgroup.cuh",
        None,
        r"""
#include "scaffolding/backend/cuda/warpgroup.cuh"
using namespace sf;
using namespace sf::cuda;
struct Problem {
  TensorMap a, b;
  float* c;
  int m, n, k;
};
__device__ void meet_first() {  // what is fenced are the mbarriers
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
__device__ void meet_last() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// c[m, n] = a[m, k] b[n, k]^T in tiles of 64 kGroups x N: the last warpgroup copies into two stages, others multiply.
// Two blocks of a cluster have tiles one below the other; each brings half of the rows of b, for both.
template <class T, int N, int kGroups, int kBlocks>
__global__ void __launch_bounds__(128 * (kGroups + 1)) ring(const __grid_constant__ Problem p) {
  constexpr int kBytesA = kGroups * 8192, kBytes = kBytesA + N * 128, kRows = 64 * kGroups;
  extern __shared__ __align__(1024) unsigned char stages[];
  __shared__ alignas(8) uint64_t barriers[4];
  const SharedAddress at = shared_address(stages), full = shared_address(barriers), empty = full + 16;
  const int thread = threadIdx.x, across = (p.n + N - 1) / N, kAll = kRows * kBlocks;
  const int tiles = (p.m + kAll - 1) / kAll * across, steps = (p.k + 63) / 64, rank = blockIdx.x % kBlocks;
  if (thread == 0) {
    for (int i = 0; i < 2; ++i) init_barrier(full + 8 * i, 1), init_barrier(empty + 8 * i, 4 * kGroups * kBlocks);
    publish_barriers();
  }
  if constexpr (kBlocks > 1) meet_first();
  else __syncthreads();
  int turn = 0;
  if (thread >= 128 * kGroups) {
    keep_registers<24>();
    if (thread > 128 * kGroups) return;
    prefetch_map(p.a);
    for (int tile = blockIdx.x / kBlocks; tile < tiles; tile += gridDim.x / kBlocks) {
      for (int step = 0; step < steps; ++step, ++turn) {
        const int i = turn % 2;
        const SharedAddress to = at + i * kBytes, arrived = full + 8 * i;
        if constexpr (kBlocks > 1) wait_for_cluster_phase(empty + 8 * i, turn / 2 % 2 ^ 1);
        else wait_for_phase(empty + 8 * i, turn / 2 % 2 ^ 1);
        arrive_and_expect(arrived, kBytes);
        copy_box(to, p.a, tile / across * kAll + rank * kRows, step * 64, arrived);
        if constexpr (kBlocks > 1)
          copy_box_to(3, to + kBytesA + rank * N * 64, p.b, tile % across * N + rank * N / 2, step * 64, arrived);
        else copy_box(to + kBytesA, p.b, tile % across * N, step * 64, arrived);
      }
    }
    if constexpr (kBlocks > 1) meet_last();
    return;
  }
  take_registers<240>();
  for (int tile = blockIdx.x / kBlocks; tile < tiles; tile += gridDim.x / kBlocks) {
    float sums[N / 2];
    for (int step = 0; step < steps; ++step, ++turn) {
      const int i = turn % 2;
      wait_for_phase(full + 8 * i, turn / 2 % 2);
      begin_products();
#pragma unroll
      for (int j = 0; j < 4; ++j)
        multiply_add_rows<T, N>(sums, rows_along_k(at + i * kBytes + thread / 128 * 8192 + 32 * j),
                                rows_along_k(at + i * kBytes + kBytesA + 32 * j), step + j);
      commit_products();
      wait_for_products<0>(sums);
      if (thread % 32 == 0) {
        if constexpr (kBlocks > 1) arrive_at(empty + 8 * i, rank), arrive_at(empty + 8 * i, rank ^ 1);
        else arrive_at(empty + 8 * i, 0);
      }
    }
    const int row = tile / across * kAll + rank * kRows + thread / 32 * 16 + thread % 32 / 4;
    const int column = tile % across * N + thread % 4 * 2;
#pragma unroll
    for (int i = 0; i < N / 2; i += 2) {
      const int r = row + 8 * (i / 2 % 2), s = column + i / 4 * 8;
      if (r < p.m && s < p.n) *reinterpret_cast<float2*>(p.c + r * p.n + s) = make_float2(sums[i], sums[i + 1]);
    }
  }
  if constexpr (kBlocks > 1) meet_last();
}
#define INSTANCE(T, N, kGroups, kBlocks) \
  template __global__ void ring<T, N, kGroups, kBlocks>(const __grid_constant__ Problem);
INSTANCE(BFloat16, 80, 1, 1) INSTANCE(BFloat16, 128, 2, 1) INSTANCE(Half, 128, 2, 1)
INSTANCE(BFloat16, 80, 1, 2) INSTANCE(BFloat16, 128, 2, 2)
// c[64, 8] += -a[64, 128 bytes] b[8, 128 bytes]^T of a warpgroup whose threads put a and b into shared memory.
#define STORED(name, form) \
  extern "C" __global__ void name(const uint4* a, const uint4* b, float* c) { \
    __shared__ alignas(1024) uint4 rows[72 * 8]; \
    const int t = threadIdx.x; \
    for (int i = t; i < 72 * 8; i += 128) rows[i ^ (i / 8 % 8)] = i < 512 ? a[i] : b[i - 512]; \
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); \
    __syncthreads(); \
    float* out = c + (t / 32 * 16 + t % 32 / 4) * 8 + t % 4 * 2; \
    float sums[4] = {out[0], out[1], out[64], out[65]}; \
    const SharedAddress at = shared_address(rows); \
    begin_products(); \
    for (int j = 0; j < 4; ++j) \
      asm volatile("wgmma.mma_async.sync.aligned.m64n8" form ";" \
                   : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) \
                   : "l"(rows_along_k(at + 32 * j)), "l"(rows_along_k(at + 8192 + 32 * j)) : "memory"); \
    commit_products(); \
    wait_for_products<0>(sums); \
    out[0] = sums[0], out[1] = sums[1], out[64] = sums[2], out[65] = sums[3]; \
  }
STORED(stored_e5m2, "k32.f32.e4m3.e5m2 {%0, %1, %2, %3}, %4, %5, 1, -1, 1")
STORED(stored_bf16, "k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, -1, 1, 0, 0")""",
    ),
}


def nvcc():
    return shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


def compile_unit(unit, folder):
    source, host, tail = UNITS[unit]
    text = (ROOT / "scaffolding/ops" / source).read_text().split(host)[0] if host else ""
    path = pathlib.Path(folder) / f"{unit}.cu"
    path.write_text(text + tail + "\n")
    subprocess.run([nvcc(), *FLAGS, path, "-o", path.with_suffix(".ptx")], check=True)
    return re.sub(r"//.*\n", "", path.with_suffix(".ptx").read_text())
