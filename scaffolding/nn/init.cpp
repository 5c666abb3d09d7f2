#include "scaffolding/nn/init.h"

#include <cmath>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf::nn::init {

namespace {

void check_floating_tensor(const char* function, const Tensor& t) {
  check_defined(function, "tensor", t);
  check_floating(function, "tensor", t);
}
void check_std(const char* function, double std) {
  SF_CHECK(std >= 0, function, ": std must not be negative, got ", std);
}

Fans fans_of(const char* function, const Tensor& t) {
  SF_CHECK(t.ndim() >= 2, function,
           ": fan in and fan out can not be computed for tensor with fewer than 2 dimensions, got shape ", t.shape());
  int64_t receptive_field = 1;
  for (int64_t i = 2; i < t.ndim(); ++i) receptive_field *= t.shape()[i];
  return {t.shape()[1] * receptive_field, t.shape()[0] * receptive_field};
}

double gain_of(const char* function, const std::string& nonlinearity, std::optional<double> param) {
  if (nonlinearity == "linear" || nonlinearity == "sigmoid" || nonlinearity == "conv1d" || nonlinearity == "conv2d" ||
      nonlinearity == "conv3d" || nonlinearity == "conv_transpose1d" || nonlinearity == "conv_transpose2d" ||
      nonlinearity == "conv_transpose3d")
    return 1;
  if (nonlinearity == "tanh") return 5.0 / 3;
  if (nonlinearity == "relu") return std::sqrt(2.0);
  if (nonlinearity == "leaky_relu") {
    double slope = param.value_or(0.01);
    return std::sqrt(2.0 / (1 + slope * slope));
  }
  if (nonlinearity == "selu") return 3.0 / 4;
  fail(function, ": unsupported nonlinearity '", nonlinearity,
       "'; it is one of linear, conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, ",
       "conv_transpose3d, sigmoid, tanh, relu, leaky_relu, selu");
}

double xavier_std(const char* function, const Tensor& t, double gain) {
  check_floating_tensor(function, t);
  Fans fans = fans_of(function, t);
  return gain * std::sqrt(2.0 / double(fans.in + fans.out));
}

double kaiming_std(const char* function, const Tensor& t, double a, std::string mode, const std::string& nonlinearity) {
  for (char& c : mode)
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  SF_CHECK(mode == "fan_in" || mode == "fan_out", function, ": mode '", mode,
           "' is not supported, use 'fan_in' or 'fan_out'");
  Fans fans = fans_of(function, t);
  return gain_of(function, nonlinearity, a) / std::sqrt(double(mode == "fan_in" ? fans.in : fans.out));
}

Tensor filled(const char* function, Tensor t, const Scalar& value) {
  check_defined(function, "tensor", t);
  autograd::NoGrad off;
  return t.fill_(value);
}

double norm_cdf(double x) { return (1 + std::erf(x / std::sqrt(2.0))) / 2; }

bool is_any(const Tensor& mask) { return amax(mask).item() != 0; }

// Draws again where the mask says so, as often as it takes. Every draw fills a whole tensor, as torch's do.
void redraw_outside(Tensor t, double mean, double std, double a, double b, const Generator& generator) {
  // Bounds that the dtype holds, so that a number equal to a rounded bound is inside.
  Scalar low = scalar_tensor(a, t.dtype()).item(), high = scalar_tensor(b, t.dtype()).item();
  Tensor result = sf::normal_(t, mean, std, generator);
  for (;;) {
    Tensor outside = logical_or(lt(result, wrapped(low)), gt(result, wrapped(high)));
    if (!is_any(outside)) break;
    result = where(outside, sf::normal_(empty_like(result), mean, std, generator), result);
  }
  if (!result.is_same(t)) t.copy_(result);
}

// Uniform candidates, each accepted with probability density / largest density: where [a,
// b] holds little of the distribution.
void accept_uniform(Tensor t, double mean, double std, double a, double b, const Generator& generator) {
  double mode = std::max(a, std::min(mean, b)), deviations = (mode - mean) / std,
         log_peak = -0.5 * deviations * deviations;
  auto rejected = [&](const Tensor& candidates) {
    Tensor z = (candidates - mean) / std, log_density = z * z * -0.5 - log_peak;
    return gt(log(sf::uniform_(empty_like(t), 0, 1, generator)), log_density);
  };
  Tensor result = sf::uniform_(t, a, b, generator);
  Tensor pending = rejected(result);
  while (is_any(pending)) {
    Tensor candidates = sf::uniform_(empty_like(t), a, b, generator);
    result = where(pending, candidates, result);
    pending = logical_and(pending, rejected(candidates));
  }
  if (!result.is_same(t)) t.copy_(result);
}

constexpr int64_t kPanel = 32;  // columns per blocked update

// Householder vectors of a panel, and the triangle T with H1 H2 .. Hb = I - V^T T V; rows of V are vectors.
struct Reflections {
  int64_t first;  // the column, and row, where the panel begins
  Tensor v, t;    // v[b, m - first], t[b, b]
};

// Reflects the columns [first, first + b) of a matrix, rows of at[n, m], into an upper triangle;
// b columns of R stay in at.
Reflections reflect_panel(const Tensor& at, int64_t first, int64_t b) {
  int64_t m = at.shape()[1], length = m - first;
  Tensor v = zeros({b, length}, kFloat64), t = zeros({b, b}, kFloat64);
  double *A = at.data<double>(), *V = v.data<double>(), *T = t.data<double>();
  for (int64_t j = 0; j < b; ++j) {
    double* x = A + (first + j) * m + first;
    double* u = V + j * length;
    double tail = 0;
    for (int64_t i = j + 1; i < length; ++i) tail += x[i] * x[i];
    double alpha = x[j], beta = alpha, tau = 0;
    u[j] = 1;
    if (tail > 0) {
      beta = -std::copysign(std::sqrt(alpha * alpha + tail), alpha);
      tau = (beta - alpha) / beta;
      for (int64_t i = j + 1; i < length; ++i) u[i] = x[i] / (alpha - beta);
    }
    x[j] = beta;
    for (int64_t k = j + 1; k < b; ++k) {
      double* y = A + (first + k) * m + first;
      double dot = 0;
      for (int64_t i = j; i < length; ++i) dot += u[i] * y[i];
      for (int64_t i = j; i < length; ++i) y[i] -= tau * dot * u[i];
    }
    // T grows by the column -tau T (V u), tau on the diagonal (Schreiber and Van Loan 1989).
    for (int64_t k = 0; k < j; ++k) {
      double dot = 0;
      for (int64_t i = j; i < length; ++i) dot += V[k * length + i] * u[i];
      for (int64_t r = 0; r <= k; ++r) T[r * b + j] -= tau * T[r * b + k] * dot;
    }
    T[j * b + j] = tau;
  }
  return {first, v, t};
}

// The Q, transposed, of the QR decomposition of a[m, n], m >= n, whose R has a positive diagonal; at[n, m] is a,
// transposed, and is used up.
Tensor orthonormal_rows(const Tensor& at) {
  int64_t n = at.shape()[0], m = at.shape()[1];
  std::vector<Reflections> panels;
  for (int64_t first = 0; first < n; first += kPanel) {
    int64_t b = std::min(kPanel, n - first);
    Reflections p = reflect_panel(at, first, b);
    if (first + b < n) {
      Tensor rest = at.slice(0, first + b).slice(1, first);
      rest.sub_(matmul(matmul(matmul(rest, p.v.t()), p.t), p.v));
    }
    panels.push_back(std::move(p));
  }
  Tensor qt = eye(n, m, kFloat64);
  for (auto p = panels.rbegin(); p != panels.rend(); ++p) {
    Tensor rest = qt.slice(0, p->first).slice(1, p->first);
    rest.sub_(matmul(matmul(matmul(rest, p->v.t()), p->t.t()), p->v));
  }
  Tensor sign = where(lt(diagonal(at, 0, 0, 1), wrapped(0)), wrapped(-1.0), wrapped(1.0)).to(kFloat64);
  return qt.mul_(sign.unsqueeze(1));
}

}  // namespace

double calculate_gain(const std::string& nonlinearity, std::optional<double> param) {
  return gain_of("calculate_gain", nonlinearity, param);
}

Fans calculate_fan_in_and_fan_out(const Tensor& tensor) {
  check_defined("calculate_fan_in_and_fan_out", "tensor", tensor);
  return fans_of("calculate_fan_in_and_fan_out", tensor);
}

Tensor uniform_(Tensor tensor, double a, double b, const Generator& generator) {
  autograd::NoGrad off;
  return sf::uniform_(std::move(tensor), a, b, generator);
}

Tensor normal_(Tensor tensor, double mean, double std, const Generator& generator) {
  autograd::NoGrad off;
  return sf::normal_(std::move(tensor), mean, std, generator);
}

Tensor trunc_normal_(Tensor tensor, double mean, double std, double a, double b, const Generator& generator) {
  check_floating_tensor("trunc_normal_", tensor);
  SF_CHECK(std > 0, "trunc_normal_: std must be positive, got ", std);
  SF_CHECK(a < b, "trunc_normal_: a must be less than b, got a=", a, " and b=", b);
  double share = norm_cdf((b - mean) / std) - norm_cdf((a - mean) / std);
  SF_CHECK(share > 0.3 || std::isfinite(b - a),
           "trunc_normal_: a and b must be finite where they leave less than 0.3 of the distribution, got a=", a,
           " and b=", b);
  if (tensor.device().is_meta() || tensor.numel() == 0) return tensor;
  autograd::NoGrad off;
  (share > 0.3 ? redraw_outside : accept_uniform)(tensor, mean, std, a, b, generator);
  return tensor;
}

Tensor constant_(Tensor tensor, const Scalar& val) { return filled("constant_", std::move(tensor), val); }
Tensor ones_(Tensor tensor) { return filled("ones_", std::move(tensor), 1); }
Tensor zeros_(Tensor tensor) { return filled("zeros_", std::move(tensor), 0); }

Tensor eye_(Tensor tensor) {
  check_defined("eye_", "tensor", tensor);
  SF_CHECK(tensor.ndim() == 2, "eye_: only tensors with 2 dimensions are supported, got shape ", tensor.shape());
  autograd::NoGrad off;
  return tensor.copy_(eye(tensor.shape()[0], tensor.shape()[1], tensor.dtype(), tensor.device()));
}

Tensor dirac_(Tensor tensor, int64_t groups) {
  check_defined("dirac_", "tensor", tensor);
  const Shape& sizes = tensor.shape();
  SF_CHECK(tensor.ndim() >= 3 && tensor.ndim() <= 5,
           "dirac_: only tensors with 3, 4, or 5 dimensions are supported, got shape ", sizes);
  SF_CHECK(groups > 0 && sizes[0] % groups == 0, "dirac_: dim 0 must be divisible by groups, got shape ", sizes,
           " and groups=", groups);
  if (tensor.device().is_meta()) return tensor;
  autograd::NoGrad off;
  Tensor value = zeros(sizes, tensor.dtype());
  if (value.numel() > 0) {
    Tensor centre = value;
    for (int64_t dim = tensor.ndim() - 1; dim >= 2; --dim) centre = centre.select(dim, sizes[dim] / 2);
    int64_t channels = sizes[0] / groups;
    for (int64_t g = 0; g < groups; ++g) diagonal(centre.narrow(0, g * channels, channels), 0, 0, 1).fill_(1);
  }
  return tensor.copy_(value);
}

Tensor xavier_uniform_(Tensor tensor, double gain, const Generator& generator) {
  double bound = std::sqrt(3.0) * xavier_std("xavier_uniform_", tensor, gain);
  if (tensor.numel() == 0) return tensor;
  return init::uniform_(std::move(tensor), -bound, bound, generator);
}

Tensor xavier_normal_(Tensor tensor, double gain, const Generator& generator) {
  double std = xavier_std("xavier_normal_", tensor, gain);
  check_std("xavier_normal_", std);
  if (tensor.numel() == 0) return tensor;
  return init::normal_(std::move(tensor), 0, std, generator);
}

Tensor kaiming_uniform_(Tensor tensor, double a, const std::string& mode, const std::string& nonlinearity,
                        const Generator& generator) {
  check_floating_tensor("kaiming_uniform_", tensor);
  if (tensor.numel() == 0) return tensor;
  double bound = std::sqrt(3.0) * kaiming_std("kaiming_uniform_", tensor, a, mode, nonlinearity);
  return init::uniform_(std::move(tensor), -bound, bound, generator);
}

Tensor kaiming_normal_(Tensor tensor, double a, const std::string& mode, const std::string& nonlinearity,
                       const Generator& generator) {
  check_floating_tensor("kaiming_normal_", tensor);
  if (tensor.numel() == 0) return tensor;
  double std = kaiming_std("kaiming_normal_", tensor, a, mode, nonlinearity);
  return init::normal_(std::move(tensor), 0, std, generator);
}

Tensor orthogonal_(Tensor tensor, double gain, const Generator& generator) {
  check_floating_tensor("orthogonal_", tensor);
  SF_CHECK(tensor.ndim() >= 2, "orthogonal_: only tensors with 2 or more dimensions are supported, got shape ",
           tensor.shape());
  if (tensor.numel() == 0 || tensor.device().is_meta()) return tensor;
  autograd::NoGrad off;
  int64_t rows = tensor.shape()[0], cols = tensor.numel() / rows;
  Tensor flat = sf::normal_(empty({rows, cols}, tensor.dtype(), tensor.device()), 0, 1, generator).cpu().to(kFloat64);
  // In float64 for every dtype: with the diagonal of R positive Q is unique, so the order of the arithmetic is free.
  Tensor q = rows < cols ? orthonormal_rows(flat) : orthonormal_rows(flat.t().contiguous()).t();
  tensor.copy_(q.reshape(tensor.shape()).to(tensor.dtype()).mul_(Scalar(gain)));
  return tensor;
}

Tensor sparse_(Tensor tensor, double sparsity, double std, const Generator& generator) {
  check_floating_tensor("sparse_", tensor);
  SF_CHECK(tensor.ndim() == 2, "sparse_: only tensors with 2 dimensions are supported, got shape ", tensor.shape());
  SF_CHECK(sparsity >= 0 && sparsity <= 1, "sparse_: sparsity is a fraction between 0 and 1, got ", sparsity);
  check_std("sparse_", std);
  if (tensor.device().is_meta()) return tensor;
  autograd::NoGrad off;
  int64_t rows = tensor.shape()[0], zero_rows = int64_t(std::ceil(sparsity * double(rows)));
  Tensor keep = ones({rows, tensor.shape()[1]}, tensor.dtype());
  Tensor value = sf::normal_(empty_like(tensor), 0, std, generator).cpu();
  for (int64_t column = 0; column < tensor.shape()[1]; ++column) {
    Tensor order = randperm(rows);
    for (int64_t i = 0; i < zero_rows; ++i) keep.select(0, order.data<int64_t>()[i]).select(0, column).fill_(0);
  }
  return tensor.copy_(where(ne(keep, wrapped(0)), value, wrapped(0)));
}

}  // namespace sf::nn::init
