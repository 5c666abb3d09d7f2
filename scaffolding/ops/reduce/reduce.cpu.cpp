// Reductions over any dimensions of any layout, without transposing copies.
// Dimensions are sorted by stride and merged. Then either the innermost one is reduced, and rows of it are folded into
// one accumulator each; or it is kept, and rows are folded into a row of accumulators, column by column. Where neither
// is contiguous, the longer of the two is gathered into a buffer in the first-level cache.
// The pieces a large reduction is cut into depend on its size only: results do not depend on the number of threads.
#include "scaffolding/ops/reduce/reduce_blocks.h"

namespace sf {
namespace SF_ISA {
namespace {

constexpr int kAxes = 12;
constexpr int64_t kTile = 512;       // outputs a task works on at most: 4 KiB of accumulators
constexpr int64_t kStageRows = 8;    // gathered rows at once: 32 KiB of doubles
constexpr int64_t kGrain = 1 << 15;  // elements that are worth a thread's while
constexpr int64_t kFewTasks = 8;     // fewer tasks than this, and the reduction itself is cut into pieces
constexpr int64_t kMaxPieces = 64;

struct Axis {
  int64_t size, step;  // step in bytes of the input
  int64_t out;         // in elements of the result; 0 for reduced axes
};

struct Plan {
  Axis kept[kAxes + 1], reduced[kAxes + 1];  // outermost first; the last one is the loop inside a task
  int nk = 0, nr = 0;
  const char* in;
  int64_t item;
  bool columns;  // the inner loop runs over kept elements
  int64_t tile;  // outputs per task, along the innermost kept axis
  int64_t tiles, tasks;
  int64_t count;  // elements folded into each result
};

void sort_and_merge(Axis* a, int& n) {
  for (int i = 1; i < n; ++i)
    for (int j = i; j > 0 && a[j].step != 0 && (a[j - 1].step == 0 ? false : a[j - 1].step < a[j].step); --j) {
      Axis t = a[j];
      a[j] = a[j - 1];
      a[j - 1] = t;
    }
  int m = 0;
  for (int i = 0; i < n; ++i) {
    if (m > 0 && a[m - 1].step == a[i].step * a[i].size && a[m - 1].out == a[i].out * a[i].size) {
      a[m - 1] = {a[m - 1].size * a[i].size, a[i].step, a[i].out};
    } else {
      a[m++] = a[i];
    }
  }
  n = m;
}

int largest(const Axis* a, int n) {
  int at = n - 1;
  for (int i = 0; i < n; ++i)
    if (a[i].size > a[at].size) at = i;
  return at;
}
void move_last(Axis* a, int n, int at) {
  Axis chosen = a[at];
  for (int i = at; i + 1 < n; ++i) a[i] = a[i + 1];
  a[n - 1] = chosen;
}

// Whether float_columns has a loop for rows of a few elements that follow on from each other: points, colours.
bool folds_narrow(const Reduce& r) {
  const bool counts = r.what == Reduction::Prod || r.what == Reduction::Any || r.what == Reduction::All;
  return (r.in.dtype == kFloat32 || is_reduced(r.in.dtype)) && !counts;
}

Plan plan_of(const Reduce& r) {
  Plan p;
  p.in = r.in.as<const char>();
  p.item = int64_t(size_of(r.in.dtype));
  p.count = 1;
  for (int d = 0; d < r.in.ndim; ++d) {
    bool kept = d < r.out.ndim;
    if (!kept) p.count *= r.in.sizes[d];
    if (r.in.sizes[d] == 1) continue;
    Axis a{r.in.sizes[d], r.in.strides[d] * p.item, kept ? r.out.strides[d] : 0};
    if (kept) p.kept[p.nk++] = a;
    else p.reduced[p.nr++] = a;
  }
  if (p.nk == 0) p.kept[p.nk++] = {1, 0, 1};
  if (p.nr == 0) p.reduced[p.nr++] = {1, p.item, 0};
  sort_and_merge(p.kept, p.nk);
  sort_and_merge(p.reduced, p.nr);
  const Axis &k = p.kept[p.nk - 1], &q = p.reduced[p.nr - 1];
  if (q.step == p.item && q.size >= 32) {
    p.columns = false;
  } else if (k.step == p.item &&
             (k.size >= 16 || (k.size <= kNarrow && q.step == k.size * p.item && folds_narrow(r)))) {
    p.columns = true;
  } else {
    int ik = largest(p.kept, p.nk), iq = largest(p.reduced, p.nr);
    p.columns = p.kept[ik].size >= p.reduced[iq].size;
    if (p.columns) move_last(p.kept, p.nk, ik);
    else move_last(p.reduced, p.nr, iq);
  }
  int64_t by_work = p.count > 0 ? kGrain / p.count : kTile;
  p.tile = p.columns ? kTile : by_work < 1 ? 1 : by_work > 64 ? 64 : by_work;
  int64_t inner = p.kept[p.nk - 1].size;
  p.tiles = (inner + p.tile - 1) / p.tile;
  p.tasks = p.tiles;
  for (int i = 0; i + 1 < p.nk; ++i) p.tasks *= p.kept[i].size;
  return p;
}

// Where a task's outputs are.
struct Place {
  const char* in;
  int64_t out;  // of its first output, in elements
  int64_t n;    // how many
};
Place place_of(const Plan& p, int64_t task) {
  const Axis& k = p.kept[p.nk - 1];
  int64_t at = (task % p.tiles) * p.tile, rest = task / p.tiles;
  Place r{p.in + at * k.step, at * k.out, k.size - at < p.tile ? k.size - at : p.tile};
  for (int i = p.nk - 2; i >= 0; --i) {
    int64_t index = rest % p.kept[i].size;
    rest /= p.kept[i].size;
    r.in += index * p.kept[i].step;
    r.out += index * p.kept[i].out;
  }
  return r;
}

template <class U> void gather_as(void* to, const char* from, int64_t step, int64_t n) {
  auto* d = static_cast<U*>(to);
  for (int64_t i = 0; i < n; ++i) d[i] = *reinterpret_cast<const U*>(from + i * step);
}
void gather(int64_t item, void* to, const char* from, int64_t step, int64_t n) {
  item == 4   ? gather_as<uint32_t>(to, from, step, n)
  : item == 2 ? gather_as<uint16_t>(to, from, step, n)
  : item == 8 ? gather_as<uint64_t>(to, from, step, n)
              : gather_as<uint8_t>(to, from, step, n);
}

// Calls f(address) for every combination of the outer reduced axes.
template <class F> SF_INLINE void each_outer(const Plan& p, const char* in, const F& f) {
  int64_t index[kAxes + 1] = {};
  for (;;) {
    f(in);
    int i = p.nr - 2;
    for (; i >= 0; --i) {
      in += p.reduced[i].step;
      if (++index[i] < p.reduced[i].size) break;
      index[i] = 0;
      in -= p.reduced[i].step * p.reduced[i].size;
    }
    if (i < 0) return;
  }
}

void fold_rows(const Plan& p, const Blocks& f, const Place& place, char* acc, const double* center, double exponent) {
  const Axis& q = p.reduced[p.nr - 1];
  alignas(64) char stage[kTile * 8];
  for (int64_t j = 0; j < place.n; ++j) {
    double c = center ? center[j] : 0;
    each_outer(p, place.in + j * p.kept[p.nk - 1].step, [&](const char* x) {
      if (q.step == p.item) return f.row(x, q.size, acc + j * 8, c, exponent);
      for (int64_t i = 0; i < q.size; i += kTile) {
        int64_t n = q.size - i < kTile ? q.size - i : kTile;
        gather(p.item, stage, x + i * q.step, q.step, n);
        f.row(stage, n, acc + j * 8, c, exponent);
      }
    });
  }
}

void fold_columns(const Plan& p, const Blocks& f, const Place& place, char* acc, const double* center,
                  double exponent) {
  const Axis &q = p.reduced[p.nr - 1], &k = p.kept[p.nk - 1];
  alignas(64) char stage[kStageRows * kTile * 8];
  int64_t stage_row = kTile * p.item;
  each_outer(p, place.in, [&](const char* x) {
    if (k.step == p.item) return f.columns(x, q.step, q.size, place.n, acc, center, exponent);
    for (int64_t r = 0; r < q.size; r += kStageRows) {
      int64_t rows = q.size - r < kStageRows ? q.size - r : kStageRows;
      for (int64_t i = 0; i < rows; ++i) gather(p.item, stage + i * stage_row, x + (r + i) * q.step, k.step, place.n);
      f.columns(stage, stage_row, rows, place.n, acc, center, exponent);
    }
  });
}

void accumulate(const Plan& p, const Blocks& f, const Reduce& r, int64_t task, char* acc) {
  Place place = place_of(p, task);
  double center[kTile];
  if (r.center) gather_as<double>(center, r.center.as<const char>() + place.out * 8, p.kept[p.nk - 1].out * 8, place.n);
  f.start(acc, place.n);
  (p.columns ? fold_columns : fold_rows)(p, f, place, acc, r.center ? center : nullptr, r.p);
}

void finish(const Plan& p, const Blocks& f, const Reduce& r, int64_t task, char* acc) {
  Place place = place_of(p, task);
  int64_t step = p.kept[p.nk - 1].out;
  if (r.what == Reduction::SquareDeviation && r.in.dtype != kFloat64) {
    // The kernels took the centre as a float32; sum (x - c)^2 = sum (x - mean)^2 + count (mean - c)^2.
    auto* a = reinterpret_cast<double*>(acc);
    for (int64_t i = 0; i < place.n; ++i) {
      double c = r.center.as<const double>()[place.out + i * step], d = c - double(float(c)),
             exact = a[i] - double(p.count) * d * d;
      a[i] = exact < 0 ? 0 : a[i] != a[i] ? a[i] : exact;
    }
  }
  f.finish(acc, place.n, r.out.as<char>() + place.out * int64_t(size_of(r.out.dtype)), step, r.out.dtype, r.divisor);
}

void reduce(const Reduce& r) {
  if (r.out.numel() == 0) return;
  Plan p = plan_of(r);
  Blocks f = blocks_for(r.what, r.in.dtype);
  int64_t work = p.count * r.out.numel();
  if (p.count == 0) {
    alignas(64) char acc[kTile * 8];
    for (int64_t t = 0; t < p.tasks; ++t) {
      f.start(acc, place_of(p, t).n);
      finish(p, f, r, t, acc);
    }
    return;
  }
  int cut = largest(p.reduced, p.nr);
  int64_t pieces = work / kGrain < kMaxPieces ? work / kGrain : kMaxPieces;
  if (pieces > p.reduced[cut].size) pieces = p.reduced[cut].size;
  if (p.tasks >= kFewTasks || pieces < 4) {
    int64_t per_task = work / p.tasks;
    parallel_for(p.tasks, kGrain / (per_task > 0 ? per_task : 1) + 1, [&](int64_t begin, int64_t end) {
      alignas(64) char acc[kTile * 8];
      for (int64_t t = begin; t < end; ++t) {
        accumulate(p, f, r, t, acc);
        finish(p, f, r, t, acc);
      }
    });
    return;
  }
  // Few results of many elements: each piece of the longest reduced axis gets accumulators of its own.
  auto* acc = static_cast<char*>(scratch(size_t(pieces * p.tasks * p.tile * 8), 0));
  int64_t length = p.reduced[cut].size, stride = p.tasks * p.tile * 8;
  parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Plan part = p;
      int64_t from = length * i / pieces, to = length * (i + 1) / pieces;
      part.in += from * p.reduced[cut].step;
      part.reduced[cut].size = to - from;
      for (int64_t t = 0; t < p.tasks; ++t) accumulate(part, f, r, t, acc + i * stride + t * p.tile * 8);
    }
  });
  for (int64_t t = 0; t < p.tasks; ++t) {
    char* a = acc + t * p.tile * 8;
    for (int64_t i = 1; i < pieces; ++i) f.merge(a, a + i * stride, place_of(p, t).n);
    finish(p, f, r, t, a);
  }
}

bool supports(const Reduce& r) {
  if (is_float8(r.in.dtype)) return false;
  bool whole_too = r.what <= Reduction::All;
  return whole_too || is_floating(r.in.dtype);
}

SF_KERNEL(reduce_kernel, DeviceType::CPU, "native", SF_ISA_PRIORITY, reduce, supports)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
