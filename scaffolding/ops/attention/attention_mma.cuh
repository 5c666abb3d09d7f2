// Attention on tensor cores: what forward and backward share. 16-bit floats, and float32 in forward where TF32 is
// allowed; compute capability 8.0 and later.
//
// A block has up to four warps and each warp owns 16 M rows of the block's own tile (queries in forward and for dq,
// keys for dk and dv). The other side comes tile by tile into shared memory by cp.async. A product's result lies in the
// warp's registers (the accumulators of mma.m16n8k16), where it is turned, packed to 16 bits, into the first operand of
// the next product: scores and weights never touch shared memory (Dao, FlashAttention-2, 2023, section 3.3).
//
// Heads are padded with zeros to 2 W bytes, W a multiple of 16: W elements of 16 bits or W / 2 floats. A row in shared
// memory has 16 bytes more: W / 8 + 1 is odd, so that the 8 rows of a matrix that ldmatrix reads lie in different
// 16-byte groups of the banks.
#pragma once
#include "scaffolding/backend/cuda/mma.cuh"
#include "scaffolding/ops/attention/attention_tile.cuh"

namespace sf::cuda {

inline constexpr int kMmaThreads = 128;
inline constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

inline int device_attribute(cudaDeviceAttr which, Device device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device.index), "attention");
  return value;
}
inline int64_t multiprocessors(Device device) { return device_attribute(cudaDevAttrMultiProcessorCount, device); }
// bytes a block may ask for
inline size_t most_shared(Device device) {
  return size_t(device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
}

template <int W> inline constexpr int kRowBytes = 2 * (W + 8);

// Where a lane reads matrices of operands whose first row is at `tile`, for row_products_mma and add_products_mma.
// a: rows are those of the product, 16 at a time; also b of add_products_mma. b of row_products_mma:
// rows are columns of the product.
template <int W> __device__ inline SharedAddress lane_in_a(SharedAddress tile) {
  int lane = int(threadIdx.x) % 32;
  return tile + SharedAddress(lane % 16 * kRowBytes<W> + lane / 16 * 16);
}
template <int W> __device__ inline SharedAddress lane_in_b(SharedAddress tile) {
  int lane = int(threadIdx.x) % 32;
  return tile + SharedAddress((lane / 16 * 8 + lane % 8) * kRowBytes<W> + lane / 8 % 2 * 16);
}

// Whether rows can be moved 16 bytes at a time.
inline bool moves_vectors(const TensorView& t) {
  if (!t.defined()) return true;
  const int64_t lanes = 16 / int64_t(size_of(t.dtype));
  bool whole = t.sizes[3] % lanes == 0 && reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
  for (int d = 0; d < 3; ++d) whole = whole && (t.sizes[d] <= 1 || t.strides[d] % lanes == 0);
  return whole;
}

// to[rows][2 W bytes] = columns 0 .. width - 1 of `exist` rows from `from` on, zeros elsewhere; by the whole block.
// There for everybody after commit_copies, wait_for_copies and a barrier.
template <int W, class T>
__device__ inline void bring_rows(SharedAddress to, const T* from, int64_t stride, int rows, int exist, int width,
                                  bool vectors) {
  constexpr int kChunks = W / 8, kLanes = 16 / int(sizeof(T));
#pragma unroll 4
  for (int x = int(threadIdx.x); x < rows * kChunks; x += int(blockDim.x)) {
    int row = x / kChunks, col = x % kChunks * kLanes;
    SharedAddress place = to + SharedAddress(row * kRowBytes<W> + x % kChunks * 16);
    bool exists = row < exist && col < width;
    const T* source = exists ? from + row * stride + col : from;
    if (vectors) {
      copy_async(place, source, exists);
    } else {
      T* there = reinterpret_cast<T*>(dynamic_shared() + (place - shared_address(dynamic_shared())));
      for (int i = 0; i < kLanes; ++i) there[i] = exists && col + i < width ? source[i] : T{};
    }
  }
}

// The warp's first operand of row_products_mma, kept in registers.
template <int W, int M> struct KeptRows {
  uint32_t r[W / 16][M][4];
  __device__ void load(SharedAddress a) {
#pragma unroll
    for (int k = 0; k < W / 16; ++k)
#pragma unroll
      for (int m = 0; m < M; ++m) load_matrices(r[k][m], a + SharedAddress(m * 16 * kRowBytes<W> + k * 32));
  }
  __device__ void fetch(int k, uint32_t (&to)[M][4]) const {
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) to[m][i] = r[k][m][i];
  }
};
// The same read from shared memory each time.
template <int W, int M> struct SharedRows {
  SharedAddress a;
  __device__ void load(SharedAddress at) { a = at; }
  __device__ void fetch(int k, uint32_t (&to)[M][4]) const {
#pragma unroll
    for (int m = 0; m < M; ++m) load_matrices(to[m], a + SharedAddress(m * 16 * kRowBytes<W> + k * 32));
  }
};

template <class T> __device__ inline void round_operands(uint32_t (&r)[4]) {
  if constexpr (sizeof(T) == 4)
    for (uint32_t& x : r) x = tf32_bits(__uint_as_float(x));
}

// c[m][n] = products of row a[m] with row b[n] over all columns: 16 M rows by 8 N.
template <class T, int W, int M, int N, class Rows>
__device__ inline void row_products_mma(float (&c)[M][N][4], const Rows& a, SharedAddress b) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) c[m][n][i] = 0;
#pragma unroll(W > 256 ? 4 : W / 16)
  for (int k = 0; k < W / 16; ++k) {
    uint32_t rows[M][4];
    a.fetch(k, rows);
#pragma unroll
    for (int m = 0; m < M; ++m) round_operands<T>(rows[m]);
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      uint32_t two[4];
      load_matrices(two, b + SharedAddress(n * 8 * kRowBytes<W> + k * 32));
      round_operands<T>(two);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        multiply_add<T>(c[m][n], rows[m], two[0], two[1]);
        multiply_add<T>(c[m][n + 1], rows[m], two[2], two[3]);
      }
    }
  }
}

// out[m][n] += sum over the 8 N columns of p of p[m] times row x, 8 C columns of it. p is rounded to T.
template <class T, int W, int M, int N, int C>
__device__ inline void add_products_mma(float (&out)[M][C][4], const float (&p)[M][N][4], SharedAddress x) {
  static_assert(sizeof(T) == 2);
#pragma unroll
  for (int k = 0; k < N / 2; ++k) {
    uint32_t a[M][4];
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) a[m][i] = pack<T>(p[m][2 * k + i / 2][i % 2 * 2], p[m][2 * k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int c = 0; c < C; c += 2) {
      uint32_t two[4];
      load_matrices_turned(two, x + SharedAddress(k * 16 * kRowBytes<W> + c * 16));
#pragma unroll
      for (int m = 0; m < M; ++m) {
        multiply_add<T>(out[m][c], a[m], two[0], two[1]);
        multiply_add<T>(out[m][c + 1], a[m], two[2], two[3]);
      }
    }
  }
}

// The same in TF32; rows: the first of x. ldmatrix transposes no floats, so they are read one by one: lane (g, t) reads
// rows 2t and 2t + 1 of 8, and takes the columns of p in that order too. Two rows are 2 W / 16 + 1 groups of 8 banks
// apart, an odd number: no two lanes share one.
template <int W, int M, int N, int C>
__device__ inline void add_products_tf32(float (&out)[M][C][4], const float (&p)[M][N][4], const unsigned char* rows) {
  int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    uint32_t a[M][4];
#pragma unroll
    for (int m = 0; m < M; ++m)
      a[m][0] = tf32_bits(p[m][k][0]), a[m][1] = tf32_bits(p[m][k][2]), a[m][2] = tf32_bits(p[m][k][1]),
      a[m][3] = tf32_bits(p[m][k][3]);
#pragma unroll
    for (int c = 0; c < C; ++c) {
      auto at = [&](int row) {
        return *reinterpret_cast<const float*>(rows + (8 * k + row) * kRowBytes<W> + 4 * (8 * c + g));
      };
      uint32_t b0 = tf32_bits(at(2 * t)), b1 = tf32_bits(at(2 * t + 1));
#pragma unroll
      for (int m = 0; m < M; ++m) multiply_add<float>(out[m][c], a[m], b0, b1);
    }
  }
}

// The warp's rows of a result, times a factor per row, to memory by way of `stage`:
// shared memory of 16 M rows that only this warp uses.
// exist: rows that are there, may be below 0 or above 16 M.
template <class T, int W, int M, int C>
__device__ inline void store_rows_mma(const float (&x)[M][C][4], const float (&factor)[M][2], SharedAddress stage,
                                      T* to, int64_t stride, int exist, int width, bool vectors) {
  constexpr int kLanes = 16 / int(sizeof(T)), kChunks = 8 * C / kLanes;
  int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  unsigned char* rows = dynamic_shared() + (stage - shared_address(dynamic_shared()));
  __syncwarp();
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int c = 0; c < C; ++c) {
        unsigned char* pair = rows + (m * 16 + 8 * r + g) * kRowBytes<W> + (4 * c + t) * 2 * int(sizeof(T));
        float low = x[m][c][2 * r] * factor[m][r], high = x[m][c][2 * r + 1] * factor[m][r];
        if constexpr (sizeof(T) == 4) *reinterpret_cast<Vec<float, 2>*>(pair) = {{low, high}};
        else *reinterpret_cast<uint32_t*>(pair) = pack<T>(low, high);
      }
  __syncwarp();
#pragma unroll 4
  for (int i = lane; i < 16 * M * kChunks; i += 32) {
    int row = i / kChunks, col = i % kChunks * kLanes;
    if (row >= exist || col >= width) continue;
    const unsigned char* from = rows + row * kRowBytes<W> + i % kChunks * 16;
    if (vectors) {
      *reinterpret_cast<Vec<T, kLanes>*>(to + row * stride + col) = *reinterpret_cast<const Vec<T, kLanes>*>(from);
    } else {
      for (int e = 0; e < kLanes && col + e < width; ++e)
        to[row * stride + col + e] = reinterpret_cast<const T*>(from)[e];
    }
  }
}

// Over the four lanes that hold a row of a product.
template <class F> __device__ inline float quad_all(float x, const F& combine) {
  x = combine(x, __shfl_xor_sync(~0u, x, 1));
  return combine(x, __shfl_xor_sync(~0u, x, 2));
}

struct QueryAndKey {
  int i, j;
};
// p[m][n][e] = score(the query and key that place(m, n, e) says it is of, p[m][n][e]).
template <int M, int N, class Place, class Score>
__device__ inline void each_score(float (&p)[M][N][4], const Place& place, const Score& score) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const auto [i, j] = place(m, n, e);
        p[m][n][e] = score(i, j, p[m][n][e]);
      }
}
// Products become scores in units of log 2, -inf where a query may not see a key.
template <int M, int N, class Place>
__device__ inline void hidden_scores(float (&p)[M][N][4], const AttentionShape& s, const Place& place) {
  const float scale = s.scale * kLog2E;
  each_score(p, place, [&](int i, int j, float product) {
    return j >= s.Lk || (s.causal && j > i) ? -INFINITY : product * scale;
  });
}
// The same with the mask of head h of batch b, whose dtype is told apart once.
template <int M, int N, class Place>
__device__ inline void scores_with_mask(float (&p)[M][N][4], const AttentionShape& s, int b, int h,
                                        const Place& place) {
  s.mask.typed([&](const auto* mask) {
    mask += b * s.mask.strides[0] + h * s.mask.strides[1];
    each_score(p, place, [&](int i, int j, float product) {
      if (i >= s.Lq || j >= s.Lk || (s.causal && j > i)) return -INFINITY;
      return (product * s.scale + AttentionMask::added(mask[i * s.mask.strides[2] + j * s.mask.strides[3]])) * kLog2E;
    });
  });
}
template <int M, int N, class Place>
__device__ inline void masked_scores(float (&p)[M][N][4], const AttentionShape& s, int b, int h, const Place& place) {
  if (s.mask.data) scores_with_mask(p, s, b, h, place);
  else hidden_scores(p, s, place);
}

// Scores, times `unit` in units of log 2, become weights relative to the highest score so far, which `top` keeps for a
// thread's rows (two of each m); `total` sums the weights of this thread. What was summed before is to be multiplied by
// `shrink`; true if some of it is not 1.
template <int M, int N>
__device__ inline bool weights_mma(float (&p)[M][N][4], float (&top)[M][2], float (&total)[M][2], float (&shrink)[M][2],
                                   float unit) {
  bool shrinks = false;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float highest = -INFINITY;
#pragma unroll
      for (int n = 0; n < N; ++n) highest = fmaxf(highest, fmaxf(p[m][n][2 * r], p[m][n][2 * r + 1]));
      highest = fmaxf(top[m][r], quad_all(highest, [](float x, float y) { return fmaxf(x, y); }) * unit);
      // Nothing seen so far: any finite shift gives weights of 0.
      float shift = highest == -INFINITY ? 0.0f : highest, factor = exp2_fast(top[m][r] - shift), sum = 0;
      top[m][r] = highest;
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int e = 2 * r; e < 2 * r + 2; ++e) sum += p[m][n][e] = exp2_fast(p[m][n][e] * unit - shift);
      total[m][r] = total[m][r] * factor + sum;
      shrink[m][r] = factor;
      shrinks = shrinks || factor != 1;
    }
  return shrinks;
}

// f(T, D) for the least D that holds queries and values; few of them, because each is a kernel of its own.
template <class F> void choose_width(const TensorView& q, const TensorView& v, const F& f) {
  int64_t width = q.sizes[3] > v.sizes[3] ? q.sizes[3] : v.sizes[3];
  auto take = [&](auto t, auto... widths) {
    bool done = false;
    ((done = done || (width <= widths() && (f(t, widths), true))), ...);
  };
  auto reduced = [&](auto t) {
    take(t, std::integral_constant<int, 32>(), std::integral_constant<int, 48>(), std::integral_constant<int, 64>(),
         std::integral_constant<int, 80>(), std::integral_constant<int, 96>(), std::integral_constant<int, 128>(),
         std::integral_constant<int, 160>(), std::integral_constant<int, 192>(), std::integral_constant<int, 256>(),
         std::integral_constant<int, 512>());
  };
  if (q.dtype == kBFloat16) reduced(BFloat16{});
  else if (q.dtype == kFloat16) reduced(Half{});
  else
    take(float{}, std::integral_constant<int, 32>(), std::integral_constant<int, 64>(),
         std::integral_constant<int, 80>(), std::integral_constant<int, 128>(), std::integral_constant<int, 160>(),
         std::integral_constant<int, 256>());
}

}  // namespace sf::cuda
