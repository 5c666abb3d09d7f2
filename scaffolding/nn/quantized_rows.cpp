#include "scaffolding/nn/quantized_rows.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/nn/format.h"
#include "scaffolding/nn/stored_product.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/quantize/block_codes.h"
#include "scaffolding/ops/quantize/coded_kernel.h"
#include "scaffolding/ops/quantize/fp4.h"
#include "scaffolding/ops/quantize/nf4.h"

namespace sf::nn {

LinearFP4::LinearFP4(int64_t in, int64_t out, bool with_bias, bool compress, const TensorOptions& options,
                     const Tensor& dense)
    : in_features(in), out_features(out), compress_statistics(compress) {
  check_features("LinearFP4", in, out);
  const Device place = options.device.value_or(Device());
  set_weight(dense ? dense : zeros({out, in}, kFloat32, place));
  if (with_bias) bias = parameter(zeros({out}, options.dtype, place));
}

void LinearFP4::set_weight(const Tensor& dense) {
  check_dense_weight("LinearFP4", dense, out_features, in_features);
  autograd::NoGrad off;
  auto [codes, magnitudes] = quantize_fp4(dense);
  const BlockMagnitudes kept = kept_magnitudes(magnitudes, compress_statistics);
  weight = Buffer(codes), absmax = Buffer(kept.absmax);
  if (kept.offset) nested_absmax = Buffer(kept.nested_absmax), offset = Buffer(kept.offset);
}

Tensor LinearFP4::forward(const Tensor& input) const {
  check_input_features("LinearFP4", input, in_features);
  return linear_fp4(input, weight, absmax, nested_absmax, offset, bias, out_features);
}

Tensor LinearFP4::dense_weight(DType dtype) const {
  return dequantize_fp4(weight, absmax, {out_features, in_features}, dtype, 64, nested_absmax, offset);
}

std::string LinearFP4::weight_format() const { return "fp4"; }
Shape LinearFP4::dense_shape() const { return {out_features, in_features}; }
Tensor LinearFP4::forward_plus(const Tensor& input, const Tensor& residual) const {
  return stored_product(*this, input, {.residual = residual});
}

std::string LinearFP4::extra_repr() const {
  return "in_features=" + text(in_features) + ", out_features=" + text(out_features) + ", bias=" + text(bool(bias)) +
         (compress_statistics ? "" : ", compress_statistics=False");
}

LinearInt8::LinearInt8(int64_t in, int64_t out, bool with_bias, bool quantises_input, double unit_,
                       const TensorOptions& options, const Tensor& dense)
    : in_features(in), out_features(out), dynamic(quantises_input), unit(unit_) {
  check_features("LinearInt8", in, out);
  SF_CHECK(unit > 0 && unit <= 1, "LinearInt8: unit must be above 0 and at most 1, got ", unit);
  const Device place = options.device.value_or(Device());
  if (dense) {
    check_dense_weight("LinearInt8", dense, out, in);
    SF_CHECK(unit == kInt8Unit, "LinearInt8: a weight is quantised with unit=", kInt8Unit, ", got ", unit);
    auto [codes, most] = quantize_int8(dense);
    weight = Buffer(codes), SCB = Buffer(most);
  } else {
    weight = Buffer(zeros({out, in}, kInt8, place)), SCB = Buffer(zeros({out}, kFloat32, place));
  }
  if (with_bias) bias = parameter(zeros({out}, options.dtype, place));
}

Tensor LinearInt8::forward(const Tensor& input) const {
  check_input_features("LinearInt8", input, in_features);
  return linear_int8(input, weight, SCB, bias, unit, dynamic);
}

Tensor LinearInt8::dense_weight(DType dtype) const { return dequantize_int8(weight, SCB, dtype, unit); }

std::string LinearInt8::weight_format() const { return "int8"; }
Shape LinearInt8::dense_shape() const { return {out_features, in_features}; }
Tensor LinearInt8::forward_plus(const Tensor& input, const Tensor& residual) const {
  return stored_product(*this, input, {.residual = residual});
}

std::string LinearInt8::extra_repr() const {
  return "in_features=" + text(in_features) + ", out_features=" + text(out_features) + ", bias=" + text(bool(bias)) +
         (dynamic ? ", dynamic=True" : "") + (unit == kInt8Unit ? "" : ", unit=" + text(unit));
}

SF_LAYER(LinearFP4,
         "in_features, out_features, bias=True, compress_statistics=True, device=None, dtype=None, _weight=None",
         [](int64_t in_features, int64_t out_features, bool bias, bool compress, std::optional<Device> device,
            std::optional<DType> dtype, const Tensor& dense) {
           return std::make_unique<LinearFP4>(in_features, out_features, bias, compress, TensorOptions{device, dtype},
                                              dense);
         })
    .doc(
        "Linear with a frozen weight in bitsandbytes' FP4, zeros at first; scaffolding.nn.quantize_ makes it of a "
        "Linear.")
    .forward<&LinearFP4::forward>("input")
    .field<&LinearFP4::in_features>("in_features")
    .field<&LinearFP4::out_features>("out_features")
    .field<&LinearFP4::compress_statistics>("compress_statistics");
SF_LAYER(LinearInt8,
         "in_features, out_features, bias=True, dynamic=False, unit=0.007874015718698502, device=None, dtype=None, "
         "_weight=None",
         [](int64_t in_features, int64_t out_features, bool bias, bool dynamic, double unit,
            std::optional<Device> device, std::optional<DType> dtype, const Tensor& dense) {
           return std::make_unique<LinearInt8>(in_features, out_features, bias, dynamic, unit,
                                               TensorOptions{device, dtype}, dense);
         })
    .doc(
        "Linear with a frozen weight in int8, a magnitude for each row, zeros at first; scaffolding.nn.quantize_ "
        "makes it of a Linear.")
    .forward<&LinearInt8::forward>("input")
    .field<&LinearInt8::in_features>("in_features")
    .field<&LinearInt8::out_features>("out_features")
    .field<&LinearInt8::dynamic>("dynamic")
    .field<&LinearInt8::unit>("unit");

}  // namespace sf::nn
