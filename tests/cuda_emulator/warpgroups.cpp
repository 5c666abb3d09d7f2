#include "cuda_warpgroups.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "cuda_runtime.h"
#include "grid.h"
#include "races.h"
#include "scaffolding/backend/cuda/tensor_map.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/half.h"

namespace {

// What the 128 bytes of a map are here.
struct Matrix {
  uint64_t magic;
  const unsigned char* data;
  int64_t rows, cols, stride;
  int box_rows, bytes;  // bytes: of an element
};
constexpr uint64_t kMagic = 0x5f5a3a10c0de7ab5;
static_assert(sizeof(Matrix) <= sizeof(sf::cuda::TensorMap));

}  // namespace

namespace sf::cuda {

// Refuses what cuTensorMapEncodeTiled refuses.
TensorMap tensor_map(const char* op, const void* data, DType dtype, int64_t rows, int64_t cols, int64_t stride,
                     int box_rows) {
  const int64_t bytes = int64_t(size_of(dtype));
  const bool possible = bytes <= 2 && reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride * bytes % 16 == 0 &&
                        rows > 0 && cols > 0 && rows < (int64_t(1) << 32) && cols < (int64_t(1) << 32) &&
                        stride * bytes < (int64_t(1) << 40) && box_rows > 0 && box_rows <= 256;
  if (!possible)
    fail<RuntimeError>(op, ": cuTensorMapEncodeTiled refuses [", rows, ", ", cols, "] with rows ", stride, " apart");
  const Matrix m{kMagic, static_cast<const unsigned char*>(data), rows, cols, stride, box_rows, int(bytes)};
  TensorMap map{};
  std::memcpy(map.opaque, &m, sizeof m);
  return map;
}

}  // namespace sf::cuda

namespace cuda_emulator::warpgroups {
namespace {

struct Box {
  Matrix from;
  unsigned char* to;
  int row, column;
};
struct Barrier {
  unsigned arrivals = 0, pending = 0, phase = 0;
  int64_t bytes = 0;  // that are expected and not there; below zero: there and not expected yet
  bool published = false;
  std::vector<Box> boxes;
};
struct Product {
  sf::DType type;
  float* sums;
  int columns, group;
  uint64_t a, b;
  bool add;
};
struct Thread {
  bool begun = false;  // begin_products since the sums were last looked at
  int groups = 0;      // closed by commit
  std::vector<Product> products;
  std::map<float*, std::vector<float>> sums;  // of those under way
};

std::map<std::pair<unsigned, uint32_t>, Barrier> barriers;  // by block of the cluster and address
std::vector<Thread> threads;

Thread& me() { return threads[thread_in_cluster()]; }

Barrier& barrier_at(uint32_t at, unsigned rank) {
  if (block_has_ended(rank)) stop("shared memory of a block of the cluster that has ended");
  const auto found = barriers.find({rank, at});
  if (found == barriers.end()) stop("a barrier of shared memory that nobody initialised");
  return found->second;
}

void end_phase_if_due(Barrier& b) {
  if (b.pending > 0 || b.bytes != 0) return;
  ++b.phase;
  b.pending = b.arrivals;
}

void deliver(Barrier& b) {
  std::vector<Box> boxes;
  boxes.swap(b.boxes);
  for (const Box& box : boxes) {
    const Matrix& m = box.from;
    for (int r = 0; r < m.box_rows; ++r)
      for (int chunk = 0; chunk < 8; ++chunk) {  // 16 bytes
        unsigned char sixteen[16] = {};
        const int64_t row = int64_t(box.row) + r, first = int64_t(box.column) * m.bytes + 16 * chunk;
        if (row >= 0 && row < m.rows)
          for (int i = 0; i < 16; ++i)
            if (first + i >= 0 && first + i < m.cols * m.bytes) {
              const unsigned char* from = m.data + row * m.stride * m.bytes + first + i;
              races::touch(from, 1, false);
              sixteen[i] = *from;
            }
        std::memcpy(box.to + 128 * r + 16 * (chunk ^ (r % 8)), sixteen, 16);
      }
    b.bytes -= int64_t(m.box_rows) * 128;
    // another block's copies may be there before this one has said what it expects
    if (b.bytes < 0 && b.pending == 0) stop("a barrier gets more bytes than its phase expects");
    end_phase_if_due(b);
  }
}

// 32 bytes along k of a row of a matrix, as the tensor cores find them; how many numbers they are.
int read_row(uint64_t matrix, int row, sf::DType type, float (&x)[32]) {
  const uint32_t start = uint32_t(matrix & 0x3fff) << 4, stride = uint32_t(matrix >> 32 & 0x3fff) << 4;
  unsigned char bytes[32];
  for (int half = 0; half < 2; ++half) {
    uint32_t at = start + uint32_t(row) / 8 * stride + uint32_t(row) % 8 * 128 + 16 * uint32_t(half);
    at ^= (at >> 7 & 7) << 4;
    if (at + size_t(16) > dynamic_shared_bytes()) stop("a product of warpgroups reads outside of shared memory");
    std::memcpy(bytes + 16 * half, dynamic_shared() + at, 16);
  }
  if (type == sf::kFloat8E4M3) {
    for (int i = 0; i < 32; ++i) x[i] = sf::to_float(sf::Float8E4M3{bytes[i]});
    return 32;
  }
  for (int i = 0; i < 16; ++i) {
    uint16_t bits;
    std::memcpy(&bits, bytes + 2 * i, 2);
    x[i] = type == sf::kFloat16 ? sf::to_float(sf::Half{bits}) : sf::to_float(sf::BFloat16{bits});
  }
  return 16;
}

void compute(const Product& p, std::vector<float>& sums) {
  const int warp = int(threadIdx.x) / 32 % 4, g = int(lane()) / 4, t = int(lane()) % 4;
  float rows[2][32], column[32];
  int depth = 0;
  for (int i = 0; i < 2; ++i) depth = read_row(p.a, 16 * warp + g + 8 * i, p.type, rows[i]);
  for (int j = 0; j < p.columns / 8; ++j)
    for (int i = 0; i < 2; ++i) {
      read_row(p.b, 8 * j + 2 * t + i, p.type, column);
      for (int half = 0; half < 2; ++half) {
        float sum = 0;
        for (int k = 0; k < depth; ++k) sum += rows[half][k] * column[k];
        float& to = sums[size_t(4 * j + 2 * half + i)];
        to = p.add ? to + sum : sum;
      }
    }
}

void check_matrix(uint64_t matrix) {
  if (matrix >> 62 != 1 || (matrix >> 49 & 7) != 0 || (matrix >> 32 & 0x3fff) != 1024 >> 4)
    stop("a matrix of a product that has not rows of 128 swizzled bytes, 8 every 1024");
}

}  // namespace

void begin_cluster(unsigned count) {
  barriers.clear();
  threads.assign(count, Thread());
}
void end_thread() {
  if (!me().products.empty()) stop("a thread ended with products that it never waited for");
}
void end_cluster() {
  for (const auto& [where, b] : barriers)
    if (!b.boxes.empty()) stop("a block ended with copies of the copy engine that nobody waited for");
}

void init_barrier(uint32_t at, unsigned arrivals) {
  races::Outside not_a_kernels;
  if (at % 8 != 0 || at + size_t(8) > dynamic_shared_bytes()) stop("a barrier outside of shared memory or not aligned");
  if (arrivals == 0 || !barriers.try_emplace({cluster_rank(), at}, Barrier{arrivals, arrivals}).second)
    stop("a barrier that is initialised twice, or for nobody");
}
void publish_barriers() {
  for (auto& [where, b] : barriers)
    if (where.first == cluster_rank()) b.published = true;
}
void arrive(uint32_t at, unsigned rank, unsigned bytes) {
  races::Outside not_a_kernels;
  Barrier& b = barrier_at(at, rank);
  if (b.pending == 0) stop("more arrivals at a barrier than its phase has");
  b.bytes += bytes;
  --b.pending;
  end_phase_if_due(b);
}
void wait_for_phase(uint32_t at, unsigned parity) {
  races::Outside not_a_kernels;
  Barrier& b = barrier_at(at, cluster_rank());
  park_until([&] {
    if (b.phase % 2 != parity) return true;
    deliver(b);
    return b.phase % 2 != parity;
  });
}

void copy_box(unsigned blocks, uint32_t to, const void* map, int row, int column, uint32_t barrier) {
  races::Outside not_a_kernels;
  Matrix m;
  std::memcpy(&m, map, sizeof m);
  if (m.magic != kMagic) stop("a copy by a map that tensor_map() did not make");
  if (to % 1024 != 0 || to + size_t(m.box_rows) * 128 > dynamic_shared_bytes())
    stop("a box outside of shared memory, or not 1024-byte aligned");
  for (unsigned rank = 0; blocks >> rank != 0; ++rank) {
    if (!(blocks >> rank & 1)) continue;
    Barrier& b = barrier_at(barrier, rank);
    if (!b.published) stop("the copy engine is given a barrier that was not published");
    auto* at = static_cast<unsigned char*>(const_cast<void*>(in_cluster(dynamic_shared() + to, rank)));
    std::memset(at, 0xff, size_t(m.box_rows) * 128);  // it may begin at once
    b.boxes.push_back({m, at, row, column});
  }
}

void begin_products() { me().begun = true; }
void multiply(sf::DType type, float* sums, int columns, uint64_t a, uint64_t b, bool add) {
  races::Outside not_a_kernels;
  Thread& t = me();
  if (blockDim.x % 128 != 0) stop("a product of a warpgroup in a block that has no whole ones");
  const Given* lanes = gather({{a, b, uint64_t(add), uint64_t(columns)}});
  for (int l = 0; l < 32; ++l)
    if (lanes[l].words[0] != a || lanes[l].words[1] != b || lanes[l].words[2] != uint64_t(add))
      stop("threads of a warpgroup multiply different matrices");
  if (!t.begun) stop("a product of a warpgroup without begin_products");
  check_matrix(a), check_matrix(b);
  const size_t n = size_t(columns) / 2;
  if (t.sums.find(sums) == t.sums.end()) t.sums[sums].assign(sums, sums + n);
  std::fill_n(sums, n, NAN);
  t.products.push_back({type, sums, columns, t.groups, a, b, add});
}
void commit_products() { ++me().groups; }
void wait_for_products(int left) {
  races::Outside not_a_kernels;
  Thread& t = me();
  // what was released too early is overwritten first
  if (std::any_of(t.products.begin(), t.products.end(), [&](auto& p) { return p.group < t.groups - left; }))
    let_others_run();
  size_t kept = 0;
  for (const Product& p : t.products) {
    if (p.group >= t.groups - left) t.products[kept++] = p;
    else compute(p, t.sums[p.sums]);
  }
  t.products.resize(kept);
  for (auto at = t.sums.begin(); at != t.sums.end();) {
    const bool under_way =
        std::any_of(t.products.begin(), t.products.end(), [&](auto& p) { return p.sums == at->first; });
    if (!under_way) {
      std::copy(at->second.begin(), at->second.end(), at->first);
      at = t.sums.erase(at);
    } else {
      ++at;
    }
  }
  t.begun = false;
}
void check_registers(int n) {
  if (n % 8 != 0 || n < 24 || n > 240) stop("a number of registers that setmaxnreg does not take");
}

}  // namespace cuda_emulator::warpgroups
