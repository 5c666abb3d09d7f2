// Counting on the CPU. Neighbours count into tables of their own, so that equal ones do not wait for each other.
#include "scaffolding/backend/cpu/simd_rows.h"
#include "scaffolding/ops/search/kernel.h"

namespace sf {
namespace SF_ISA {
namespace {

constexpr int64_t kTables = 4, kMostTabled = 1 << 11;  // 64 KiB of counters
constexpr int64_t kPiece = 1024;                       // places that are found before they are counted

// counts[at[i]] += 1
template <class At> void count_places(const At* at, int64_t n, int64_t bins, int64_t* counts, int64_t* tables) {
  if (!tables) {
    for (int64_t i = 0; i < n; ++i) ++counts[at[i]];
    return;
  }
  int64_t i = 0;
  for (; i + kTables <= n; i += kTables)
    for (int64_t k = 0; k < kTables; ++k) ++tables[k * bins + int64_t(at[i + k])];
  for (; i < n; ++i) ++tables[at[i]];
}
// Room for tables of their own, cleared, where they pay; else null.
int64_t* cleared_tables(int64_t n, int64_t bins) {
  if (bins > kMostTabled || n < 2 * kTables * bins) return nullptr;
  auto* tables = static_cast<int64_t*>(scratch(size_t(kTables * bins) * sizeof(int64_t), 0));
  for (int64_t i = 0; i < kTables * bins; ++i) tables[i] = 0;
  return tables;
}
// The first `bins` counters of each table, which has `stride`.
void add_tables(int64_t bins, int64_t stride, int64_t* counts, const int64_t* tables) {
  if (!tables) return;
  for (int64_t k = 0; k < kTables; ++k)
    for (int64_t i = 0; i < bins; ++i) counts[i] += tables[k * stride + i];
}

void numbers(const CountNumbers& c) {
  int64_t n = c.in.numel();
  auto* x = c.in.as<const int64_t>();
  if (!c.counts) {
    int64_t least = x[0], most = x[0];
    for (int64_t i = 1; i < n; ++i) {
      least = x[i] < least ? x[i] : least;
      most = x[i] > most ? x[i] : most;
    }
    *c.least = least;
    *c.most = most;
    return;
  }
  int64_t bins = c.counts.numel(), *counts = c.counts.as<int64_t>(), *tables = cleared_tables(n, bins);
  count_places(x, n, bins, counts, tables);
  add_tables(bins, bins, counts, tables);
}

template <class T> void parts_of(const CountParts& c) {
  int64_t n = c.in.numel(), bins = c.counts.numel(), *counts = c.counts.as<int64_t>(),
          *tables = cleared_tables(n, bins + 1);
  auto* x = c.in.as<const T>();
  T from = *c.from.as<const T>(), to = *c.to.as<const T>(), width = to - from, many = T(bins);
  using At = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  At at[kPiece], last = At(bins) - 1;
  for (int64_t first = 0; first < n; first += kPiece) {
    int64_t m = n - first < kPiece ? n - first : kPiece;
    for (int64_t i = 0; i < m; ++i) {
      T v = x[first + i];
      bool inside = v >= from && v <= to;
      At part = At((inside ? v - from : T(0)) / width * many);
      part = part < last ? part : last;
      part = part > 0 ? part : 0;        // a range of infinite width has no place
      at[i] = inside ? part : last + 1;  // one more for those outside
    }
    if (tables) {
      count_places(at, m, bins + 1, counts, tables);
    } else {
      for (int64_t i = 0; i < m; ++i)
        if (at[i] <= last) ++counts[at[i]];
    }
  }
  add_tables(bins, bins + 1, counts, tables);
}
void parts(const CountParts& c) {
  if (c.in.dtype == kFloat64) parts_of<double>(c);
  else parts_of<float>(c);
}
// more have borders that float32 cannot tell
bool few_parts(const CountParts& c) { return c.counts.numel() < (1 << 24); }

SF_KERNEL(count_numbers, DeviceType::CPU, "native", SF_ISA_PRIORITY, numbers, nullptr)
SF_KERNEL(count_parts, DeviceType::CPU, "native", SF_ISA_PRIORITY, parts, few_parts)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
