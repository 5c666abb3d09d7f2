// tril and triu.
#include <cstring>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/cat/cat.h"
#include "scaffolding/ops/cat/kernel.h"
#include "scaffolding/ops/copy/copy.h"

namespace sf {

constinit KernelTable<Triangle> triangle_kernel{"triangle"};

static Tensor triangle(const char* op, const Tensor& input, int64_t diagonal, bool lower) {
  check_defined(op, "input", input);
  SF_CHECK(input.ndim() >= 2, op, ": needs at least 2 dimensions, got ", input.shape());
  Tensor y = empty(input.shape(), input.dtype(), input.device());
  if (y.numel() > 0) {
    autograd::NoGrad off;
    int64_t m = y.size(-2), n = y.size(-1);
    Shape batch{y.numel() / (m * n), m, n};
    Tensor x = contiguous(input);
    Triangle t{y.view(batch), x.view(batch), std::clamp(diagonal, -m, n), lower};
    auto kernel = triangle_kernel.find(y.device(), t);
    SF_CHECK_AS(NotSupported, kernel, op, ": no kernel on ", y.device());
    kernel(t);
  }
  return autograd::record(op, y, {input}, [op, diagonal, lower](const Tensor& dy) -> Tensors {
    return {triangle(op, dy, diagonal, lower)};
  });
}

Tensor tril(const Tensor& input, int64_t diagonal) { return triangle("tril", input, diagonal, true); }
Tensor triu(const Tensor& input, int64_t diagonal) { return triangle("triu", input, diagonal, false); }

SF_OP(tril, "input, diagonal=0")
    .doc("The lower triangle of the last two dimensions; zero above the diagonal.")
    .inplace()
    .kernels(triangle_kernel);
SF_OP(triu, "input, diagonal=0")
    .doc("The upper triangle of the last two dimensions; zero below the diagonal.")
    .inplace()
    .kernels(triangle_kernel);

namespace {

void triangle_cpu(const Triangle& t) {
  int64_t m = t.x.sizes[1], n = t.x.sizes[2], item = int64_t(size_of(t.x.dtype));
  parallel_for(t.x.sizes[0] * m, std::max<int64_t>(1, (1 << 15) / n), [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) {
      int64_t split = std::clamp<int64_t>(r % m + t.diagonal + (t.lower ? 1 : 0), 0, n) * item, row = n * item;
      char* y = t.y.as<char>() + r * row;
      const char* x = t.x.as<const char>() + r * row;
      if (t.lower) {
        std::memcpy(y, x, size_t(split));
        std::memset(y + split, 0, size_t(row - split));
      } else {
        std::memset(y, 0, size_t(split));
        std::memcpy(y + split, x + split, size_t(row - split));
      }
    }
  });
}
SF_KERNEL(triangle_kernel, DeviceType::CPU, "native", 0, triangle_cpu, nullptr)

}  // namespace
}  // namespace sf
