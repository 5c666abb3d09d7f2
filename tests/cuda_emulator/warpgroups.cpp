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

// What the 128 bytes of a map are here. A dimension's size is 1 where a map has fewer.
struct Matrix {
  uint64_t magic;
  const unsigned char* data;
  int64_t sizes[4], strides[4];  // from the dense one on, strides in bytes
  int box_rows, bytes;           // bytes: of an element
};
constexpr uint64_t kMagic = 0x5f5a3a10c0de7ab5;
static_assert(sizeof(Matrix) <= sizeof(sf::cuda::TensorMap));

}  // namespace

namespace sf::cuda {
namespace {

// Refuses what cuTensorMapEncodeTiled refuses.
TensorMap encoded(const char* op, Matrix m) {
  bool possible = m.bytes <= 2 && reinterpret_cast<uintptr_t>(m.data) % 16 == 0 && m.box_rows > 0 && m.box_rows <= 256;
  for (int i = 0; i < 4; ++i) possible = possible && m.sizes[i] > 0 && m.sizes[i] < (int64_t(1) << 32);
  for (int i = 1; i < 4; ++i)
    possible = possible && m.strides[i] > 0 && m.strides[i] % 16 == 0 && m.strides[i] < (int64_t(1) << 40);
  if (!possible) fail<RuntimeError>(op, ": cuTensorMapEncodeTiled refuses rows of ", m.sizes[0], " elements");
  m.magic = kMagic;
  TensorMap map{};
  std::memcpy(map.opaque, &m, sizeof m);
  return map;
}

}  // namespace

TensorMap tensor_map(const char* op, const void* data, DType dtype, int64_t rows, int64_t cols, int64_t stride,
                     int box_rows) {
  const int64_t bytes = int64_t(size_of(dtype));
  return encoded(op, {0,
                      static_cast<const unsigned char*>(data),
                      {cols, rows, 1, 1},
                      {bytes, stride * bytes, 16, 16},
                      box_rows,
                      int(bytes)});
}

TensorMap heads_map(const char* op, const TensorView& x, int box_rows) {
  Matrix m{0, x.as<const unsigned char>(), {}, {2}, box_rows, int(size_of(x.dtype))};
  for (int i = 0; i < 4; ++i) m.sizes[i] = x.sizes[3 - i];
  for (int i = 1; i < 4; ++i) m.strides[i] = x.sizes[3 - i] > 1 ? 2 * x.strides[3 - i] : 2 * x.sizes[3];
  return encoded(op, m);
}

}  // namespace sf::cuda

namespace cuda_emulator::warpgroups {
namespace {

struct Box {
  Matrix from;
  unsigned char* to;
  int place[4];
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
  const uint32_t* kept = nullptr;  // a, in registers: where, and what was there
  uint32_t was[4] = {};
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
    for (int r = 0; r < m.box_rows; ++r) {
      const int64_t place[4] = {0, box.place[1] + r, box.place[2], box.place[3]};
      const unsigned char* row = m.data;
      bool exists = true;
      for (int i = 1; i < 4; ++i) {
        row += place[i] * m.strides[i];
        exists = exists && place[i] >= 0 && place[i] < m.sizes[i];
      }
      for (int chunk = 0; chunk < 8; ++chunk) {  // 16 bytes
        unsigned char sixteen[16] = {};
        const int64_t first = int64_t(box.place[0]) * m.bytes + 16 * chunk;
        for (int i = 0; exists && i < 16; ++i)
          if (first + i >= 0 && first + i < m.sizes[0] * m.bytes) {
            races::touch(row + first + i, 1, false);
            sixteen[i] = row[first + i];
          }
        std::memcpy(box.to + 128 * r + 16 * (chunk ^ (r % 8)), sixteen, 16);
      }
    }
    b.bytes -= int64_t(m.box_rows) * 128;
    // another block's copies may be there before this one has said what it expects
    if (b.bytes < 0 && b.pending == 0) stop("a barrier gets more bytes than its phase expects");
    end_phase_if_due(b);
  }
}

const unsigned char* swizzled(uint32_t at, size_t bytes) {
  at ^= (at >> 7 & 7) << 4;
  if (at + bytes > dynamic_shared_bytes()) stop("a product of warpgroups reads outside of shared memory");
  return dynamic_shared() + at;
}
float number(const unsigned char* at, sf::DType type) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return type == sf::kFloat16 ? sf::to_float(sf::Half{bits}) : sf::to_float(sf::BFloat16{bits});
}
uint32_t start_of(uint64_t matrix) { return uint32_t(matrix & 0x3fff) << 4; }

// 32 bytes along k of a row of a matrix, as the tensor cores find them; how many numbers they are.
int read_row(uint64_t matrix, int row, sf::DType type, float (&x)[32]) {
  const uint32_t at = start_of(matrix) + uint32_t(row) / 8 * 1024 + uint32_t(row) % 8 * 128;
  const bool wide = type != sf::kFloat8E4M3;
  for (uint32_t half = 0; half < 2; ++half) {
    const unsigned char* bytes = swizzled(at + 16 * half, 16);
    for (int i = 0; i < (wide ? 8 : 16); ++i)
      x[(wide ? 8 : 16) * int(half) + i] = wide ? number(bytes + 2 * i, type) : sf::to_float(sf::Float8E4M3{bytes[i]});
  }
  return wide ? 16 : 32;
}
// 16 numbers along k of a column of a matrix whose rows lie along n, 64 columns to a box.
void read_column(uint64_t matrix, int column, sf::DType type, float (&x)[32]) {
  const uint32_t box = uint32_t(matrix >> 16 & 0x3fff) << 4, c = uint32_t(column);
  for (uint32_t k = 0; k < 16; ++k)
    x[k] = number(swizzled(start_of(matrix) + c / 64 * box + k * 128 + c % 64 * 2, 2), type);
}

void compute(const Product& p, std::vector<float>& sums) {
  const int warp = int(threadIdx.x) / 32 % 4, g = int(lane()) / 4, t = int(lane()) % 4;
  float rows[2][32], column[32];
  int depth = 16;
  if (p.kept) {
    if (std::memcmp(p.kept, p.was, sizeof p.was) != 0) stop("registers changed under a product that reads them");
    const Given* lanes = gather({{p.was[0] | uint64_t(p.was[1]) << 32, p.was[2] | uint64_t(p.was[3]) << 32}});
    for (int i = 0; i < 2; ++i)
      for (int k = 0; k < 16; ++k) {
        const uint32_t two = uint32_t(lanes[4 * g + k % 8 / 2].words[k / 8] >> (32 * i));
        const uint16_t bits = uint16_t(two >> (16 * (k % 2)));
        rows[i][k] = number(reinterpret_cast<const unsigned char*>(&bits), p.type);
      }
  } else {
    for (int i = 0; i < 2; ++i) depth = read_row(p.a, 16 * warp + g + 8 * i, p.type, rows[i]);
  }
  for (int j = 0; j < p.columns / 8; ++j)
    for (int i = 0; i < 2; ++i) {
      if (p.kept) read_column(p.b, 8 * j + 2 * t + i, p.type, column);
      else read_row(p.b, 8 * j + 2 * t + i, p.type, column);
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

void add_product(const Product& p) {
  Thread& t = me();
  if (blockDim.x % 128 != 0) stop("a product of a warpgroup in a block that has no whole ones");
  const Given mine{{p.kept ? 0 : p.a, p.b, uint64_t(p.add), uint64_t(p.columns)}};
  const Given* lanes = gather(mine);
  for (int l = 0; l < 32; ++l)
    if (std::memcmp(&lanes[l], &mine, sizeof mine) != 0) stop("threads of a warpgroup multiply different matrices");
  if (!t.begun) stop("a product of a warpgroup without begin_products");
  const size_t n = size_t(p.columns) / 2;
  if (t.sums.find(p.sums) == t.sums.end()) t.sums[p.sums].assign(p.sums, p.sums + n);
  std::fill_n(p.sums, n, NAN);
  t.products.push_back(p);
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

void copy_box(unsigned blocks, uint32_t to, const void* map, const int (&place)[4], uint32_t barrier) {
  races::Outside not_a_kernels;
  refuse_before_wait();
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
    b.boxes.push_back({m, at, {place[0], place[1], place[2], place[3]}});
  }
}

void begin_products() { me().begun = true; }
void multiply(sf::DType type, float* sums, int columns, uint64_t a, uint64_t b, bool add) {
  races::Outside not_a_kernels;
  check_matrix(a), check_matrix(b);
  add_product({type, sums, columns, me().groups, a, b, add});
}
void multiply_kept(sf::DType type, float* sums, int columns, const uint32_t* a, uint64_t b) {
  races::Outside not_a_kernels;
  check_matrix(b);
  Product p{type, sums, columns, me().groups, 0, b, true, a};
  std::copy_n(a, 4, p.was);
  add_product(p);
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
