// scaffolding/backend/cuda/warpgroup.cuh for the C++ compiler: warpgroups.cpp does what the PTX ISA says.
#pragma once
#include "cuda_warpgroups.h"
#include "scaffolding/backend/cuda/cluster.cuh"
#include "scaffolding/backend/cuda/mma.cuh"
#include "scaffolding/backend/cuda/tensor_map.h"

namespace sf::cuda {

namespace warpgroups = cuda_emulator::warpgroups;

inline void init_barrier(SharedAddress barrier, unsigned arrivals) { warpgroups::init_barrier(barrier, arrivals); }
inline void publish_barriers() { warpgroups::publish_barriers(); }
inline void arrive_at(SharedAddress barrier, unsigned rank) { warpgroups::arrive(barrier, rank, 0); }
inline void arrive_and_expect(SharedAddress barrier, unsigned bytes) {
  warpgroups::arrive(barrier, cuda_emulator::cluster_rank(), bytes);
}
inline void wait_for_phase(SharedAddress barrier, unsigned parity) { warpgroups::wait_for_phase(barrier, parity); }
inline void wait_for_cluster_phase(SharedAddress barrier, unsigned parity) { wait_for_phase(barrier, parity); }

inline void copy_box(SharedAddress to, const TensorMap& map, int row, int column, SharedAddress barrier) {
  warpgroups::copy_box(1u << cuda_emulator::cluster_rank(), to, &map, {column, row, 0, 0}, barrier);
}
inline void copy_box_of_head(SharedAddress to, const TensorMap& map, int batch, int head, int row, int column,
                             SharedAddress barrier) {
  warpgroups::copy_box(1u << cuda_emulator::cluster_rank(), to, &map, {column, row, head, batch}, barrier);
}
inline void copy_box_to(unsigned blocks, SharedAddress to, const TensorMap& map, int row, int column,
                        SharedAddress barrier) {
  warpgroups::copy_box(blocks, to, &map, {column, row, 0, 0}, barrier);
}
inline void prefetch_map(const TensorMap&) {}

inline uint64_t rows_along_k(SharedAddress at) {
  return uint64_t((at & 0x3ffff) >> 4) | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}
inline uint64_t rows_along_n(SharedAddress at, int box_bytes) {
  return uint64_t((at & 0x3ffff) >> 4) | uint64_t(box_bytes >> 4) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

inline void begin_products() { warpgroups::begin_products(); }
inline void commit_products() { warpgroups::commit_products(); }
template <int left, int n> void wait_for_products(float (&)[n]) { warpgroups::wait_for_products(left); }
template <int n> void release_registers(uint32_t (&)[n][4]) {}
template <class T, int N> void multiply_add_kept(float (&c)[N / 2], const uint32_t (&a)[4], uint64_t b) {
  warpgroups::multiply_kept(dtype_of<T>::value, c, N, a, b);
}
template <class T, int N> void multiply_add_rows(float (&c)[N / 2], uint64_t a, uint64_t b, bool add) {
  warpgroups::multiply(dtype_of<T>::value, c, N, a, b, add);
}

template <int n> void keep_registers() { warpgroups::check_registers(n); }
template <int n> void take_registers() { warpgroups::check_registers(n); }

}  // namespace sf::cuda
