// Barriers that count bytes, the copy engine and products of warpgroups, as the PTX ISA describes them. A copy destroys
// what it overwrites when it begins and arrives when a thread waits for its barrier; products read shared memory when
// they are waited for, and until then their sums are NaNs.
#pragma once
#include <cstddef>
#include <cstdint>

#include "scaffolding/core/dtype.h"

namespace cuda_emulator::warpgroups {

// Of grid.cpp: `threads` of a cluster begin; one has ended; all have.
void begin_cluster(unsigned threads);
void end_thread();
void end_cluster();

// What backend/cuda/warpgroup.cuh says of its functions. Addresses are bytes of dynamic shared memory.
void init_barrier(uint32_t at, unsigned arrivals);
void publish_barriers();
void arrive(uint32_t at, unsigned rank, unsigned bytes);
void wait_for_phase(uint32_t at, unsigned parity);
// blocks: a bit for each rank in the cluster
// place: of the box, in elements, from the dense dimension of the map on
void copy_box(unsigned blocks, uint32_t to, const void* map, const int (&place)[4], uint32_t barrier);
void begin_products();
// type: of the operands. columns: how many the product has; sums: columns / 2 of this thread.
void multiply(sf::DType type, float* sums, int columns, uint64_t a, uint64_t b, bool add);
// a[4]: of this thread, in its registers until the product is waited for; b: read through rows_along_n
void multiply_kept(sf::DType type, float* sums, int columns, const uint32_t* a, uint64_t b);
void commit_products();
void wait_for_products(int left);
void check_registers(int n);

}  // namespace cuda_emulator::warpgroups
