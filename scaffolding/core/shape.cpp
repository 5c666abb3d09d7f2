#include "scaffolding/core/shape.h"

namespace sf {

std::string str(const Shape& s) {
  std::string out = "[";
  for (int64_t i = 0; i < s.size(); ++i) out += (i ? ", " : "") + std::to_string(s[i]);
  return out + "]";
}

int64_t numel(const Shape& s) {
  int64_t n = 1;
  bool zero = false;
  for (auto d : s) {
    SF_CHECK(d >= 0, "shape: sizes must not be negative, got ", s);
    zero |= d == 0;
  }
  // A zero does not excuse the others: strides are products of them.
  for (auto d : s)
    SF_CHECK(!__builtin_mul_overflow(n, std::max<int64_t>(d, 1), &n), "shape: ", s,
             " has more elements than fit in 63 bits");
  return zero ? 0 : n;
}

Shape contiguous_strides(const Shape& sizes) {
  Shape st = Shape::filled(sizes.size(), 1);
  for (int64_t i = sizes.size() - 2; i >= 0; --i) st[i] = st[i + 1] * std::max<int64_t>(sizes[i + 1], 1);
  return st;
}

Shape channels_last_strides(const Shape& sizes) {
  SF_CHECK(sizes.size() >= 3 && sizes.size() <= 5, "channels_last: needs a 3-D, 4-D or 5-D tensor [N, C, ...], got ",
           sizes);
  Shape st = Shape::filled(sizes.size(), 1);
  int64_t step = std::max<int64_t>(sizes[1], 1);
  for (int64_t i = sizes.size() - 1; i >= 2; --i) {
    st[i] = step;
    step *= std::max<int64_t>(sizes[i], 1);
  }
  st[0] = step;
  return st;
}

Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b) {
  Shape out = a.size() >= b.size() ? a : b;
  int64_t n = out.size();
  for (int64_t i = 1; i <= n; ++i) {
    int64_t x = i <= a.size() ? a[a.size() - i] : 1, y = i <= b.size() ? b[b.size() - i] : 1;
    SF_CHECK(x == y || x == 1 || y == 1, op, ": shapes ", a, " and ", b, " do not broadcast at dimension ", n - i, " (",
             x, " against ", y, ")");
    out[n - i] = x == 1 ? y : x;
  }
  return out;
}

int64_t wrap_dim(const char* op, int64_t dim, int64_t ndim) {
  int64_t n = ndim == 0 ? 1 : ndim;  // a 0-d tensor accepts dim 0 and -1, as in torch
  SF_CHECK_AS(IndexError, dim >= -n && dim < n, op, ": dim must be in [", -n, ", ", n - 1, "], got ", dim);
  return dim < 0 ? dim + n : dim;
}

Shape wrap_dims(const char* op, const Shape& dims, int64_t ndim) {
  Shape out;
  if (dims.empty()) {
    for (int64_t i = 0; i < ndim; ++i) out.push_back(i);
    return out;
  }
  for (auto d : dims) {
    int64_t w = wrap_dim(op, d, ndim);
    SF_CHECK(!out.contains(w), op, ": dim ", d, " appears twice in ", dims);
    if (ndim > 0) out.push_back(w);
  }
  return out;
}

}  // namespace sf
