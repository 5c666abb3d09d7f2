#include "scaffolding/ops/fused/mlp/mlp.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/fused/linear_act/linear_act.h"
#include "scaffolding/ops/fused/mlp/kernel.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
using autograd::save;

constinit KernelTable<MlpHidden> mlp_hidden{"mlp_hidden"};
constinit KernelTable<MlpHiddenGradient> mlp_hidden_gradient{"mlp_hidden_gradient"};

namespace {

enum { Input, Weight1, Bias1, Weight2, Bias2, Arguments };

Tensor composed(const Tensors& in, const std::string& activation) {
  return linear(linear_act(in[Input], in[Weight1], in[Bias1], activation), in[Weight2], in[Bias2]);
}

// Whether the fused pass computes with such arguments; what is wrong with others the composition says.
bool is_plain(const Tensors& in) {
  for (int i = 0; i < Arguments; ++i) {
    if (!in[i] && i != Bias1 && i != Bias2) return false;
    if (in[i] && (in[i].dtype() != in[Input].dtype() || in[i].device() != in[Input].device() || in[i].numel() == 0))
      return false;
  }
  if (in[Input].ndim() < 1 || in[Weight1].ndim() != 2 || in[Weight2].ndim() != 2) return false;
  const int64_t hidden = in[Weight1].size(0);
  return in[Input].shape().back() == in[Weight1].size(1) && in[Weight2].size(1) == hidden &&
         (!in[Bias1] || in[Bias1].shape() == Shape{hidden}) &&
         (!in[Bias2] || in[Bias2].shape() == Shape{in[Weight2].size(0)});
}

// What a kernel keeps of act's argument [1, rows, hidden] for its gradient (kernel.h).
Tensor make_aux(Activation act, int64_t rows, int64_t hidden, const Tensor& like) {
  auto padded = [&](int64_t unit) { return (hidden + unit - 1) / unit * unit; };
  return act == Activation::Relu ? empty({1, rows, padded(128) / 8}, kUInt8, like.device())
                                 : empty({1, rows, padded(8)}, like.dtype(), like.device());
}

// y of a call that records a gradient, by kernels that pass the activation on the way; empty where there are none.
Tensor recorded(const Tensors& in, const std::string& name) {
  const Tensor &input = in[Input], &weight_1 = in[Weight1], &weight_2 = in[Weight2];
  const Activation act = name == "relu" ? Activation::Relu : Activation::GeluTanh;
  const int64_t hidden = weight_1.size(0), inner = weight_1.size(1), out = weight_2.size(0),
                rows = input.numel() / inner;
  bool needs[Arguments];
  for (int i = 0; i < Arguments; ++i) needs[i] = in[i].requires_grad();
  Shape hidden_size = input.shape(), out_size = hidden_size;
  hidden_size.back() = hidden, out_size.back() = out;
  auto bias_gradient = [=, device = input.device(), dtype = input.dtype()] {
    return needs[Bias1] ? empty({hidden}, dtype, device) : Tensor();
  };
  Tensor y, h, aux;
  {
    autograd::NoGrad off;
    y = empty(out_size, input.dtype(), input.device()), h = empty(hidden_size, input.dtype(), input.device()),
    aux = make_aux(act, rows, hidden, input);
    const Tensor h3 = h.view({1, rows, hidden}), y3 = y.view({1, rows, out});
    // held until the kernel has run: copies where memory lies otherwise
    const Tensor x3 = input.reshape({1, rows, inner}), bias_1 = in[Bias1] ? contiguous(in[Bias1]) : Tensor();
    MlpHidden forward{x3, weight_1.t().unsqueeze(0), bias_1, h3, aux, act};
    auto kernel = mlp_hidden.find(input.device(), forward);
    // dy and dpre will be memory like y and h.
    if (!kernel ||
        !mlp_hidden_gradient.find(input.device(), {y3, weight_2.unsqueeze(0), aux, h3, bias_gradient(), act}))
      return {};
    kernel(forward);
    gemm_into("mlp", h3, weight_2.t().unsqueeze(0), y3, 0, {.bias = in[Bias2] ? contiguous(in[Bias2]) : Tensor()});
  }
  return autograd::record(
      "mlp", y, in,
      [=, x = save(input), w1 = save(weight_1), w2 = save(weight_2), kept_aux = save(aux),
       kept_h = save(needs[Weight2] ? h : Tensor())](const Tensor& grad) -> Tensors {
        Tensor dy = contiguous(grad);
        Tensors second = linear_gradients(dy, needs[Weight2] ? kept_h.get() : Tensor(), {}, needs[Bias2]);
        Tensor dpre = empty(hidden_size, dy.dtype(), dy.device()), dbias = bias_gradient();
        auto pass = [&](const Tensor& from) {
          MlpHiddenGradient g{from.view({1, rows, out}),
                              w2.get().unsqueeze(0),
                              kept_aux.get(),
                              dpre.view({1, rows, hidden}),
                              dbias,
                              act};
          auto kernel = mlp_hidden_gradient.find(from.device(), g);
          if (kernel) kernel(g);
          return bool(kernel);
        };
        // A gradient that begins where no product was planned for is copied to memory like y's.
        SF_CHECK_AS(NotSupported, pass(dy) || pass(clone(dy)), "mlp: no kernel for the gradient of ", dy.dtype(), " ",
                    dy.shape(), " on ", dy.device());
        Tensors first =
            linear_gradients(dpre, needs[Weight1] ? x.get() : Tensor(), needs[Input] ? w1.get() : Tensor(), false);
        return {std::move(first[0]), std::move(first[1]), dbias, std::move(second[1]), std::move(second[2])};
      },
      [name](const Tensors& again) -> Tensors { return {composed(again, name)}; });
}

}  // namespace

Tensor mlp(const Tensor& input, const Tensor& weight_1, const Tensor& bias_1, const Tensor& weight_2,
           const Tensor& bias_2, const std::string& activation) {
  SF_AUTOCAST(mlp, input, weight_1, bias_1, weight_2, bias_2, activation);
  const Tensors in{input, weight_1, bias_1, weight_2, bias_2};
  // cuBLASLt's GELU is the one by tanh, for exact GELU there is no epilogue. Where no gradient comes to the activation
  // it is part of the first product anyway.
  const bool has_epilogue = activation == "gelu_tanh" || activation == "relu";
  if (has_epilogue && input && input.device().is_cuda() && autograd::any_requires_grad({input, weight_1, bias_1}) &&
      is_plain(in))
    if (Tensor y = recorded(in, activation)) return y;
  return composed(in, activation);
}

SF_OP(mlp, "input, weight_1, bias_1, weight_2, bias_2=None, activation='gelu_tanh'")
    .doc(
        "linear(linear_act(input, weight_1, bias_1, activation), weight_2, bias_2); on CUDA the gradients of relu and "
        "gelu_tanh are part of a product's pass.")
    .like(
        "F.linear({'relu': torch.relu, 'gelu': F.gelu, 'silu': F.silu, 'gelu_tanh': lambda x: F.gelu(x, "
        "approximate='tanh'), 'quick_gelu': lambda x: x * "
        "torch.sigmoid(1.702 * x)}[activation](F.linear(input, weight_1, bias_1)), weight_2, bias_2)")
    .kernels(mlp_hidden, mlp_hidden_gradient, gemm);

}  // namespace sf
