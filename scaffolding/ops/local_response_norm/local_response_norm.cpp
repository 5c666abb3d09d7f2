#include "scaffolding/ops/local_response_norm/local_response_norm.h"

#include "scaffolding/core/op.h"
#include "scaffolding/ops/pad/pad.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/pool/pool.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

Tensor local_response_norm(const Tensor& input, int64_t size, double alpha, double beta, double k) {
  const char* op = "local_response_norm";
  check_defined(op, "input", input);
  check_floating(op, "input", input);
  SF_CHECK(input.ndim() >= 3, op, ": input must have at least 3 dimensions, got ", input.shape());
  SF_CHECK(size > 0, op, ": size must be positive, got ", size);
  if (input.numel() == 0) return input;
  const int64_t batch = input.size(0), channels = input.size(1);
  Tensor squares = square(input).reshape({batch, channels, input.numel() / (batch * channels)});
  Tensor mean = avg_pool2d(pad(squares, {0, 0, size / 2, (size - 1) / 2}), {size, 1}, {1});
  return input / pow(mean.reshape(input.shape()) * alpha + k, wrapped(beta));
}

SF_OP(local_response_norm, "input, size, alpha=1e-4, beta=0.75, k=1.0")
    .doc("input[N, C, ...] / (k + alpha * mean of input^2 over size neighbouring channels)^beta.")
    .like("torch.nn.functional.local_response_norm");

}  // namespace sf
