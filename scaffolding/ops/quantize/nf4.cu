// Codes of four and eight bits on CUDA. Dequantising: a warp loads 512 bytes of NF4 or FP4 codes, 16 to a lane, and
// hands the words on by shuffles so that its lanes store neighbouring elements, 16 bytes each; the sixteen numbers lie
// in shared memory, in sixteen banks. The magnitudes of blocks are dequantised on the way.
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/real.cuh"
#include "scaffolding/ops/quantize/block_scales.cuh"

namespace sf::cuda {
namespace {

constexpr int kWarp = 32, kPerWarp = 1024;  // lanes; elements of a warp's 512 bytes

template <class T>
__global__ void __launch_bounds__(kThreads)
    nibble_numbers(const uint8_t* codes, BlockScales scales, T* y, int64_t n, bool fp4, bool aligned) {
  __shared__ float table[16];
  if (threadIdx.x < 16) table[threadIdx.x] = (fp4 ? fp4_table : nf4_table).v[threadIdx.x];
  __syncthreads();
  const unsigned lane = threadIdx.x % kWarp;
  const int64_t first = (int64_t(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp) * kPerWarp;
  if (first >= n) return;
  if (!aligned || n - first < kPerWarp) {
    for (int64_t i = first + lane; i < n && i < first + kPerWarp; i += kWarp) {
      uint8_t pair = codes[i / 2];
      y[i] = to_storage<T>(table[i % 2 ? pair & 15 : pair >> 4] * scales.of(i));
    }
    return;
  }
  const Vec<uint32_t, 4> mine = reinterpret_cast<const Vec<uint32_t, 4>*>(codes + first / 2)[lane];
  for (int part = 0; part < 4; ++part) {  // of 256 elements: lane's are the 8 of word part * 32 + lane
    const int from = part * 8 + int(lane) / 4;
    uint32_t word = 0;
    for (int w = 0; w < 4; ++w) {
      uint32_t got = __shfl_sync(~0u, mine.v[w], from);
      if (int(lane) % 4 == w) word = got;
    }
    const int64_t at = first + part * 256 + int64_t(lane) * 8;
    const float scale = scales.of(at);  // blocks have at least 32 elements
    float x[8];
    for (int b = 0; b < 4; ++b) {
      const uint32_t pair = word >> (8 * b) & 255;
      x[2 * b] = table[pair >> 4] * scale;
      x[2 * b + 1] = table[pair & 15] * scale;
    }
    constexpr int kLanes = lanes_for<T>();
    for (int j = 0; j < 8; j += kLanes) {
      Vec<T, kLanes> out;
      for (int l = 0; l < kLanes; ++l) out.v[l] = to_storage<T>(x[j + l]);
      *reinterpret_cast<Vec<T, kLanes>*>(y + at + j) = out;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) dynamic_numbers(const uint8_t* codes, BlockScales scales, T* y, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) y[i] = to_storage<T>(dynamic_table.v[codes[i]] * scales.of(i));
}

bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

void dequantize(const BlockDequantize& d) {
  const int64_t n = d.y.numel();
  const BlockScales scales(d.absmax, d.nested, d.offset, d.block);
  const uint8_t* codes = d.codes.as<const uint8_t>();
  as_float(d.y.dtype, [&](auto t) {
    using T = decltype(t);
    T* y = d.y.as<T>();
    if (d.format == BlockFormat::Dynamic)
      return launch("dequantize_blockwise", d.y.device, blocks_for(n, 1), dynamic_numbers<T>, codes, scales, y, n);
    bool aligned = is_aligned(codes) && is_aligned(y);
    launch("dequantize_nf4", d.y.device, blocks_for(n, kPerWarp / kWarp), nibble_numbers<T>, codes, scales, y, n,
           d.format == BlockFormat::Fp4, aligned);
  });
}
SF_KERNEL(block_dequantize, DeviceType::CUDA, "native", 0, dequantize, nullptr)

__device__ const Nf4Table fp4_ascending = kFp4Ascending;
__device__ const Fp4Codes fp4_codes = kFp4Sorted;

// A warp for each block.
template <BlockFormat kFormat>
__global__ void __launch_bounds__(kThreads)
    block_codes(const float* x, uint8_t* codes, float* absmax, int64_t n, int64_t block) {
  const int64_t b = int64_t(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp, from = b * block;
  if (from >= n) return;
  const int64_t to = n < from + block ? n : from + block, lane = threadIdx.x % kWarp;
  float most = 0;
  for (int64_t i = from + lane; i < to; i += kWarp) most = fmaxf(most, fabsf(x[i]));
  for (int by = kWarp / 2; by > 0; by /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, by));
  if (lane == 0) absmax[b] = most;
  const float inverse = 1.f / fmaxf(most, 1e-38f);
  auto scaled = [&](int64_t i) { return i < to ? fminf(1.f, fmaxf(-1.f, x[i] * inverse)) : 0.f; };
  if constexpr (kFormat == BlockFormat::Dynamic)
    for (int64_t i = from + lane; i < to; i += kWarp) codes[i] = uint8_t(nearest_code(dynamic_table.v, scaled(i)));
  else
    for (int64_t i = from + 2 * lane; i < to; i += 2 * kWarp) {
      int first, second;
      if constexpr (kFormat == BlockFormat::Fp4)
        first = fp4_codes.v[nearest_code(fp4_ascending.v, scaled(i))],
        second = fp4_codes.v[nearest_code(fp4_ascending.v, scaled(i + 1))];
      else first = nearest_code(nf4_table.v, scaled(i)), second = nearest_code(nf4_table.v, scaled(i + 1));
      codes[i / 2] = uint8_t(first << 4 | second);
    }
}

void quantize(const BlockQuantize& q) {
  const int64_t n = q.x.numel();
  const unsigned blocks = blocks_for((n + q.block - 1) / q.block * kWarp, 1);
  auto kernel = q.format == BlockFormat::Nf4   ? block_codes<BlockFormat::Nf4>
                : q.format == BlockFormat::Fp4 ? block_codes<BlockFormat::Fp4>
                                               : block_codes<BlockFormat::Dynamic>;
  launch("quantize_blockwise", q.x.device, blocks, kernel, q.x.as<const float>(), q.codes.as<uint8_t>(),
         q.absmax.as<float>(), n, q.block);
}
SF_KERNEL(block_quantize, DeviceType::CUDA, "native", 0, quantize, nullptr)

}  // namespace
}  // namespace sf::cuda
