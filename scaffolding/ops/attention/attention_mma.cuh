// Attention on tensor cores: what forward and backward share. 16-bit floats, compute capability 8.0 and later.
//
// A block has up to four warps and each warp owns 16 M rows of the block's own tile (queries in forward and for dq, keys for dk and dv). The other side comes
// tile by tile into shared memory by cp.async. A product's result lies in the warp's registers (the accumulators of mma.m16n8k16), where it is turned, packed
// to 16 bits, into the first operand of the next product: scores and weights never touch shared memory (Dao, FlashAttention-2, 2023, section 3.3).
//
// Heads are padded with zeros to W, a multiple of 16. A row in shared memory has 8 elements more: W / 8 + 1 is odd, so that the 8 rows of a matrix that
// ldmatrix reads lie in different 16-byte groups of the banks.
#pragma once
#include "scaffolding/backend/cuda/mma.cuh"
#include "scaffolding/ops/attention/attention_tile.cuh"

namespace sf::cuda {

inline constexpr int kMmaThreads = 128;
inline constexpr float kLog2E = 1.4426950408889634f;

inline int device_attribute(cudaDeviceAttr which, Device device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device.index), "attention");
  return value;
}
inline int64_t multiprocessors(Device device) { return device_attribute(cudaDevAttrMultiProcessorCount, device); }
inline size_t most_shared(Device device) { return size_t(device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device)); }  // bytes a block may ask for

template <int W> inline constexpr int kRowBytes = 2 * (W + 8);

// Where a lane reads matrices of operands whose first row is at `tile`, for row_products_mma and add_products_mma.
// a: rows are those of the product, 16 at a time; also b of add_products_mma. b of row_products_mma: rows are columns of the product.
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
  bool whole = t.sizes[3] % 8 == 0 && reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
  for (int d = 0; d < 3; ++d) whole = whole && (t.sizes[d] <= 1 || t.strides[d] % 8 == 0);
  return whole;
}

// to[rows][W] = columns 0 .. width - 1 of `exist` rows from `from` on, zeros elsewhere; by the whole block. There for everybody after commit_copies,
// wait_for_copies and a barrier.
template <int W, class T> __device__ inline void bring_rows(SharedAddress to, const T* from, int64_t stride, int rows, int exist, int width, bool vectors) {
  constexpr int kChunks = W / 8;
#pragma unroll 4
  for (int x = int(threadIdx.x); x < rows * kChunks; x += int(blockDim.x)) {
    int row = x / kChunks, col = x % kChunks * 8;
    SharedAddress place = to + SharedAddress(row * kRowBytes<W> + 2 * col);
    bool exists = row < exist && col < width;
    const T* source = exists ? from + row * stride + col : from;
    if (vectors) {
      copy_async(place, source, exists);
    } else {
      T* there = reinterpret_cast<T*>(dynamic_shared() + (place - shared_address(dynamic_shared())));
      for (int i = 0; i < 8; ++i) there[i] = exists && col + i < width ? source[i] : T{};
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

// c[m][n] = products of row a[m] with row b[n] over W columns: 16 M rows by 8 N.
template <class T, int W, int M, int N, class Rows> __device__ inline void row_products_mma(float (&c)[M][N][4], const Rows& a, SharedAddress b) {
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
    for (int n = 0; n < N; n += 2) {
      uint32_t two[4];
      load_matrices(two, b + SharedAddress(n * 8 * kRowBytes<W> + k * 32));
#pragma unroll
      for (int m = 0; m < M; ++m) {
        multiply_add<T>(c[m][n], rows[m], two[0], two[1]);
        multiply_add<T>(c[m][n + 1], rows[m], two[2], two[3]);
      }
    }
  }
}

// out[m][n] += sum over the 8 N columns of p of p[m] times row x, 8 C columns of it. p is rounded to T.
template <class T, int W, int M, int N, int C> __device__ inline void add_products_mma(float (&out)[M][C][4], const float (&p)[M][N][4], SharedAddress x) {
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

// The warp's rows of a result, times a factor per row, to memory by way of `stage`: shared memory of 16 M rows that only this warp uses.
// exist: rows that are there, may be below 0 or above 16 M.
template <class T, int W, int M, int C>
__device__ inline void store_rows_mma(const float (&x)[M][C][4], const float (&factor)[M][2], SharedAddress stage, T* to, int64_t stride, int exist, int width,
                                      bool vectors) {
  int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  unsigned char* rows = dynamic_shared() + (stage - shared_address(dynamic_shared()));
  __syncwarp();
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int c = 0; c < C; ++c)
        *reinterpret_cast<uint32_t*>(rows + (m * 16 + 8 * r + g) * kRowBytes<W> + c * 16 + t * 4) =
            pack<T>(x[m][c][2 * r] * factor[m][r], x[m][c][2 * r + 1] * factor[m][r]);
  __syncwarp();
#pragma unroll 4
  for (int i = lane; i < 16 * M * C; i += 32) {
    int row = i / C, col = i % C * 8;
    if (row >= exist || col >= width) continue;
    const unsigned char* from = rows + row * kRowBytes<W> + 2 * col;
    if (vectors) {
      *reinterpret_cast<Vec<T, 8>*>(to + row * stride + col) = *reinterpret_cast<const Vec<T, 8>*>(from);
    } else {
      for (int e = 0; e < 8 && col + e < width; ++e) to[row * stride + col + e] = reinterpret_cast<const T*>(from)[e];
    }
  }
}

// Over the four lanes that hold a row of a product.
template <class F> __device__ inline float quad_all(float x, const F& combine) {
  x = combine(x, __shfl_xor_sync(~0u, x, 1));
  return combine(x, __shfl_xor_sync(~0u, x, 2));
}

// f(T, W) for the narrowest W that holds queries and values; few of them, because each is a kernel of its own.
template <class F> void choose_width(const TensorView& q, const TensorView& v, const F& f) {
  int64_t width = q.sizes[3] > v.sizes[3] ? q.sizes[3] : v.sizes[3];
  auto typed = [&](auto t) {
    auto take = [&](auto w) { return width <= w() ? (f(t, w), true) : false; };
    take(std::integral_constant<int, 32>()) || take(std::integral_constant<int, 48>()) || take(std::integral_constant<int, 64>()) ||
        take(std::integral_constant<int, 80>()) || take(std::integral_constant<int, 96>()) || take(std::integral_constant<int, 128>()) ||
        take(std::integral_constant<int, 160>()) || take(std::integral_constant<int, 192>()) || take(std::integral_constant<int, 256>()) ||
        take(std::integral_constant<int, 512>());
  };
  if (q.dtype == kBFloat16) typed(BFloat16{});
  else typed(Half{});
}

}  // namespace sf::cuda
