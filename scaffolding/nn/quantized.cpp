#include "scaffolding/nn/quantized.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/nn/format.h"
#include "scaffolding/nn/stored_product.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/quantize/block_codes.h"
#include "scaffolding/ops/quantize/coded_kernel.h"
#include "scaffolding/ops/quantize/fp8.h"
#include "scaffolding/ops/quantize/nf4.h"
#include "scaffolding/ops/reduce/reduce.h"

namespace sf::nn {

LinearNF4::LinearNF4(int64_t in, int64_t out, bool with_bias, bool compress, const TensorOptions& options,
                     const Tensor& dense)
    : in_features(in), out_features(out), compress_statistics(compress) {
  check_features("LinearNF4", in, out);
  Device place = options.device.value_or(Device());
  set_weight(dense ? dense : zeros({out, in}, kFloat32, place));
  if (with_bias) bias = parameter(zeros({out}, options.dtype, place));
}

void LinearNF4::set_weight(const Tensor& dense) {
  check_dense_weight("LinearNF4", dense, out_features, in_features);
  autograd::NoGrad off;
  auto [codes, magnitudes] = quantize_nf4(dense);
  const BlockMagnitudes kept = kept_magnitudes(magnitudes, compress_statistics);
  weight = Buffer(codes), absmax = Buffer(kept.absmax);
  if (kept.offset) nested_absmax = Buffer(kept.nested_absmax), offset = Buffer(kept.offset);
}

Tensor LinearNF4::forward(const Tensor& input) const {
  check_input_features("LinearNF4", input, in_features);
  return linear_nf4(input, weight, absmax, nested_absmax, offset, bias, out_features);
}

Tensor LinearNF4::dense_weight(DType dtype) const {
  return dequantize_nf4(weight, absmax, {out_features, in_features}, dtype, 64, nested_absmax, offset);
}

std::string LinearNF4::weight_format() const { return "nf4"; }
Shape LinearNF4::dense_shape() const { return {out_features, in_features}; }
Tensor LinearNF4::forward_plus(const Tensor& input, const Tensor& residual) const {
  return stored_product(*this, input, {.residual = residual});
}

std::string LinearNF4::extra_repr() const {
  return "in_features=" + text(in_features) + ", out_features=" + text(out_features) + ", bias=" + text(bool(bias)) +
         (compress_statistics ? "" : ", compress_statistics=False");
}

LinearFP8::LinearFP8(int64_t in, int64_t out, bool with_bias, bool per_row, bool quantises_input, DType weight_dtype,
                     const TensorOptions& options, const Tensor& dense)
    : in_features(in), out_features(out), dynamic(quantises_input) {
  check_features("LinearFP8", in, out);
  SF_CHECK_AS(TypeError, is_float8(weight_dtype), "LinearFP8: weight_dtype must be float8_e4m3fn or float8_e5m2, got ",
              weight_dtype);
  Device place = options.device.value_or(Device());
  weight = Buffer(zeros({out, in}, weight_dtype, place));
  scale = Buffer(ones(per_row ? Shape{out, 1} : Shape{}, kFloat32, place));
  if (dense) set_weight(dense);
  if (with_bias) bias = parameter(zeros({out}, options.dtype, place));
}

void LinearFP8::set_weight(const Tensor& dense) {
  check_dense_weight("LinearFP8", dense, out_features, in_features);
  auto [q, s] = quantize_fp8(dense, weight.dtype(), scale.ndim() > 0);
  weight = Buffer(q), scale = Buffer(s);
}

Tensor LinearFP8::forward(const Tensor& input) const {
  SF_CHECK_AS(TypeError, is_float8(weight.dtype()), "LinearFP8: weight was converted to ", weight.dtype(),
              "; convert a model to another dtype before it is quantised, not after");
  return linear_fp8(input, weight, scale, bias, dynamic);
}

Tensor LinearFP8::dense_weight(DType dtype) const { return dequantize_fp8(weight, scale, dtype); }

std::string LinearFP8::weight_format() const { return std::string(name(weight.dtype())); }
Shape LinearFP8::dense_shape() const { return {out_features, in_features}; }
Tensor LinearFP8::forward_plus(const Tensor& input, const Tensor& residual) const {
  return stored_product(*this, input, {.residual = residual});
}

std::string LinearFP8::extra_repr() const {
  return "in_features=" + text(in_features) + ", out_features=" + text(out_features) + ", bias=" + text(bool(bias)) +
         ", weight_dtype=" + std::string(name(weight.dtype())) + (scale.ndim() > 0 ? "" : ", per_row=False") +
         (dynamic ? ", dynamic=True" : "");
}

SF_LAYER(LinearNF4,
         "in_features, out_features, bias=True, compress_statistics=True, device=None, dtype=None, _weight=None",
         [](int64_t in_features, int64_t out_features, bool bias, bool compress, std::optional<Device> device,
            std::optional<DType> dtype, const Tensor& dense) {
           return std::make_unique<LinearNF4>(in_features, out_features, bias, compress, TensorOptions{device, dtype},
                                              dense);
         })
    .doc("Linear with a frozen weight in NormalFloat4, zeros at first; scaffolding.nn.quantize_ makes it of a Linear.")
    .forward<&LinearNF4::forward>("input")
    .field<&LinearNF4::in_features>("in_features")
    .field<&LinearNF4::out_features>("out_features")
    .field<&LinearNF4::compress_statistics>("compress_statistics");
SF_LAYER(LinearFP8,
         "in_features, out_features, bias=True, per_row=True, dynamic=False, weight_dtype=None, device=None, "
         "dtype=None, _weight=None",
         [](int64_t in_features, int64_t out_features, bool bias, bool per_row, bool dynamic,
            std::optional<DType> weight_dtype, std::optional<Device> device, std::optional<DType> dtype,
            const Tensor& dense) {
           return std::make_unique<LinearFP8>(in_features, out_features, bias, per_row, dynamic,
                                              weight_dtype.value_or(kFloat8E4M3), TensorOptions{device, dtype}, dense);
         })
    .doc("Linear with a frozen weight in float8, zeros at first; scaffolding.nn.quantize_ makes it of a Linear.")
    .forward<&LinearFP8::forward>("input")
    .field<&LinearFP8::in_features>("in_features")
    .field<&LinearFP8::out_features>("out_features")
    .field<&LinearFP8::dynamic>("dynamic");

}  // namespace sf::nn
