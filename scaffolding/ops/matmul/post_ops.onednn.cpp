#include "scaffolding/ops/matmul/post_ops.h"

namespace sf {

void append(dnnl::post_ops& ops, Activation act) {
  using dnnl::algorithm;
  algorithm a;
  float alpha = 0;
  switch (act) {
    case Activation::Relu: a = algorithm::eltwise_relu; break;
    case Activation::GeluErf: a = algorithm::eltwise_gelu_erf; break;
    case Activation::GeluTanh: a = algorithm::eltwise_gelu_tanh; break;
    case Activation::Silu: a = algorithm::eltwise_swish, alpha = 1; break;
    case Activation::QuickGelu: a = algorithm::eltwise_swish, alpha = 1.702f; break;
    default: return;
  }
#if DNNL_VERSION_MAJOR >= 3
  ops.append_eltwise(a, alpha, 0);
#else
  ops.append_eltwise(1, a, alpha, 0);
#endif
}

}  // namespace sf
