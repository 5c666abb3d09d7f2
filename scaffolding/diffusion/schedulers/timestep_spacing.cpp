#include "scaffolding/diffusion/schedulers/timestep_spacing.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"

namespace sf::diffusion {

namespace {

// The regularised incomplete beta function I_x(a, b) by its continued fraction (Numerical Recipes 6.4, Lentz's method).
double incomplete_beta(double x, double a, double b) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - incomplete_beta(1 - x, b, a);
  constexpr double kTiny = 1e-300;
  double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x)) / a;
  auto away = [](double v) { return std::abs(v) < kTiny ? kTiny : v; };
  double c = 1, d = 1 / away(1 - (a + b) * x / (a + 1)), h = d;
  for (int m = 1; m < 500; ++m) {
    double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away(1 + even * d);
    c = away(1 + even / c);
    h *= d * c;
    double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away(1 + odd * d);
    c = away(1 + odd / c);
    h *= d * c;
    if (std::abs(d * c - 1) < 1e-16) break;
  }
  return front * h;
}

// The x with I_x(a, b) = p. Bisection: sixty halvings of [0, 1] for each of at most some hundred sigmas.
double beta_quantile(double p, double a, double b) {
  if (p <= 0) return 0;
  if (p >= 1) return 1;
  double low = 0, high = 1;
  for (int i = 0; i < 100 && low < high; ++i) {
    double middle = low + (high - low) / 2;
    (incomplete_beta(middle, a, b) < p ? low : high) = middle;
  }
  return high;
}

}  // namespace

std::vector<double> linspace64(double start, double end, int64_t n) {
  std::vector<double> out;
  double step = n > 1 ? (end - start) / double(n - 1) : 0;
  for (int64_t i = 0; i < n; ++i) out.push_back(double(i) * step + start);
  if (n > 1) out.back() = end;
  return out;
}

std::vector<double> spaced_timesteps(const Spacing& s) {
  int64_t last = s.last ? s.last : s.training, n = s.steps + s.one_more;
  std::vector<double> out;
  if (s.kind == "linspace") {
    out = linspace64(0, double(last - 1), n);
    for (double& t : out)
      if (s.rounded) t = std::nearbyint(t);
    std::reverse(out.begin(), out.end());
  } else if (s.kind == "leading") {
    for (int64_t i = n; i-- > 0;) out.push_back(double(i * (last / n)));
  } else if (s.kind == "trailing") {
    double start = double(last), step = -double(s.training) / double(s.steps);
    auto count = int64_t(std::ceil((0 - start) / step));
    double delta = (start + step) - start;  // as numpy's arange fills
    for (int64_t i = 0; i < count; ++i) out.push_back(std::nearbyint(start + double(i) * delta) - 1);
    return out;
  } else {
    fail(s.who, ": timestep_spacing must be linspace, leading or trailing, got '", s.kind, "'");
  }
  if (s.one_more) out.pop_back();
  if (s.kind == "leading")
    for (double& t : out) t += double(s.offset);
  return out;
}

std::vector<double> interpolate(const std::vector<double>& at, const std::vector<float>& table) {
  std::vector<double> out;
  for (double x : at) {
    if (x <= 0 || table.size() == 1) {
      out.push_back(double(table.front()));
    } else if (x >= double(table.size() - 1)) {
      out.push_back(double(table.back()));
    } else {
      auto i = size_t(x);
      double low = double(table[i]);
      out.push_back((double(table[i + 1]) - low) * (x - double(i)) + low);
    }
  }
  return out;
}

std::vector<float> sigmas_of(const std::vector<float>& alphas_cumprod) {
  std::vector<float> out;
  for (float a : alphas_cumprod) out.push_back(std::sqrt((1 - a) / a));
  return out;
}

std::vector<float> log_of(const std::vector<float>& values) {
  std::vector<float> out;
  for (float v : values) out.push_back(std::log(v));
  return out;
}

template <class T> double sigma_to_timestep(T sigma, const std::vector<float>& log_sigmas) {
  if (log_sigmas.size() < 2) return 0;
  T log_sigma = std::log(std::max(sigma, T(1e-10)));
  size_t low = 0;
  for (size_t i = 0; i < log_sigmas.size(); ++i)
    if (log_sigma - T(log_sigmas[i]) >= 0) low = i;
  low = std::min(low, log_sigmas.size() - 2);
  T w = (T(log_sigmas[low]) - log_sigma) / T(log_sigmas[low] - log_sigmas[low + 1]);
  w = std::clamp(w, T(0), T(1));
  return double(1 - w) * double(low) + double(w) * double(low + 1);
}
template double sigma_to_timestep(float, const std::vector<float>&);
template double sigma_to_timestep(double, const std::vector<float>&);

std::vector<double> karras_sigmas(double sigma_min, double sigma_max, int64_t n) {
  constexpr double kRho = 7;
  double low = std::pow(sigma_min, 1 / kRho), high = std::pow(sigma_max, 1 / kRho);
  std::vector<double> out;
  for (double ramp : linspace64(0, 1, n)) out.push_back(std::pow(high + ramp * (low - high), kRho));
  return out;
}

std::vector<double> exponential_sigmas(double sigma_min, double sigma_max, int64_t n) {
  std::vector<double> out;
  for (double x : linspace64(std::log(sigma_max), std::log(sigma_min), n)) out.push_back(std::exp(x));
  return out;
}

std::vector<double> beta_sigmas(double sigma_min, double sigma_max, int64_t n) {
  std::vector<double> out;
  for (double x : linspace64(0, 1, n))
    out.push_back(sigma_min + beta_quantile(1 - x, 0.6, 0.6) * (sigma_max - sigma_min));
  return out;
}

SigmaCurve sigma_curve(const char* who, bool karras, bool exponential, bool beta) {
  SF_CHECK(karras + exponential + beta <= 1, who,
           ": only one of use_karras_sigmas, use_exponential_sigmas and use_beta_sigmas can be true");
  return karras        ? SigmaCurve::Karras
         : exponential ? SigmaCurve::Exponential
         : beta        ? SigmaCurve::Beta
                       : SigmaCurve::None;
}

std::vector<double> curve_sigmas(SigmaCurve curve, double sigma_min, double sigma_max, int64_t n) {
  switch (curve) {
    case SigmaCurve::Karras: return karras_sigmas(sigma_min, sigma_max, n);
    case SigmaCurve::Exponential: return exponential_sigmas(sigma_min, sigma_max, n);
    default: return beta_sigmas(sigma_min, sigma_max, n);
  }
}

}  // namespace sf::diffusion
