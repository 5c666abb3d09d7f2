// Initial values of parameters: torch.nn.init. Each function fills the tensor in place, off the tape, counts as one
// write (version()) and returns the tensor. A null generator means the default one of the tensor's device; with a CPU
// generator the numbers are torch's for the same seed, dtype and shape. Errors are ValueError, with torch's wording;
// nothing is drawn or written before the arguments are checked.
#pragma once
#include "scaffolding/core/generator.h"
#include "scaffolding/core/tensor.h"

namespace sf::nn::init {

Tensor uniform_(Tensor tensor, double a = 0, double b = 1, const Generator& generator = {});
Tensor normal_(Tensor tensor, double mean = 0, double std = 1, const Generator& generator = {});
// A normal distribution cut to [a, b]. Best when a <= mean <= b.
Tensor trunc_normal_(Tensor tensor, double mean = 0, double std = 1, double a = -2, double b = 2,
                     const Generator& generator = {});
Tensor constant_(Tensor tensor, const Scalar& val);
Tensor ones_(Tensor tensor);
Tensor zeros_(Tensor tensor);
Tensor eye_(Tensor tensor);  // tensor[rows, cols]: the identity, as far as it reaches
// tensor[O, I, kernel...] with 1 to 3 kernel dimensions: a convolution of each of `groups` groups that hands its first
// channels on.
Tensor dirac_(Tensor tensor, int64_t groups = 1);

// Glorot and Bengio 2010: variance gain^2 * 2 / (fan_in + fan_out).
Tensor xavier_uniform_(Tensor tensor, double gain = 1, const Generator& generator = {});
Tensor xavier_normal_(Tensor tensor, double gain = 1, const Generator& generator = {});
// He et al. 2015: variance gain^2 / fan, with the gain of `nonlinearity` ("leaky_relu" has slope a) and the fan that
// mode names ("fan_in" or "fan_out").
Tensor kaiming_uniform_(Tensor tensor, double a = 0, const std::string& mode = "fan_in",
                        const std::string& nonlinearity = "leaky_relu", const Generator& generator = {});
Tensor kaiming_normal_(Tensor tensor, double a = 0, const std::string& mode = "fan_in",
                       const std::string& nonlinearity = "leaky_relu", const Generator& generator = {});
// Saxe et al. 2013: rows (or columns, where these are fewer) orthonormal, times gain;
// dimensions after the first count as one.
Tensor orthogonal_(Tensor tensor, double gain = 1, const Generator& generator = {});
// tensor[rows, cols]: normal numbers, with ceil(sparsity * rows) zeros in each column. Which ones are zero comes from
// the default generator, as in torch.
Tensor sparse_(Tensor tensor, double sparsity, double std = 0.01, const Generator& generator = {});

// torch's table: linear, conv1d .. conv_transpose3d and sigmoid 1, tanh 5/3, relu sqrt(2), leaky_relu sqrt(2 / (1 +
// param^2)) with 0.01 unless given, selu 3/4.
double calculate_gain(const std::string& nonlinearity, std::optional<double> param = {});

struct Fans {
  int64_t in, out;
};
// For tensor[out, in, receptive field...].
Fans calculate_fan_in_and_fan_out(const Tensor& tensor);

}  // namespace sf::nn::init
