#include "scaffolding/ops/pad/pad.h"

#include <algorithm>
#include <cstring>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/copy/kernel.h"
#include "scaffolding/ops/copy/short_row.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/spatial/spatial.h"

namespace sf {

namespace {

// Size of dimension d after padding. before/after: entries added to it.
struct Padded {
  Shape size, before, after;
};
Padded padded(const Tensor& x, const Shape& pad) {
  SF_CHECK(pad.size() % 2 == 0, "pad: needs two numbers per dimension, got pad ", pad);
  SF_CHECK(pad.size() / 2 <= x.ndim(), "pad: ", pad.size() / 2, " dimensions to pad are more than input ", x.shape(),
           " has");
  Padded p{x.shape(), Shape::filled(x.ndim(), 0), Shape::filled(x.ndim(), 0)};
  for (int64_t i = 0; i < pad.size() / 2; ++i) {
    int64_t d = x.ndim() - 1 - i;
    p.before[d] = pad[2 * i];
    p.after[d] = pad[2 * i + 1];
    bool fits = !__builtin_add_overflow(p.before[d], p.after[d], &p.size[d]) &&
                !__builtin_add_overflow(x.shape()[d], p.size[d], &p.size[d]);
    SF_CHECK(fits && p.size[d] >= 0 && p.before[d] >= -x.shape()[d] && p.after[d] >= -x.shape()[d], "pad: pad ", pad,
             " leaves no valid size for dimension ", d, " of ", x.shape());
  }
  (void)numel(p.size);  // overflow
  return p;
}

// Fills what the copied region leaves free, each element once:
// slabs along d of what earlier dimensions have in the region.
void fill_border(const Tensor& y, const Padded& p, const Shape& kept, const Scalar& value) {
  Tensor rest = y;
  for (int64_t d = 0; d < y.ndim(); ++d) {
    int64_t begin = std::max<int64_t>(p.before[d], 0), end = begin + kept[d];
    rest.narrow(d, 0, begin).fill_(value);
    rest.narrow(d, end, rest.shape()[d] - end).fill_(value);
    rest = rest.narrow(d, begin, kept[d]);
  }
}

// The padded tensor written once from its first byte to its last, where both it and the entries that stay lie densely
// in one order of dimensions, and enough leading ones are not padded for every thread to have some. False otherwise.
template <class U> bool write_through(const Tensor& y, const Tensor& from, const Padded& p, const Tensor& value) {
  constexpr int64_t kGrain = 1 << 15;
  const int64_t n = y.ndim();
  Shape order;  // of memory, outermost first
  for (int64_t d = 0; d < n; ++d) order.push_back(d);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return y.strides()[a] > y.strides()[b]; });
  if (from.strides()[order[n - 1]] != 1 && from.shape()[order[n - 1]] > 1) return false;
  int64_t outer = 1, first = 0;
  while (first < n - 1 && p.before[order[first]] == 0 && p.after[order[first]] == 0) outer *= p.size[order[first++]];
  const int64_t inner = y.numel() / outer;
  if (outer < 2 * num_threads() && y.numel() > kGrain) return false;
  struct Level {
    int64_t before, kept, after;  // `before` and `after` in elements
    int64_t from_step;
  };
  Level levels[kMaxDims];
  for (int64_t i = first; i < n; ++i) {
    const int64_t d = order[i], step = y.strides()[d], before = std::max<int64_t>(p.before[d], 0);
    levels[i] = {before * step, from.shape()[d], (p.size[d] - before - from.shape()[d]) * step, from.strides()[d]};
  }
  U v;
  std::memcpy(&v, value.data_ptr(), sizeof v);
  // What they write gives where it ends.
  auto row = [v, l = levels[n - 1]](U* to, const U* at) {
    const int64_t bytes = l.kept * int64_t(sizeof(U));
    to = std::fill_n(to, l.before, v);
    if (bytes >= kLeastShortRow && bytes <= kMostShortRow)
      copy_short_row(reinterpret_cast<char*>(to), reinterpret_cast<const char*>(at), bytes);
    else std::memcpy(to, at, size_t(bytes));
    return std::fill_n(to + l.kept, l.after, v);
  };
  auto write = [&](auto& self, U* to, const U* at, int64_t i) -> U* {
    if (i == n - 1) return row(to, at);
    const Level& l = levels[i];
    to = std::fill_n(to, l.before, v);
    for (int64_t k = 0; k < l.kept; ++k, at += l.from_step) to = i == n - 2 ? row(to, at) : self(self, to, at, i + 1);
    return std::fill_n(to, l.after, v);
  };
  parallel_for(outer, std::max<int64_t>(1, kGrain / inner), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      int64_t rest = o, at = 0;
      for (int64_t i = first - 1; i >= 0; --i) {
        at += rest % p.size[order[i]] * from.strides()[order[i]];
        rest /= p.size[order[i]];
      }
      write(write, static_cast<U*>(y.data_ptr()) + o * inner, static_cast<const U*>(from.data_ptr()) + at, first);
    }
  });
  return true;
}
bool write_through(const Tensor& y, const Tensor& from, const Padded& p, const Scalar& value) {
  if (!y.device().is_cpu() || y.ndim() == 0) return false;
  const Tensor v = full({}, value, y.dtype());
  switch (y.itemsize()) {
    case 1: return write_through<uint8_t>(y, from, p, v);
    case 2: return write_through<uint16_t>(y, from, p, v);
    case 4: return write_through<uint32_t>(y, from, p, v);
    default: return write_through<uint64_t>(y, from, p, v);
  }
}

Tensor constant_pad(const Tensor& x, const Shape& pad, const Scalar& value) {
  SF_CHECK_AS(TypeError, is_floating(x.dtype()) || value.to_double() == double(value.to_int()), "pad: a ", x.dtype(),
              " tensor cannot hold ", value.to_double());
  Padded p = padded(x, pad);
  bool channels_last =
      x.ndim() >= 3 && x.ndim() <= 5 && !x.is_contiguous() && x.is_contiguous(MemoryFormat::ChannelsLast);
  Tensor y = channels_last ? empty_strided(p.size, channels_last_strides(p.size), x.dtype(), x.device())
                           : empty(p.size, x.dtype(), x.device());
  if (y.numel() > 0) {
    autograd::NoGrad off;
    Tensor from = x, to = y;
    bool nothing = false;
    for (int64_t d = 0; d < x.ndim(); ++d) {  // negative counts crop the source
      int64_t begin = std::max<int64_t>(-p.before[d], 0), end = x.shape()[d] - std::max<int64_t>(-p.after[d], 0);
      nothing |= end <= begin;
      if (nothing) break;
      from = from.narrow(d, begin, end - begin);
      to = to.narrow(d, std::max<int64_t>(p.before[d], 0), end - begin);
    }
    if (nothing) {
      y.fill_(value);
    } else if (!write_through(y, from, p, value)) {
      copy_bytes(to, from);
      fill_border(y, p, from.shape(), value);
    }
  }
  return autograd::record("pad", y, {x}, [pad](const Tensor& dy) -> Tensors {
    Shape back = pad;
    for (auto& n : back) n = -n;
    return {constant_pad(dy, back, 0)};
  });
}

// Which of the n input entries each of `size` output entries of a dimension shows.
spatial::Map source_map(const std::string& mode, int64_t n, int64_t before, int64_t after, int64_t size) {
  spatial::Map m;
  // circular: what is left repeats
  int64_t crop = std::max<int64_t>(-before, 0), period = n - crop - std::max<int64_t>(-after, 0);
  for (int64_t o = 0; o < size; ++o) {
    int64_t i = o - before;
    if (mode == "reflect") i = i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
    else if (mode == "replicate") i = std::clamp<int64_t>(i, 0, n - 1);
    else i = crop + ((i - crop) % period + period) % period;
    m.push_back(i);
  }
  return m;
}

}  // namespace

Tensor pad(const Tensor& input, const Shape& pad, const std::string& mode, std::optional<Scalar> value) {
  check_defined("pad", "input", input);
  if (mode == "constant") return constant_pad(input, pad, value.value_or(0));
  SF_CHECK(mode == "reflect" || mode == "replicate" || mode == "circular",
           "pad: mode must be 'constant', 'reflect', 'replicate' or 'circular', got '", mode, "'");
  SF_CHECK(!value || value->to_double() == 0, "pad: mode '", mode, "' takes no value");
  int64_t dims = pad.size() / 2;
  SF_CHECK(pad.size() % 2 == 0 && dims >= 1 && dims <= 3, "pad: mode '", mode,
           "' pads the last 1 to 3 dimensions, got pad ", pad);
  SF_CHECK(input.ndim() == dims + 1 || input.ndim() == dims + 2, "pad: mode '", mode, "' with ", dims,
           " padded dimensions needs a ", dims + 1, "-D or ", dims + 2, "-D input, got ", input.shape());
  Padded p = padded(input, pad);
  std::vector<spatial::Map> maps;
  for (int64_t d = input.ndim() - dims; d < input.ndim(); ++d) {
    int64_t n = input.shape()[d], most = std::max(p.before[d], p.after[d]);
    SF_CHECK(n > 0 && p.size[d] > 0, "pad: mode '", mode, "' needs entries in dimension ", d, ", got ", input.shape(),
             " with pad ", pad);
    SF_CHECK(mode != "reflect" || most < n, "pad: mode 'reflect' can add at most ", n - 1, " entries to dimension ", d,
             " of ", input.shape(), ", got pad ", pad);
    int64_t left = n + std::min<int64_t>(p.before[d], 0) + std::min<int64_t>(p.after[d], 0);  // after cropping
    SF_CHECK(mode != "circular" || (left > 0 && most <= left), "pad: mode 'circular' can add at most ", left,
             " entries to dimension ", d, " of ", input.shape(), ", got pad ", pad);
    SF_CHECK(p.size[d] <= (int64_t(1) << 26), "pad: mode '", mode, "' is limited to 2^26 entries in a dimension, got ",
             p.size[d]);
    maps.push_back(source_map(mode, n, p.before[d], p.after[d], p.size[d]));
  }
  return spatial::remap("pad", input, maps);
}

SF_OP(pad, "input, pad, mode='constant', value=None")
    .doc("Entries added at both ends of the last dimensions (negative counts crop), filled by mode.")
    .like("torch.nn.functional.pad")
    .kernels(copy_kernel, remap_kernel, remap_backward_kernel);

}  // namespace sf
