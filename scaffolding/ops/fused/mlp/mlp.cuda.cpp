// cuBLASLt's epilogues that keep an activation's argument (GELU_AUX) or its sign (RELU_AUX), and those that multiply by
// its slope and sum what the bias gets (DGELU_BGRAD, DRELU_BGRAD).
#include "scaffolding/backend/precision.h"
#include "scaffolding/ops/fused/mlp/kernel.h"
#include "scaffolding/ops/matmul/cublaslt_product.h"

namespace sf::cuda {
namespace {

// Strides of a mask count bits, as cuBLASLt's "leading dimension of the auxiliary buffer" does.
TensorView in_elements(TensorView aux, Activation act) {
  if (act == Activation::Relu)
    for (int d : {0, 1}) aux.strides[d] *= 8;
  return aux;
}

Product product_of(const TensorView& a, const TensorView& b, const TensorView& c, const ProductEpilogue& epilogue) {
  return {b.dtype,
          a.dtype,
          c.dtype,
          1,
          *columns_of(b),
          *columns_of(a),
          *columns_of(c),
          epilogue,
          a.dtype == kFloat32 && matmul_allow_tf32(),
          c.device};
}
Product product_of(const MlpHidden& m) {
  const auto kind = m.act == Activation::Relu ? m.bias ? CUBLASLT_EPILOGUE_RELU_AUX_BIAS : CUBLASLT_EPILOGUE_RELU_AUX
                    : m.bias                  ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                                              : CUBLASLT_EPILOGUE_GELU_AUX;
  return product_of(m.x, m.w, m.h, {kind, m.bias, in_elements(m.aux, m.act)});
}
Product product_of(const MlpHiddenGradient& g) {
  const auto kind = g.act == Activation::Relu ? g.dbias ? CUBLASLT_EPILOGUE_DRELU_BGRAD : CUBLASLT_EPILOGUE_DRELU
                    : g.dbias                 ? CUBLASLT_EPILOGUE_DGELU_BGRAD
                                              : CUBLASLT_EPILOGUE_DGELU;
  return product_of(g.dy, g.w, g.dpre, {kind, g.dbias, in_elements(g.aux, g.act)});
}

// GELU for 16 bits alone: its tanh may be the GPU's approximate one, 2^-11 away.
bool can(const TensorView& a, const TensorView& b, const TensorView& c, Activation act) {
  return (is_reduced(a.dtype) || (a.dtype == kFloat32 && act == Activation::Relu)) && columns_of(a) && columns_of(b) &&
         columns_of(c) && !columns_of(c)->as_written;
}

template <class Call> void run(const Call& c) {
  if (!product_of(c).run(1, 0)) check_cublas(CUBLAS_STATUS_NOT_SUPPORTED, "mlp");
}

SF_KERNEL(mlp_hidden, DeviceType::CUDA, "cublaslt", 10, run<MlpHidden>,
          [](const MlpHidden& m) { return can(m.x, m.w, m.h, m.act) && product_of(m).exists(); })
SF_KERNEL(mlp_hidden_gradient, DeviceType::CUDA, "cublaslt", 10, run<MlpHiddenGradient>,
          [](const MlpHiddenGradient& g) { return can(g.dy, g.w, g.dpre, g.act) && product_of(g).exists(); })

}  // namespace
}  // namespace sf::cuda
