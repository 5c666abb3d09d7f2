// Convolutions over one to three spatial dimensions: input[N, C, *] with weight[O, C / groups, *kernel].
// The result keeps the input's memory format; channels-last is the fast one. Unbatched input [C, *] is accepted.
#pragma once
#include "scaffolding/core/tensor.h"
#include "scaffolding/core/value.h"
#include "scaffolding/ops/conv/kernel.h"

namespace sf {

// Amounts per spatial dimension (one number: all of them), or "same" / "valid".
struct ConvPadding {
  Shape amounts{0};
  bool same = false;
  ConvPadding() = default;
  ConvPadding(const Shape& s) : amounts(s) {}
  ConvPadding(int64_t n) : amounts{n} {}
  ConvPadding(int n) : amounts{n} {}
  ConvPadding(const std::string& name);  // ValueError unless "same" or "valid"
};

Tensor conv1d(const Tensor& input, const Tensor& weight, const Tensor& bias = {}, const Shape& stride = {1},
              const ConvPadding& padding = {}, const Shape& dilation = {1}, int64_t groups = 1);
Tensor conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias = {}, const Shape& stride = {1},
              const ConvPadding& padding = {}, const Shape& dilation = {1}, int64_t groups = 1);
Tensor conv3d(const Tensor& input, const Tensor& weight, const Tensor& bias = {}, const Shape& stride = {1},
              const ConvPadding& padding = {}, const Shape& dilation = {1}, int64_t groups = 1);

// The three sides of a convolution, each differentiable through the other two.
Tensor conv_output(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvShape& shape);             // y
Tensor conv_input_gradient(const Tensor& dy, const Tensor& weight, const Shape& x_sizes, const ConvShape& shape);  // dx
// dweight
Tensor conv_weight_gradient(const Tensor& x, const Tensor& dy, const Shape& weight_sizes, const ConvShape& shape);

// One number, or one per spatial dimension; ValueError below `least`.
void spread(const char* op, const char* name, const Shape& given, int64_t dims, int64_t least, int64_t (&out)[3]);
void check_conv_operands(const char* op, const Tensor& input, const Tensor& weight, int64_t dims);

template <> struct detail::arg_type<ConvPadding> { static constexpr ArgKind kind = ArgKind::Ints; };
template <> inline ConvPadding detail::unbox<ConvPadding>(const Value& v) {
  if (auto* s = std::get_if<std::string>(&v)) return ConvPadding(*s);
  return ConvPadding(unbox<Shape>(v));
}

}  // namespace sf
