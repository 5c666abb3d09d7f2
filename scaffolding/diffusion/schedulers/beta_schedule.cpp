#include "scaffolding/diffusion/schedulers/beta_schedule.h"

#include <cmath>
#include <numbers>

#include "scaffolding/core/error.h"

namespace sf::diffusion {

namespace {

// a thousand times what models have; tables of that size take some megabytes
constexpr int64_t kMostTimesteps = 1 << 20;

// As torch.linspace counts on processors with fused multiplication and addition: from both ends, each value rounded
// once. Another order of operations gives other last digits, which small differences of sigmas multiply.
std::vector<float> line(double start, double end, int64_t n) {
  const auto first = float(start), last = float(end);
  const float step = n > 1 ? (last - first) / float(n - 1) : 0;
  std::vector<float> out;
  for (int64_t i = 0; i < n; ++i)
    out.push_back(i < n / 2 || n == 1 ? std::fma(step, float(i), first) : std::fma(-step, float(n - i - 1), last));
  return out;
}

// Betas of a function alpha_bar of the time in [0, 1] (Nichol and Dhariwal 2021 for the cosine).
template <class F> std::vector<float> betas_for_alpha_bar(int64_t n, const F& alpha_bar) {
  constexpr double kMaxBeta = 0.999;
  std::vector<float> betas;
  for (int64_t i = 0; i < n; ++i) {
    double t1 = double(i) / double(n), t2 = double(i + 1) / double(n);
    betas.push_back(float(std::min(1 - alpha_bar(t2) / alpha_bar(t1), kMaxBeta)));
  }
  return betas;
}
double cosine_alpha_bar(double t) {
  double c = std::cos((t + 0.008) / 1.008 * std::numbers::pi / 2);
  return c * c;
}
double laplace_alpha_bar(double t) {
  double lambda = -0.5 * std::copysign(1, 0.5 - t) * std::log(1 - 2 * std::abs(0.5 - t) + 1e-6);
  double snr = std::exp(lambda);
  return std::sqrt(snr / (1 + snr));
}

}  // namespace

Fields BetaConfig::fields() {
  return {{"num_train_timesteps", &num_train_timesteps},
          {"beta_start", &beta_start},
          {"beta_end", &beta_end},
          {"beta_schedule", &beta_schedule},
          {"trained_betas", &trained_betas}};
}

std::vector<float> get_beta_schedule(const std::string& schedule, int64_t num_timesteps, double beta_start,
                                     double beta_end) {
  BetaConfig config{num_timesteps, beta_start, beta_end, schedule, {}};
  check_betas("get_beta_schedule", config);
  return betas_of("get_beta_schedule", config);
}

void check_betas(const char* who, const BetaConfig& c, Betas range) {
  const bool any = range == Betas::Any;
  SF_CHECK(c.num_train_timesteps > 0 && c.num_train_timesteps <= kMostTimesteps, who,
           ": num_train_timesteps must be from 1 to ", kMostTimesteps, ", got ", c.num_train_timesteps);
  for (auto [name, beta] : {std::pair{"beta_start", c.beta_start}, {"beta_end", c.beta_end}})
    SF_CHECK(beta >= 0 && (any ? std::isfinite(beta) : beta < 1), who, ": ", name, " must be at least 0 and ",
             any ? "finite" : "below 1", ", got ", beta);
  if (!c.trained_betas) return;
  SF_CHECK(!c.trained_betas->empty() && int64_t(c.trained_betas->size()) <= kMostTimesteps, who,
           ": trained_betas must have from 1 to ", kMostTimesteps, " numbers, got ", c.trained_betas->size());
  for (double beta : *c.trained_betas)
    SF_CHECK(beta >= 0 && (any ? std::isfinite(beta) : beta <= 1), who, ": trained_betas must be ",
             any ? "at least 0 and finite" : "from 0 to 1", ", got ", beta);
}

std::vector<float> betas_of(const char* who, const BetaConfig& c, bool rescale_zero_snr) {
  std::vector<float> betas;
  int64_t n = c.num_train_timesteps;
  const std::string& schedule = c.beta_schedule;
  if (c.trained_betas) {
    betas.assign(c.trained_betas->begin(), c.trained_betas->end());
  } else if (schedule == "linear") {
    betas = line(c.beta_start, c.beta_end, n);
  } else if (schedule == "scaled_linear") {
    betas = line(std::sqrt(c.beta_start), std::sqrt(c.beta_end), n);
    for (float& b : betas) b *= b;
  } else if (schedule == "squaredcos_cap_v2" || schedule == "cosine") {
    betas = betas_for_alpha_bar(n, cosine_alpha_bar);
  } else if (schedule == "exp") {
    betas = betas_for_alpha_bar(n, [](double t) { return std::exp(t * -12.0); });
  } else if (schedule == "laplace") {
    betas = betas_for_alpha_bar(n, laplace_alpha_bar);
  } else if (schedule == "sigmoid") {
    betas = line(-6, 6, n);
    for (float& b : betas) b = 1 / (1 + std::exp(-b)) * float(c.beta_end - c.beta_start) + float(c.beta_start);
  } else {
    fail(who,
         ": beta_schedule must be linear, scaled_linear, squaredcos_cap_v2, cosine, sigmoid, exp or laplace, got '",
         schedule, "'");
  }
  return rescale_zero_snr ? rescale_zero_terminal_snr(betas) : betas;
}

std::vector<float> rescale_zero_terminal_snr(const std::vector<float>& betas) {
  std::vector<float> root = alphas_cumprod_of(betas);
  for (float& a : root) a = std::sqrt(a);
  float first = root.front(), last = root.back();
  SF_CHECK(first != last,
           "rescale_betas_zero_snr: the betas must add noise, got the same signal at the first and the last timestep");
  float stretch = first / (first - last);
  std::vector<float> out;
  float before = 1;
  for (float a : root) {
    float r = (a - last) * stretch;
    float bar = r * r;
    out.push_back(1 - bar / before);
    before = bar;
  }
  return out;
}

std::vector<float> alphas_cumprod_of(const std::vector<float>& betas) {
  std::vector<float> out;
  double product = 1;  // torch's cumprod keeps float32 products in double
  for (float b : betas) out.push_back(float(product *= double(1.0f - b)));
  return out;
}

}  // namespace sf::diffusion
