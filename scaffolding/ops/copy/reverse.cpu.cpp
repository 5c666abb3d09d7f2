// A vector of whole groups is loaded, turned in its register and stored. It ends where its first group does, so that
// what it has too much, less than a group, belongs to the next one, and is written over by that.
#include "scaffolding/ops/copy/reverse.h"

#include <cstring>

#include "scaffolding/backend/cpu/simd.h"

namespace sf {
namespace SF_ISA {
namespace {

constexpr int kBytes = 16;  // one instruction turns them, from SSSE3 on
typedef uint8_t Bytes __attribute__((vector_size(kBytes)));

// Where each byte of a vector's groups of that size comes from.
struct Orders {
  uint8_t of[ReversedGroups::kGroupBytes + 1][kBytes];
  constexpr Orders() : of() {
    for (int size = 1; size <= kBytes; ++size)
      for (int i = 0; i < kBytes / size * size; ++i) of[size][i] = uint8_t(kBytes - (i / size + 1) * size + i % size);
  }
};
constexpr Orders kOrders;

void reverse(const ReversedGroups& r) {
  const int64_t size = r.size, groups = kBytes / size;
  Bytes order;
  std::memcpy(&order, kOrders.of[size], kBytes);
  auto* to = static_cast<char*>(r.to);
  auto* from = static_cast<const char*>(r.from);
  int64_t j = 0;
#pragma GCC unroll 4
  for (; j + groups < r.n; j += groups) {
    Bytes v;
    std::memcpy(&v, from - (j - 1) * size - kBytes, kBytes);
    v = __builtin_shuffle(v, order);
    std::memcpy(to + j * size, &v, kBytes);
  }
  for (; j < r.n; ++j) std::memcpy(to + j * size, from - j * size, size_t(size));
}
SF_KERNEL(reverse_groups, DeviceType::CPU, "native", SF_ISA_PRIORITY, reverse, nullptr)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
