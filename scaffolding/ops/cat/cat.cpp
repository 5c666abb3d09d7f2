#include "scaffolding/ops/cat/cat.h"

#include <algorithm>
#include <cstring>

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/cat/kernel.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<CatRows> cat_kernel{"cat"};

namespace {

bool fits_anywhere(const Tensor& t) { return t.ndim() == 1 && t.shape()[0] == 0; }

// Few long rows are better split inside the copy kernel, which all threads share.
constexpr int64_t kManyRows = 16;
// Elements between each other are better copied one by one, piece by piece.
constexpr int64_t kShortBytes = 16;

// Dense pieces of one dtype whose rows interleave. False: not such a case.
bool cat_rows(const Tensor& y, const Tensors& pieces, int64_t dim, bool channels_last) {
  MemoryFormat format = channels_last ? MemoryFormat::ChannelsLast : MemoryFormat::Contiguous;
  for (auto& x : pieces)
    if (x.dtype() != y.dtype() || !x.is_contiguous(format)) return false;
  int64_t place = !channels_last || dim == 0 ? dim : dim == 1 ? y.ndim() - 1 : dim - 1;  // in memory order
  int64_t rows = 1, inner = int64_t(y.itemsize());
  for (int64_t i = 0; i < y.ndim(); ++i) {
    int64_t at = !channels_last || i == 0 ? i : i == 1 ? y.ndim() - 1 : i - 1;
    if (at < place) rows *= y.shape()[i];
    if (at > place) inner *= y.shape()[i];
  }
  if (rows < kManyRows) return false;
  std::vector<const void*> in;
  std::vector<int64_t> bytes;
  int64_t longest = 0;
  for (auto& x : pieces) {
    in.push_back(x.data_ptr());
    bytes.push_back(x.shape()[dim] * inner);
    longest = std::max(longest, bytes.back());
  }
  if (y.device().is_cpu() && longest <= kShortBytes) return false;
  CatRows c{y.data_ptr(), in.data(), bytes.data(), int64_t(in.size()), rows};
  auto kernel = cat_kernel.find(y.device(), c);
  if (!kernel) return false;
  kernel(c);
  return true;
}

void cat_bytes(const Tensor& y, const Tensors& pieces, int64_t dim, bool channels_last) {
  if (y.numel() == 0 || y.device().is_meta() || cat_rows(y, pieces, dim, channels_last)) return;
  autograd::NoGrad off;
  int64_t at = 0;
  for (auto& x : pieces) {
    copy_bytes(y.narrow(dim, at, x.shape()[dim]), x);
    at += x.shape()[dim];
  }
}

}  // namespace

Tensor cat(const Tensors& tensors, int64_t dim) {
  SF_AUTOCAST(cat, tensors, dim);
  SF_CHECK(!tensors.empty(), "cat: needs at least one tensor");
  const Tensor* first = nullptr;
  check_defined("cat", "a tensor", tensors[0]);
  DType dtype = tensors[0].dtype();
  for (auto& x : tensors) {
    check_defined("cat", "a tensor", x);
    SF_CHECK(x.ndim() > 0, "cat: 0-d tensors cannot be joined; use stack");
    check_same_device("cat", tensors[0], x);
    dtype = promote(dtype, x.dtype());
    if (!first && !fits_anywhere(x)) first = &x;
  }
  if (!first) first = &tensors[0];
  int64_t d = wrap_dim("cat", dim, first->ndim());
  Shape size = first->shape();
  size[d] = 0;
  Tensors pieces;
  bool channels_last = true, contiguous = true;
  for (auto& x : tensors) {
    if (fits_anywhere(x) && first->ndim() != 1) continue;
    SF_CHECK(x.ndim() == first->ndim(), "cat: tensors must have the same number of dimensions, got ", first->shape(),
             " and ", x.shape());
    for (int64_t i = 0; i < x.ndim(); ++i)
      SF_CHECK(i == d || x.shape()[i] == first->shape()[i], "cat: sizes must match except in dimension ", d, ", got ",
               first->shape(), " and ", x.shape());
    SF_CHECK(!__builtin_add_overflow(size[d], x.shape()[d], &size[d]), "cat: the result is too large along dimension ",
             d);
    channels_last = channels_last && x.is_contiguous(MemoryFormat::ChannelsLast);
    contiguous = contiguous && x.is_contiguous();
    pieces.push_back(x);
  }
  channels_last = channels_last && !contiguous && size.size() <= 5;
  Tensor y = channels_last ? empty_strided(size, channels_last_strides(size), dtype, first->device())
                           : empty(size, dtype, first->device());
  cat_bytes(y, pieces, d, channels_last);
  if (!autograd::any_requires_grad(tensors)) return y;
  std::vector<Shape> shapes;
  for (auto& x : tensors) shapes.push_back(x.shape());
  return autograd::record("cat", y, tensors, [shapes, d](const Tensor& dy) -> Tensors {
    Tensors dxs;
    int64_t at = 0;
    for (auto& s : shapes) {
      if (s.size() != dy.ndim()) {  // a 1-D tensor of no elements
        dxs.push_back(zeros(s, dy.dtype(), dy.device()));
        continue;
      }
      dxs.push_back(dy.narrow(d, at, s[d]));
      at += s[d];
    }
    return dxs;
  });
}

Tensor stack(const Tensors& tensors, int64_t dim) {
  SF_AUTOCAST(stack, tensors, dim);
  SF_CHECK(!tensors.empty(), "stack: needs at least one tensor");
  check_defined("stack", "a tensor", tensors[0]);
  int64_t d = wrap_dim("stack", dim, tensors[0].ndim() + 1);
  Tensors rows;
  for (auto& x : tensors) {
    check_defined("stack", "a tensor", x);
    SF_CHECK(x.shape() == tensors[0].shape(), "stack: tensors must have equal shapes, got ", tensors[0].shape(),
             " and ", x.shape());
    rows.push_back(x.unsqueeze(d));
  }
  return cat(rows, d);
}

SF_OP(cat, "tensors, dim=0").doc("Tensors joined along dim; dtypes promote.").kernels(cat_kernel);
SF_OP(stack, "tensors, dim=0").doc("Tensors of one shape joined along a new dimension dim.").kernels(cat_kernel);

namespace {

void cat_cpu(const CatRows& c) {
  int64_t total = 0;
  for (int64_t i = 0; i < c.count; ++i) total += c.row_bytes[i];
  parallel_for(c.rows, std::max<int64_t>(1, (1 << 17) / std::max<int64_t>(total, 1)), [&](int64_t b, int64_t e) {
    char* out = static_cast<char*>(c.out) + b * total;
    for (int64_t r = b; r < e; ++r)
      for (int64_t i = 0; i < c.count; ++i) {
        int64_t n = c.row_bytes[i];
        std::memcpy(out, static_cast<const char*>(c.in[i]) + r * n, size_t(n));
        out += n;
      }
  });
}
SF_KERNEL(cat_kernel, DeviceType::CPU, "native", 0, cat_cpu, nullptr)

}  // namespace
}  // namespace sf
