#include "scaffolding/nn/quantized_gguf.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/nn/conv_strips.h"
#include "scaffolding/nn/format.h"
#include "scaffolding/nn/stored_product.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/quantize/gguf.h"
#include "scaffolding/ops/view/view.h"

namespace sf::nn {

namespace {

// Zeros, or the blocks of a dense weight, in rows of so many numbers.
Buffer blocks_of(const char* layer, const std::string& format, int64_t rows, int64_t row, const Tensor& dense,
                 const Shape& shape, Device place) {
  const GgufFormat& f = gguf_blocks(layer, format);
  SF_CHECK(row % f.block == 0, layer, ": rows of ", std::string(f.name), " are whole blocks of ", f.block, ", got ",
           row, " numbers");
  if (!dense) return Buffer(zeros({rows, row / f.block * f.bytes}, kUInt8, place));
  SF_CHECK(dense.shape() == shape, layer, ": weight must have shape ", shape, ", got ", dense.shape());
  autograd::NoGrad off;
  return Buffer(to_device(quantize_gguf(dense.reshape({rows, row}), format), place));
}

std::string shown(const std::string& format) { return ", format='" + format + "'"; }
std::string known(const char* layer, const std::string& format) { return std::string(gguf_blocks(layer, format).name); }

}  // namespace

LinearGGUF::LinearGGUF(int64_t in, int64_t out, bool with_bias, const std::string& format_,
                       const TensorOptions& options, const Tensor& dense, bool quantises_input)
    : in_features(in), out_features(out), format(known("LinearGGUF", format_)), dynamic(quantises_input) {
  SF_CHECK(in >= 0 && out >= 0, "LinearGGUF: in_features and out_features must not be negative, got ", in, " and ",
           out);
  const Device place = options.device.value_or(Device());
  weight = blocks_of("LinearGGUF", format, out, in, dense, {out, in}, place);
  if (with_bias) bias = parameter(zeros({out}, options.dtype, place));
}

Tensor LinearGGUF::forward(const Tensor& input) const {
  check_input_features("LinearGGUF", input, in_features);
  return linear_gguf(input, weight, bias, format, "none", {}, dynamic);
}

Tensor LinearGGUF::dense_weight(DType dtype) const {
  return dequantize_gguf(weight, format, {out_features, in_features}, dtype);
}

Tensor LinearGGUF::forward_plus(const Tensor& input, const Tensor& residual) const {
  return stored_product(*this, input, {.residual = residual});
}

std::string LinearGGUF::extra_repr() const {
  return "in_features=" + text(in_features) + ", out_features=" + text(out_features) + ", bias=" + text(bool(bias)) +
         shown(format) + (dynamic ? ", dynamic=True" : "");
}

Conv2dGGUF::Conv2dGGUF(const Conv2d& like, const std::string& format_, const Tensor& dense)
    : Conv2d(like), format(known("Conv2dGGUF", format_)) {
  const Tensor& given = like.weight;
  const Device place = (dense ? dense : given).device();
  const Shape shape{out_channels, in_channels / groups, kernel_size[0], kernel_size[1]};
  blocks = blocks_of("Conv2dGGUF", format, 1, numel(shape), dense, shape, place);
  weight = empty(shape, given.dtype(), Device(Device::Meta));
}

void Conv2dGGUF::visit(Visitor& v) {
  v.buffer("weight", blocks, true);
  v.parameter("bias", bias);
}

Tensor EmbeddingGGUF::dense_weight(DType dtype) const {
  return dequantize_gguf(weight, format, {num_embeddings, embedding_dim}, dtype);
}
Tensor Conv2dGGUF::dense_weight(DType dtype) const { return dequantize_gguf(blocks, format, weight.shape(), dtype); }

Tensor Conv2dGGUF::forward(const Tensor& input) const {
  check_defined("Conv2dGGUF", "input", input);
  check_floating("Conv2dGGUF", "input", input);
  const GgufFormat& f = gguf_blocks("Conv2dGGUF", format);
  const int64_t row = out_channels > 0 ? weight.numel() / out_channels : 0;
  if (row % f.block != 0) return convolve(input, dense_weight(input.dtype()), bias);
  return convolve_in_strips(*this, input, [&](int64_t first, int64_t channels) {
    Shape sizes = weight.shape();
    sizes[0] = channels;
    const int64_t row_bytes = row / f.block * f.bytes;
    return dequantize_gguf(blocks.narrow(1, first * row_bytes, channels * row_bytes), format, sizes, input.dtype());
  });
}

std::string Conv2dGGUF::extra_repr() const { return ConvNd::extra_repr() + shown(format); }

EmbeddingGGUF::EmbeddingGGUF(int64_t count, int64_t dim, const std::string& format_, const TensorOptions& options,
                             const Tensor& dense)
    : num_embeddings(count), embedding_dim(dim), format(known("EmbeddingGGUF", format_)) {
  SF_CHECK(count >= 0 && dim >= 0, "EmbeddingGGUF: sizes must not be negative, got ", count, " and ", dim);
  const Device place = options.device.value_or(Device());
  weight = blocks_of("EmbeddingGGUF", format, count, dim, dense, {count, dim}, place);
  like = Buffer(empty({0}, options.dtype, place), false);
}

Tensor EmbeddingGGUF::forward(const Tensor& input) const {
  check_defined("EmbeddingGGUF", "input", input);
  SF_CHECK_AS(TypeError, is_integral(input.dtype()), "EmbeddingGGUF: input must be whole numbers, got ", input.dtype());
  Shape size = input.shape();
  size.push_back(embedding_dim);
  const Tensor rows = index_select(weight, 0, to_dtype(input.reshape({input.numel()}), kInt64));
  return dequantize_gguf(rows, format, size, like.dtype());
}

std::string EmbeddingGGUF::extra_repr() const {
  return text(num_embeddings) + ", " + text(embedding_dim) + shown(format);
}

SF_LAYER(LinearGGUF,
         "in_features, out_features, bias=True, format='Q8_0', dynamic=False, device=None, dtype=None, _weight=None",
         [](int64_t in_features, int64_t out_features, bool bias, std::string format, bool dynamic,
            std::optional<Device> device, std::optional<DType> dtype, const Tensor& dense) {
           return std::make_unique<LinearGGUF>(in_features, out_features, bias, format, TensorOptions{device, dtype},
                                               dense, dynamic);
         })
    .doc("Linear with a frozen weight in a GGUF format, zeros at first; scaffolding.nn.quantize_ makes it of a Linear.")
    .forward<&LinearGGUF::forward>("input")
    .field<&LinearGGUF::in_features>("in_features")
    .field<&LinearGGUF::out_features>("out_features")
    .field<&LinearGGUF::format>("format")
    .field<&LinearGGUF::dynamic>("dynamic");
SF_LAYER(Conv2dGGUF,
         "in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True, "
         "padding_mode='zeros', format='Q8_0', device=None, dtype=None, _weight=None",
         [](int64_t in_channels, int64_t out_channels, Ints kernel_size, Ints stride, ConvPadding padding,
            Ints dilation, int64_t groups, bool bias, std::string padding_mode, std::string format,
            std::optional<Device> device, std::optional<DType> dtype, const Tensor& dense) {
           const Conv2d like(in_channels, out_channels, kernel_size,
                             ConvOptions{stride, padding, dilation, groups, bias, std::move(padding_mode),
                                         TensorOptions{device, dtype}});
           return std::make_unique<Conv2dGGUF>(like, format, dense);
         })
    .doc("Conv2d with a frozen weight in a GGUF format; scaffolding.nn.quantize_ makes it of a Conv2d.")
    .forward<&Conv2dGGUF::forward>("input")
    .field<&Conv2dGGUF::format>("format");
SF_LAYER(EmbeddingGGUF, "num_embeddings, embedding_dim, format='Q8_0', device=None, dtype=None, _weight=None",
         [](int64_t num_embeddings, int64_t embedding_dim, std::string format, std::optional<Device> device,
            std::optional<DType> dtype, const Tensor& dense) {
           return std::make_unique<EmbeddingGGUF>(num_embeddings, embedding_dim, format, TensorOptions{device, dtype},
                                                  dense);
         })
    .doc("Embedding with a frozen table in a GGUF format; scaffolding.nn.quantize_ makes it of an Embedding.")
    .forward<&EmbeddingGGUF::forward>("input")
    .field<&EmbeddingGGUF::num_embeddings>("num_embeddings")
    .field<&EmbeddingGGUF::embedding_dim>("embedding_dim")
    .field<&EmbeddingGGUF::format>("format");

}  // namespace sf::nn
