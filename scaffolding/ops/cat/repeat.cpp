// repeat, tile, repeat_interleave and meshgrid: expanded views, straightened by one copy.
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/cat/cat.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

// x[a, b] -> [r, a, s, b] -> [r * a, s * b].
static Tensor repeat_dims(const Tensor& x, const Shape& repeats) {
  Shape split, grown, joined;
  int64_t repeated = 0;
  for (auto r : repeats) repeated += r != 1;
  if (x.ndim() + repeated > kMaxDims && repeated > 1) {  // the doubled dimensions do not fit: one dimension at a time
    Tensor y = x;
    for (int64_t i = 0; i < repeats.size(); ++i) {
      Shape one = Shape::filled(repeats.size(), 1);
      one[i] = repeats[i];
      y = repeat_dims(y, one);
    }
    return y;
  }
  for (int64_t i = 0; i < repeats.size(); ++i) {
    if (repeats[i] != 1) {
      split.push_back(1);
      grown.push_back(repeats[i]);
    }
    split.push_back(x.shape()[i]);
    grown.push_back(x.shape()[i]);
    joined.push_back(x.shape()[i] * repeats[i]);
  }
  return x.reshape(split).expand(grown).reshape(joined);
}

Tensor repeat(const Tensor& input, const Shape& repeats) {
  check_defined("repeat", "input", input);
  SF_CHECK(repeats.size() >= input.ndim(), "repeat: needs a count for each dimension of ", input.shape(), ", got ",
           repeats);
  Shape lead = Shape::filled(repeats.size() - input.ndim(), 1);
  for (auto s : input.shape()) lead.push_back(s);
  for (int64_t i = 0; i < lead.size(); ++i) {
    int64_t n;
    SF_CHECK(repeats[i] >= 0, "repeat: counts must not be negative, got ", repeats);
    SF_CHECK(!__builtin_mul_overflow(lead[i], repeats[i], &n), "repeat: ", input.shape(), " repeated ", repeats,
             " times is too large");
  }
  Tensor y = repeat_dims(input.reshape(lead), repeats);
  return y.storage() == input.storage() ? clone(y) : y;
}

Tensor tile(const Tensor& input, const Shape& dims) {
  check_defined("tile", "input", input);
  Shape counts = dims;
  while (counts.size() < input.ndim()) counts.insert(0, 1);
  return repeat(input, counts);
}

// The positions each entry is taken from: [2, 0, 3] -> 0 0 2 2 2.
static Tensor sources(const Tensor& repeats, int64_t n, std::optional<int64_t> output_size, Device device) {
  Tensor counts = contiguous(to_device(to_dtype(repeats.detach(), kInt64), Device::CPU)).expand({n}).contiguous();
  const auto* count = counts.data<int64_t>();
  int64_t total = 0;
  for (int64_t i = 0; i < n; ++i) {
    SF_CHECK(count[i] >= 0, "repeat_interleave: repeats must not be negative, got ", count[i], " at ", i);
    SF_CHECK(!__builtin_add_overflow(total, count[i], &total), "repeat_interleave: the result is too large");
  }
  SF_CHECK(!output_size || *output_size == total, "repeat_interleave: output_size must be the sum of repeats, ", total,
           ", got ", output_size.value_or(0));
  Tensor from = empty({total}, kInt64);
  auto* p = from.data<int64_t>();
  for (int64_t i = 0; i < n; ++i) p = std::fill_n(p, count[i], i);
  return to_device(from, device);
}

Tensor repeat_interleave(const Tensor& input, const Tensor& repeats, std::optional<int64_t> dim,
                         std::optional<int64_t> output_size) {
  check_defined("repeat_interleave", "input", input);
  check_defined("repeat_interleave", "repeats", repeats);
  SF_CHECK_AS(TypeError, is_integral(repeats.dtype()), "repeat_interleave: repeats must be integers, got ",
              repeats.dtype());
  Tensor x = dim && input.ndim() > 0 ? input : input.reshape({input.numel()});
  int64_t d = wrap_dim("repeat_interleave", dim.value_or(0), x.ndim()), n = x.shape()[d];
  SF_CHECK(repeats.ndim() == 0 || (repeats.ndim() == 1 && (repeats.shape()[0] == n || repeats.shape()[0] == 1)),
           "repeat_interleave: repeats must be one number or one for each of the ", n, " entries of dimension ", d,
           ", got shape ", repeats.shape());
  if (repeats.device().is_meta()) {
    SF_CHECK_AS(RuntimeError, output_size,
                "repeat_interleave: repeats on the meta device has no values; pass output_size");
    Shape size = x.shape();
    size[d] = *output_size;
    return empty(size, x.dtype(), x.device());
  }
  if (repeats.device().is_cuda() || (x.device().is_cuda() && repeats.numel() != 1))
    cuda::refuse_while_capturing("repeat_interleave", "a result whose shape depends on the values of repeats");
  if (repeats.numel() != 1) return index_select(x, d, sources(repeats, n, output_size, x.device()));
  int64_t count = repeats.item_int();
  SF_CHECK(count >= 0, "repeat_interleave: repeats must not be negative, got ", count);
  int64_t total;
  SF_CHECK(!__builtin_mul_overflow(n, count, &total), "repeat_interleave: the result is too large");
  SF_CHECK(!output_size || *output_size == total, "repeat_interleave: output_size must be ", total, ", got ",
           output_size.value_or(0));
  SF_CHECK(x.ndim() < kMaxDims, "repeat_interleave: at most ", kMaxDims - 1, " dimensions are supported, got ",
           x.shape());
  Shape grown = x.shape(), joined = x.shape();
  grown.insert(d + 1, count);
  joined[d] = total;
  Tensor y = x.unsqueeze(d + 1).expand(grown).reshape(joined);
  return y.storage() == input.storage() ? clone(y) : y;
}

Tensors meshgrid(const Tensors& tensors, const std::string& indexing) {
  SF_CHECK(!tensors.empty(), "meshgrid: needs at least one tensor");
  SF_CHECK(indexing == "ij" || indexing == "xy", "meshgrid: indexing must be 'ij' or 'xy', got '", indexing, "'");
  int64_t n = int64_t(tensors.size());
  SF_CHECK(n <= kMaxDims, "meshgrid: at most ", kMaxDims, " tensors, got ", n);
  bool swap = indexing == "xy" && n >= 2;
  auto place = [&](int64_t i) { return swap && i < 2 ? 1 - i : i; };
  Shape size = Shape::filled(n, 1);
  for (int64_t i = 0; i < n; ++i) {
    const Tensor& x = tensors[size_t(i)];
    check_defined("meshgrid", "a tensor", x);
    check_same_device("meshgrid", tensors[0], x);
    SF_CHECK(x.ndim() <= 1, "meshgrid: tensors must be 1-D, got ", x.shape());
    SF_CHECK_AS(TypeError, x.dtype() == tensors[0].dtype(), "meshgrid: tensors must have one dtype, got ",
                tensors[0].dtype(), " and ", x.dtype());
    size[place(i)] = x.numel();
  }
  Tensors grids;
  for (int64_t i = 0; i < n; ++i) {
    Shape column = Shape::filled(n, 1);
    column[place(i)] = tensors[size_t(i)].numel();
    grids.push_back(tensors[size_t(i)].reshape(column).expand(size));
  }
  return grids;
}

SF_OP(repeat, "input, repeats").doc("input repeated repeats[i] times along dimension i.").like("input.repeat(repeats)");
SF_OP(tile, "input, dims").doc("repeat, with missing leading counts taken as 1.");
SF_OP(repeat_interleave, "input, repeats, dim=None, output_size=None")
    .doc("Each entry of dim repeated in place, as often as repeats says.")
    .like("torch.repeat_interleave(input, repeats, dim, output_size=output_size)");
SF_OP(meshgrid, "tensors, indexing='ij'")
    .doc("1-D tensors expanded to grids, as views.")
    .like("torch.meshgrid(tensors, indexing=indexing)");

}  // namespace sf
