#include "scaffolding/io/tensor_bytes.h"

#include <algorithm>
#include <cstring>

#include "scaffolding/ops/copy/copy.h"

namespace sf::io {

uint64_t checked_bytes(const std::string& who, const Shape& shape, uint64_t bits) {
  uint64_t product = bits;
  for (auto d : shape) {
    SF_CHECK(d >= 0, who, " has a negative size: ", shape);
    SF_CHECK(
        !__builtin_mul_overflow(product, uint64_t(std::max<int64_t>(d, 1)), &product) && product <= uint64_t(INT64_MAX),
        who, " of shape ", shape, " has more bytes than fit in 64 bits");
  }
  if (shape.contains(0)) return 0;
  SF_CHECK(product % 8 == 0, who, " of shape ", shape, " does not end with a whole byte");
  return product / 8;
}

Tensor tensor_of_bytes(const Bytes& bytes, const Shape& shape, DType dtype, Copy copy) {
  uint64_t want = checked_bytes(bytes.name + ": a tensor", shape, 8 * size_of(dtype));
  SF_CHECK(bytes.size == want, bytes.name, ": a tensor of ", dtype, " ", shape, " needs ", want, " bytes, there are ",
           bytes.size);
  bool aligned = reinterpret_cast<uintptr_t>(bytes.data) % size_of(dtype) == 0;
  bool clean =
      dtype != kBool || std::all_of(bytes.data, bytes.data + bytes.size, [](std::byte b) { return b <= std::byte(1); });
  if (copy == Copy::WhereNeeded && aligned && clean) {
    auto storage = Storage::borrow(want ? const_cast<std::byte*>(bytes.data) : nullptr, want, Device::CPU,
                                   [keep = bytes.owner] {});
    return Tensor::strided(std::move(storage), shape, contiguous_strides(shape), 0, dtype);
  }
  Tensor t = empty(shape, dtype);
  if (want) std::memcpy(t.data_ptr(), bytes.data, want);
  auto* b = static_cast<uint8_t*>(t.data_ptr());
  if (!clean) std::transform(b, b + want, b, [](uint8_t v) { return uint8_t(v != 0); });
  return t;
}

Tensor array_of_bytes(const Bytes& bytes, const Shape& shape, DType dtype, bool fortran, Copy copy) {
  if (!fortran) return tensor_of_bytes(bytes, shape, dtype, copy);
  Shape reversed = shape, order = shape;
  for (int64_t i = 0; i < shape.size(); ++i) {
    reversed[i] = shape[shape.size() - 1 - i];
    order[i] = shape.size() - 1 - i;
  }
  return tensor_of_bytes(bytes, reversed, dtype, copy).permute(order);
}

template <class From, class To> static Tensor widened(const std::byte* p, const Shape& shape) {
  Tensor t = empty(shape, dtype_of<To>::value);
  for (int64_t i = 0; i < t.numel(); ++i, p += sizeof(From)) {
    From v;
    std::memcpy(&v, p, sizeof v);
    t.data<To>()[i] = To(v);
  }
  return t;
}

Tensor widened_unsigned(const Bytes& bytes, const Shape& shape, int item) {
  uint64_t want = checked_bytes(bytes.name + ": a tensor", shape, uint64_t(8 * item));
  SF_CHECK(bytes.size == want, bytes.name, ": a tensor of ", shape, " unsigned integers needs ", want,
           " bytes, there are ", bytes.size);
  if (item == 2) return widened<uint16_t, int32_t>(bytes.data, shape);
  if (item == 4) return widened<uint32_t, int64_t>(bytes.data, shape);
  return widened<uint64_t, int64_t>(bytes.data, shape);
}

void write_tensor(Sink& sink, const Tensor& t) {
  Tensor bytes = contiguous(t.detach().to(Device::CPU));
  sink.write(bytes.data_ptr(), bytes.nbytes());
}

}  // namespace sf::io
