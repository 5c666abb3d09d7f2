#include "scaffolding/ops/pointwise/pointwise_loop.h"

#include <cstring>

#include "scaffolding/backend/cpu/strided.h"
#include "scaffolding/ops/copy/transpose.h"

namespace sf::pointwise {

namespace {

constexpr int64_t kGrain = 1 << 14;       // elements a thread takes at least: about 5 us of an add
constexpr int64_t kStageBytes = 1 << 13;  // of an operand that is staged at once when it is strided

template <class U> void gather(void* to, const char* from, int64_t stride, int64_t n) {
  auto* d = static_cast<U*>(to);
  if (stride == 0) {
    U v = *reinterpret_cast<const U*>(from);
    for (int64_t i = 0; i < n; ++i) d[i] = v;
    return;
  }
  for (int64_t i = 0; i < n; ++i) d[i] = *reinterpret_cast<const U*>(from + i * stride);
}
template <class U> void scatter(char* to, int64_t stride, const void* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) *reinterpret_cast<U*>(to + i * stride) = static_cast<const U*>(from)[i];
}
// f(a number of as many bytes).
template <class F> void by_size(size_t item, const F& f) {
  item == 4 ? f(uint32_t()) : item == 2 ? f(uint16_t()) : item == 8 ? f(uint64_t()) : f(uint8_t());
}
// `rows` rows of n elements, `row` bytes from each to the next on the strided side, one behind the other on the dense.
void gather(size_t item, void* to, const char* from, int64_t stride, int64_t n, int64_t rows = 1, int64_t row = 0) {
  by_size(item, [&](auto as) {
    using U = decltype(as);
    for (int64_t r = 0; r < rows; ++r) gather<U>(static_cast<U*>(to) + r * n, from + r * row, stride, n);
  });
}
void scatter(size_t item, char* to, int64_t stride, const void* from, int64_t n, int64_t rows = 1, int64_t row = 0) {
  by_size(item, [&](auto as) {
    using U = decltype(as);
    for (int64_t r = 0; r < rows; ++r) scatter<U>(to + r * row, stride, static_cast<const U*>(from) + r * n, n);
  });
}

// What stands at p.
double number_at(const char* p, DType dtype) {
  double number = 0;
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T v;
    std::memcpy(&v, p, sizeof v);
    if constexpr (std::is_arithmetic_v<T>) number = double(v);
    else number = to_float(v);
  });
  return number;
}

bool all_dense(const TensorView& out, std::initializer_list<TensorView> inputs) {
  if (!out.is_contiguous()) return false;
  for (auto& v : inputs)
    if (v && !v.is_contiguous()) return false;
  return true;
}

}  // namespace

void run_dense(const char* op, const KernelTable<PointwiseRow>& table, void* out, DType out_dtype, const void* a,
               const void* b, const void* c, int64_t n, DType dtype, double p0, double p1) {
  PointwiseRow row{out, {a, b, c}, n, dtype, p0, p1};
  auto kernel = table.find(Device(), row);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel for ", dtype, " on cpu");
  if (n == 0) return;
  if (n <= kGrain) return kernel(row);
  int64_t item = int64_t(size_of(dtype)), out_item = int64_t(size_of(out_dtype));
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    PointwiseRow r = row;
    r.out = static_cast<char*>(row.out) + begin * out_item;
    for (auto& in : r.in)
      if (in) in = static_cast<const char*>(in) + begin * item;
    r.n = end - begin;
    kernel(r);
  });
}

void run_splat(const char* op, const KernelTable<PointwiseRow>& table, void* out, DType out_dtype, const void* a,
               double number, bool left, int64_t n, DType dtype, double p0) {
  alignas(64) char stage[kStageBytes];
  const int64_t item = int64_t(size_of(dtype)), out_item = int64_t(size_of(out_dtype)), most = kStageBytes / item,
                filled = std::min(n, most);
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T v;
    if constexpr (std::is_arithmetic_v<T>) v = T(number);
    else v = from_float<T>(float(number));
    std::fill_n(reinterpret_cast<T*>(stage), filled, v);
  });
  PointwiseRow row{out, {left ? stage : a, left ? a : stage, nullptr}, n, dtype, p0, 0};
  auto kernel = table.find(Device(), row);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel for ", dtype, " on cpu");
  if (n == 0) return;
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += most) {
      PointwiseRow r = row;
      r.out = static_cast<char*>(out) + at * out_item;
      r.in[left ? 1 : 0] = static_cast<const char*>(a) + at * item;
      r.n = std::min(most, end - at);
      kernel(r);
    }
  });
}

// Devices that are not the host loop over strides themselves.
static void run_views(const char* op, const PointwiseTable& table, const TensorView& out,
                      std::initializer_list<TensorView> inputs, DType dtype, double p0, double p1) {
  PointwiseViews v{out, {}, dtype, p0, p1};
  std::copy(inputs.begin(), inputs.end(), v.in);
  auto kernel = table.views.find(out.device, v);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel for ", dtype, " on ", out.device);
  if (out.numel() > 0) kernel(v);
}

// Where inputs lie across the output's rows, as a channels-last tensor does beside a contiguous one, pieces of them are
// turned (ops/copy/transpose.h) before the kernel reads them. False where none does, or not by whole blocks.
template <class Kernel>
static bool run_across(const Kernel& kernel, const PointwiseRow& row, const cpu::StridedLoop& loop, const int* which,
                       int64_t item, int64_t out_item) {
  constexpr int64_t kPiece = 1 << 14, kLine = 64;  // bytes of each operand
  if (loop.strides[0][0] != out_item || loop.sizes[0] < 8) return false;
  int at = 0;
  bool turned[cpu::kMaxOperands] = {};
  for (int k = 1; k < loop.operands; ++k) {
    const int64_t stride = loop.strides[k][0];
    if (stride == item || stride == 0) continue;
    const int dense = loop.dense_dimension(k, item);
    if (dense == 0 || loop.sizes[dense] < 8 || (at != 0 && at != dense)) return false;
    at = dense, turned[k] = true;
  }
  if (at == 0) return false;
  const auto transpose = host_piece(transpose_tiles);
  const int64_t band = kLine / item, columns = kPiece / kLine;
  loop.run_across(at, band, std::max<int64_t>(1, kGrain / (band * loop.sizes[0])), [&](char* const* p, int64_t rows) {
    alignas(64) char stage[cpu::kMaxOperands - 1][kPiece];
    PointwiseRow r = row;
    for (int64_t c = 0; c < loop.sizes[0]; c += columns) {
      r.n = std::min(columns, loop.sizes[0] - c);
      for (int k = 1; k < loop.operands; ++k)
        if (turned[k])
          transpose(
              {stage[k - 1], p[k] + c * loop.strides[k][0], columns * item, loop.strides[k][0], rows, r.n, int(item)});
      for (int64_t i = 0; i < rows; ++i) {
        for (int k = 1; k < loop.operands; ++k) {
          char* from = p[k] + i * loop.strides[k][at];
          char* staged = stage[k - 1] + (turned[k] ? i * columns * item : 0);
          const bool splat = loop.strides[k][0] == 0;
          if (splat) gather(size_t(item), staged, from, 0, r.n);
          r.in[which[k]] = turned[k] || splat ? staged : from + c * item;
        }
        r.out = p[0] + i * loop.strides[0][at] + c * out_item;
        kernel(r);
      }
    }
  });
  return true;
}

// Rows of a few elements, such as the colours of a picture beside one number for each colour: as many as fit the stage
// are one call of the kernel, since a call for each takes longer than its elements do. False where rows are longer.
template <class Kernel>
static bool run_short(const Kernel& kernel, const PointwiseRow& row, const cpu::StridedLoop& loop, const int* which,
                      int64_t item, int64_t out_item) {
  constexpr int64_t kShort = 48;
  const int64_t n = loop.sizes[0];
  if (n > kShort || loop.ndim < 2 || loop.sizes[1] < 4) return false;
  const int64_t band = kStageBytes / (std::max(item, out_item) * n);
  loop.run_across(1, band, std::max<int64_t>(1, kGrain / (band * n)), [&](char* const* p, int64_t rows) {
    alignas(64) char stage[cpu::kMaxOperands][kStageBytes];
    PointwiseRow r = row;
    r.n = rows * n;
    auto whole = [&](int k, int64_t size) { return loop.strides[k][0] == size && loop.strides[k][1] == size * n; };
    for (int k = 1; k < loop.operands; ++k) {
      if (!whole(k, item)) gather(size_t(item), stage[k], p[k], loop.strides[k][0], n, rows, loop.strides[k][1]);
      r.in[which[k]] = whole(k, item) ? p[k] : stage[k];
    }
    r.out = whole(0, out_item) ? p[0] : stage[0];
    kernel(r);
    if (!whole(0, out_item)) scatter(size_t(out_item), p[0], loop.strides[0][0], stage[0], n, rows, loop.strides[0][1]);
  });
  return true;
}

// Row by row; what is not dense along them is staged. number: the operand that the kernel takes as one number, or 0.
template <class Kernel>
static void run_along(const Kernel& kernel, const PointwiseRow& row, const cpu::StridedLoop& loop, const int* which,
                      int number, DType dtype, int64_t out_item) {
  const int64_t item = int64_t(size_of(dtype));
  loop.run(kGrain, [&](char* const* p, int64_t length) {
    alignas(64) char stage[cpu::kMaxOperands][kStageBytes];
    const int64_t most = kStageBytes / std::max(item, out_item);
    bool dense = loop.strides[0][0] == out_item;
    bool splat[cpu::kMaxOperands] = {};
    for (int k = 1; k < loop.operands; ++k) {
      if (k == number) continue;
      dense = dense && loop.strides[k][0] == item;
      splat[k] = loop.strides[k][0] == 0;
      if (splat[k]) gather(size_t(item), stage[k], p[k], 0, std::min(most, length));
    }
    PointwiseRow r = row;
    if (number > 0) r.p1 = number_at(p[number], dtype);
    for (int64_t at = 0; at < length;) {
      int64_t step = dense ? length : std::min(most, length - at);
      r.n = step;
      for (int k = 1; k < loop.operands; ++k) {
        if (k == number) continue;  // null
        char* from = p[k] + at * loop.strides[k][0];
        bool unit = loop.strides[k][0] == item;
        if (!unit && !splat[k]) gather(size_t(item), stage[k], from, loop.strides[k][0], step);
        r.in[which[k]] = unit ? from : stage[k];
      }
      char* to = p[0] + at * loop.strides[0][0];
      bool unit_out = loop.strides[0][0] == out_item;
      r.out = unit_out ? to : stage[0];
      kernel(r);
      if (!unit_out) scatter(size_t(out_item), to, loop.strides[0][0], stage[0], step);
      at += step;
    }
  });
}

void run(const char* op, const PointwiseTable& table, const TensorView& out, std::initializer_list<TensorView> inputs,
         DType dtype, double p0, double p1) {
  if (out.device.is_meta()) return;
  if (!out.device.is_cpu()) return run_views(op, table, out, inputs, dtype, p0, p1);
  PointwiseRow row{out.data, {}, 0, dtype, p0, p1};
  auto kernel = table.find(out.device, row);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel for ", dtype, " on ", out.device);
  int64_t n = out.numel();
  if (n == 0) return;
  int count = 0;
  if (all_dense(out, inputs)) {
    for (auto& v : inputs) row.in[count++] = v ? v.data : nullptr;
    size_t item = size_of(dtype), out_item = size_of(out.dtype);
    if (n <= kGrain) {
      row.n = n;
      kernel(row);
      return;
    }
    parallel_for(n, kGrain, [&](int64_t b, int64_t e) {
      PointwiseRow r = row;
      r.out = static_cast<char*>(row.out) + b * int64_t(out_item);
      for (int i = 0; i < count; ++i)
        if (row.in[i]) r.in[i] = static_cast<const char*>(row.in[i]) + b * int64_t(item);
      r.n = e - b;
      kernel(r);
    });
    return;
  }
  // Absent inputs (null) take no part in the loop; which[k] says where operand k goes.
  const TensorView* views[cpu::kMaxOperands] = {&out};
  int which[cpu::kMaxOperands] = {}, operands = 1, slot = 0;
  for (auto& v : inputs) {
    if (v) {
      which[operands] = slot;
      views[operands++] = &v;
    }
    ++slot;
  }
  cpu::StridedLoop loop = operands == 2   ? cpu::StridedLoop{views[0], views[1]}
                          : operands == 3 ? cpu::StridedLoop{views[0], views[1], views[2]}
                                          : cpu::StridedLoop{views[0], views[1], views[2], views[3]};
  size_t item = size_of(dtype), out_item = size_of(out.dtype);
  if (run_across(kernel, row, loop, which, int64_t(item), int64_t(out_item))) return;
  if (run_short(kernel, row, loop, which, int64_t(item), int64_t(out_item))) return;
  // The operand that is one number along rows, where the kernel takes it as such.
  int number = 0, numbers = 0;
  for (int k = 1; k < operands; ++k)
    if (loop.strides[k][0] == 0) number = k, ++numbers;
  const bool vectors = dtype == kFloat32 || is_reduced(dtype);
  if (!table.takes_numbers || !vectors || operands != 3 || numbers != 1) number = 0;
  run_along(kernel, row, loop, which, number, dtype, int64_t(out_item));
}

}  // namespace sf::pointwise
