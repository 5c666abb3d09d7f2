// Sums of warpgroups to memory. A thread has two rows of them (`half`: 8 rows apart), and of each two neighbouring
// columns every 8: x[4 j + 2 half + i] is of column 8 j + 2 t + i, t = lane % 4 (backend/cuda/warpgroup.cuh).
#pragma once
#include "scaffolding/backend/cuda/mma.cuh"
#include "scaffolding/backend/cuda/vec.cuh"

namespace sf::cuda {

// Of the warp: 8 kCount columns of the thread's row number `half`, from `first` on, of which those below `width`
// exist; both are multiples of 8. `row`: where column 0 of it is, if it exists, 8-byte aligned. Neighbouring lanes
// exchange halves, so that four lanes write 32 bytes in a row: of 16 columns the lanes of even place write the left
// eight, those of odd place the right ones.
template <class T, int kCount, int n>
__device__ inline void write_columns(const float (&x)[n], int half, T* row, bool exists, int first, int width) {
  static_assert(kCount % 2 == 0, "sixteen columns are written at a time");
  const int t = int(threadIdx.x) % 4, odd = t % 2, to = first + 8 * odd + 2 * (t & 2);
#pragma unroll
  for (int j = 0; j < kCount; j += 2) {
    const float* four = x + 4 * j + 2 * half;
    const uint32_t left = pack<T>(four[0], four[1]), right = pack<T>(four[4], four[5]),
                   other = __shfl_xor_sync(~0u, odd ? left : right, 1);
    const Vec<uint32_t, 2> columns{odd ? other : left, odd ? right : other};
    if (exists && to + 8 * j < width) *reinterpret_cast<Vec<uint32_t, 2>*>(row + to + 8 * j) = columns;
  }
}

}  // namespace sf::cuda
