#include "scaffolding/ops/ctc_loss/ctc_loss.h"

#include <vector>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/ctc_loss/kernel.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/loss/reduction.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<CtcLoss> ctc_loss_kernel{"ctc_loss"};

namespace {

constexpr const char* kOp = "ctc_loss";

// Integers on the host.
Tensor on_host(const char* name, const Tensor& t) {
  check_defined(kOp, name, t);
  SF_CHECK_AS(TypeError, is_integral(t.dtype()), kOp, ": ", name, " must be integers, got ", t.dtype());
  if (t.device().is_cuda()) cuda::refuse_while_capturing(kOp, "reading lengths and targets");
  return t.device().is_meta() ? t : contiguous(to_device(to_dtype(t, kInt64), Device::CPU));
}

struct Batch {
  Tensor targets, input_lengths, target_lengths;  // int64, on the host: [N, S], [N], [N]
};

Tensor lengths(const char* name, const Tensor& given, int64_t n, int64_t most) {
  Tensor t = on_host(name, given);
  SF_CHECK(t.numel() == n && t.ndim() <= 1, kOp, ": ", name, " must have shape [", n, "], got ", given.shape());
  if (t.device().is_meta()) return t;
  for (int64_t i = 0; i < n; ++i) {
    int64_t length = t.data<int64_t>()[i];
    SF_CHECK(length >= 0 && length <= most, kOp, ": ", name, " must be between 0 and ", most, ", got ", length);
  }
  return t.reshape({n});
}

Batch checked(const Tensor& x, const Tensor& targets, const Tensor& input_lengths, const Tensor& target_lengths) {
  int64_t time = x.shape()[0], n = x.shape()[1], classes = x.shape()[2];
  Tensor given = on_host("targets", targets);
  bool joined = given.ndim() == 1 && !(n == 1 && given.numel() == 0);
  SF_CHECK(given.ndim() == 1 || (given.ndim() == 2 && given.shape()[0] == n), kOp, ": targets must be [", n,
           ", S], or [sum of target_lengths], got ", targets.shape());
  int64_t room = given.shape().back();
  Batch b{given, lengths("input_lengths", input_lengths, n, time), lengths("target_lengths", target_lengths, n, room)};
  if (x.device().is_meta() || given.device().is_meta() || b.target_lengths.device().is_meta()) return b;
  const int64_t *length = b.target_lengths.data<int64_t>(), *from = given.data<int64_t>();
  int64_t total = 0, longest = 0;
  for (int64_t i = 0; i < n; ++i) total += length[i], longest = std::max(longest, length[i]);
  SF_CHECK(!joined || total == room, kOp, ": targets must have shape [", total, "], the sum of target_lengths, got ",
           targets.shape());
  b.targets = zeros({n, longest}, kInt64);
  for (int64_t i = 0, at = 0; i < n; at += length[i++])
    for (int64_t s = 0; s < length[i]; ++s) {
      int64_t c = from[given.ndim() == 2 ? i * room + s : at + s];
      SF_CHECK_AS(IndexError, c >= 0 && c < classes, kOp, ": target ", c, " is not one of ", classes, " classes");
      b.targets.data<int64_t>()[i * longest + s] = c;
    }
  return b;
}

// The losses [N] of x[T, N, C] in float32 or wider.
Tensor losses_of(const Tensor& x, const Batch& b, int64_t blank, bool zero_infinity) {
  Tensor y = empty({x.shape()[1]}, x.dtype(), x.device()), dx;
  if (x.device().is_meta()) return y;
  {
    autograd::NoGrad off;
    Tensor dense = contiguous(x), targets = to_device(b.targets, x.device()),
           input = to_device(b.input_lengths, x.device()), target = to_device(b.target_lengths, x.device());
    CtcLoss k{dense, targets, input, target, blank, y, {}};
    auto kernel = ctc_loss_kernel.find(x.device(), k);
    SF_CHECK_AS(NotSupported, kernel, kOp, ": no kernel for ", x.dtype(), " on ", x.device(),
                "; move the tensors to the CPU");
    if (x.requires_grad()) {
      dx = empty(dense.shape(), x.dtype(), x.device());
      k.dx = dx;
    }
    if (y.numel() > 0) kernel(k);
    if (zero_infinity) {
      Tensor impossible = isinf(y);
      y = masked_fill(y, impossible, 0.0);
      if (dx) dx = masked_fill(dx, impossible.reshape({1, -1, 1}), 0.0);
    }
  }
  return autograd::record(kOp, y, {x}, [dx, x = autograd::save(x)](const Tensor& dy) -> Tensors {
    if (autograd::grad_enabled()) autograd::refuse_gradient("ctc_loss_backward", {dy, x.get()});
    return {dx * dy.reshape({1, -1, 1})};
  });
}

}  // namespace

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, int64_t blank, const std::string& reduction, bool zero_infinity) {
  check_defined(kOp, "log_probs", log_probs);
  check_floating(kOp, "log_probs", log_probs);
  SF_CHECK_AS(TypeError, !is_float8(log_probs.dtype()), kOp, ": ", log_probs.dtype(),
              " is storage only; convert it to compute");
  SF_CHECK(log_probs.ndim() == 2 || log_probs.ndim() == 3, kOp, ": log_probs must be [T, N, C] or [T, C], got ",
           log_probs.shape());
  loss::Reduce reduce = loss::reduce_from(kOp, reduction);
  Tensor x = log_probs.ndim() == 3 ? log_probs : log_probs.unsqueeze(1);
  SF_CHECK(blank >= 0 && blank < x.shape()[2], kOp, ": blank must be one of ", x.shape()[2], " classes, got ", blank);
  Batch b = checked(x, targets, input_lengths, target_lengths);
  DType t = x.dtype(), wide = t == kFloat64 ? kFloat64 : kFloat32;
  Tensor y = losses_of(to_dtype(x, wide), b, blank, zero_infinity);
  if (reduce == loss::Reduce::Mean && !y.device().is_meta())
    y = y / to_device(to_dtype(clamp(b.target_lengths, 1), wide), y.device());
  y = to_dtype(loss::reduced(y, reduce), t);
  return log_probs.ndim() == 2 && reduce == loss::Reduce::None ? y.squeeze(0) : y;
}

SF_OP(ctc_loss, "log_probs, targets, input_lengths, target_lengths, blank=0, reduction='mean', zero_infinity=False")
    .doc("-log of the probability that log_probs[T, N, C] spell targets [N, S] or [sum of lengths], without alignment.")
    .like("torch.nn.functional.ctc_loss")
    .kernels(ctc_loss_kernel);

}  // namespace sf
