// Tensors over the bytes of a file, and back. Thread-safe.
#pragma once
#include "scaffolding/core/tensor.h"
#include "scaffolding/io/file.h"

namespace sf::io {

enum class Copy : uint8_t { WhereNeeded, Always };

// The bytes as a row-major tensor; ValueError unless they are exactly its bytes. Borrowed with their owner unless
// Always, or where they are not aligned for the dtype, or are bools other than 0 and 1.
Tensor tensor_of_bytes(const Bytes& bytes, const Shape& shape, DType dtype, Copy copy = Copy::WhereNeeded);
// The same with the first dimension fastest where fortran is true: NumPy's column-major order.
Tensor array_of_bytes(const Bytes& bytes, const Shape& shape, DType dtype, bool fortran, Copy copy = Copy::WhereNeeded);
// uint16 as int32, uint32 as int64, uint64 as int64 modulo 2^64: unsigned types that have no dtype here. item: 2,
// 4 or 8.
Tensor widened_unsigned(const Bytes& bytes, const Shape& shape, int item);

// numel(shape) * bits / 8, checked: ValueError when a size is negative or the product does not fit or is no whole
// number of bytes. A zero size does not excuse the others from fitting.
uint64_t checked_bytes(const std::string& who, const Shape& shape, uint64_t bits);

// Row-major bytes of a tensor on any device, with any strides; one copy at most.
void write_tensor(Sink& sink, const Tensor& t);

}  // namespace sf::io
