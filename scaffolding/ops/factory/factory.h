// Tensors from sizes and values. Random ones are in ops/random.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

Tensor ones(const Shape& size, std::optional<DType> dtype = {}, std::optional<Device> device = {},
            bool requires_grad = false);
Tensor full(const Shape& size, const Scalar& fill_value, std::optional<DType> dtype = {},
            std::optional<Device> device = {}, bool requires_grad = false);
Tensor ones_like(const Tensor& input, std::optional<DType> dtype = {});
Tensor full_like(const Tensor& input, const Scalar& fill_value, std::optional<DType> dtype = {});
// [start, end) in steps; int64 when all three are integers, else the default dtype.
Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step = 1, std::optional<DType> dtype = {},
              std::optional<Device> device = {});
Tensor linspace(const Scalar& start, const Scalar& end, int64_t steps, std::optional<DType> dtype = {},
                std::optional<Device> device = {});
Tensor eye(int64_t n, std::optional<int64_t> m = {}, std::optional<DType> dtype = {},
           std::optional<Device> device = {});

// A tensor holding a copy of the values, in row-major order.
template <class T> Tensor tensor(const std::vector<T>& values, const Shape& size, std::optional<DType> dtype = {});
Tensor tensor(std::initializer_list<double> values, std::optional<DType> dtype = {});

}  // namespace sf
