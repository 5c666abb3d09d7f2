// Random tensors and samples. With a CPU generator the numbers are torch's for the same seed, dtype and shape; a null
// generator means the default one of the device. Nothing here records a gradient.
#pragma once
#include "scaffolding/core/generator.h"
#include "scaffolding/core/tensor.h"

namespace sf {

// ---- new tensors
Tensor rand(const Shape& size, const Generator& generator = {}, std::optional<DType> dtype = {},
            std::optional<Device> device = {}, bool requires_grad = false);
Tensor randn(const Shape& size, const Generator& generator = {}, std::optional<DType> dtype = {},
             std::optional<Device> device = {}, bool requires_grad = false);
// Integers of [low, high); int64 unless said. Any dtype that can hold both ends.
Tensor randint(int64_t low, int64_t high, const Shape& size, const Generator& generator = {},
               std::optional<DType> dtype = {}, std::optional<Device> device = {}, bool requires_grad = false);
Tensor randperm(int64_t n, const Generator& generator = {}, std::optional<DType> dtype = {},
                std::optional<Device> device = {}, bool requires_grad = false);
Tensor rand_like(const Tensor& input, const Generator& generator = {}, std::optional<DType> dtype = {});
Tensor randn_like(const Tensor& input, const Generator& generator = {}, std::optional<DType> dtype = {});
Tensor randint_like(const Tensor& input, int64_t low, int64_t high, const Generator& generator = {},
                    std::optional<DType> dtype = {});
// mean and std broadcast; two numbers need a size.
Tensor normal(const Tensor& mean, const Tensor& std, const std::optional<Shape>& size = {},
              const Generator& generator = {});

// ---- samples
// 1 with probability input (or p), else 0
Tensor bernoulli(const Tensor& input, std::optional<double> p = {}, const Generator& generator = {});
// Indices drawn by weight from each row of input[rows, categories] or input[categories]; int64.
Tensor multinomial(const Tensor& input, int64_t num_samples, bool replacement = false, const Generator& generator = {});

// ---- in place
Tensor uniform_(Tensor input, double low = 0, double high = 1, const Generator& generator = {});
Tensor normal_(Tensor input, double mean = 0, double std = 1, const Generator& generator = {});
// [low, high); without high up to the largest number the dtype counts to exactly; without both all of those from 0.
Tensor random_(Tensor input, std::optional<int64_t> low = {}, std::optional<int64_t> high = {},
               const Generator& generator = {});
// a number p is a 0-d tensor made by wrapped()
Tensor bernoulli_(Tensor input, const Tensor& p, const Generator& generator = {});
Tensor exponential_(Tensor input, double lambd = 1, const Generator& generator = {});

}  // namespace sf
