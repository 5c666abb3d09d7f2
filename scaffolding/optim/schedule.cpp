#include "scaffolding/optim/schedule.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include "scaffolding/core/error.h"

namespace sf::optim::schedule {

using std::numbers::pi;

double step(double lr, int64_t epoch, int64_t step_size, double gamma) {
  return epoch == 0 || epoch % step_size != 0 ? lr : lr * gamma;
}
double step_closed(double base, int64_t epoch, int64_t step_size, double gamma) {
  return base * std::pow(gamma, double(epoch / step_size));
}

double multi_step(double lr, int64_t epoch, const std::vector<int64_t>& milestones, double gamma) {
  auto [first, last] = std::equal_range(milestones.begin(), milestones.end(), epoch);
  return first == last ? lr : lr * std::pow(gamma, double(last - first));
}
double multi_step_closed(double base, int64_t epoch, const std::vector<int64_t>& milestones, double gamma) {
  return base *
         std::pow(gamma, double(std::upper_bound(milestones.begin(), milestones.end(), epoch) - milestones.begin()));
}

double constant(double lr, int64_t epoch, double factor, int64_t total_iters) {
  if (epoch == 0) return lr * factor;
  return epoch != total_iters ? lr : lr * (1 / factor);
}
double constant_closed(double base, int64_t epoch, double factor, int64_t total_iters) {
  return base * (epoch >= total_iters ? 1 : factor);
}

double linear(double lr, int64_t epoch, double start_factor, double end_factor, int64_t total_iters) {
  if (epoch == 0) return lr * start_factor;
  if (epoch > total_iters) return lr;
  double slope = end_factor - start_factor;
  return lr * (1 + slope / (double(total_iters) * start_factor + double(epoch - 1) * slope));
}
double linear_closed(double base, int64_t epoch, double start_factor, double end_factor, int64_t total_iters) {
  return base *
         (start_factor + (end_factor - start_factor) * double(std::min(total_iters, epoch)) / double(total_iters));
}

double polynomial(double lr, int64_t epoch, int64_t total_iters, double power) {
  if (epoch > total_iters) return lr;
  double n = double(total_iters);
  return lr * std::pow((1 - double(epoch) / n) / (1 - double(epoch - 1) / n), power);
}
double polynomial_closed(double base, int64_t epoch, int64_t total_iters, double power) {
  return base * std::pow(1 - double(std::min(total_iters, epoch)) / double(total_iters), power);
}

double cosine_annealing(double lr, double base, int64_t epoch, double T_max, double eta_min) {
  if (std::fmod(double(epoch - 1) - T_max, 2 * T_max) == 0)
    return lr + (base - eta_min) * (1 - std::cos(pi / T_max)) / 2;
  return (1 + std::cos(pi * double(epoch) / T_max)) / (1 + std::cos(pi * double(epoch - 1) / T_max)) * (lr - eta_min) +
         eta_min;
}
double cosine_annealing_closed(double base, double epoch, double T_max, double eta_min) {
  return eta_min + (base - eta_min) * (1 + std::cos(pi * epoch / T_max)) / 2;
}

Restart restart_at(double epoch, int64_t T_0, int64_t T_mult) {
  double first = double(T_0), growth = double(T_mult);
  if (epoch < first) return {epoch, first};
  if (T_mult == 1) return {std::fmod(epoch, first), first};
  for (; epoch >= first; first *= growth) epoch -= first;
  return {epoch, first};
}

double anneal(double start, double end, double fraction, bool cosine) {
  if (cosine) return end + (start - end) / 2 * (std::cos(pi * fraction) + 1);
  return (end - start) * fraction + start;
}

CyclePhase one_cycle(int64_t epoch, int64_t total_steps, double pct_start, bool three_phase) {
  double total = double(total_steps), at = double(epoch);
  std::vector<double> ends{pct_start * total - 1};
  if (three_phase) ends.push_back(2 * pct_start * total - 2);
  ends.push_back(total - 1);
  double start = 0;
  for (size_t i = 0;; start = ends[i++])
    if (at <= ends[i] || i + 1 == ends.size()) return {int64_t(i), (at - start) / (ends[i] - start)};
}

Triangle triangle(int64_t epoch, double step_size_up, double step_size_down) {
  double total = step_size_up + step_size_down, ratio = step_size_up / total;
  double cycle = std::floor(1 + double(epoch) / total), x = 1 + double(epoch) / total - cycle;
  return {x <= ratio ? x / ratio : (x - 1) / (ratio - 1), int64_t(cycle)};
}

// ---- diffusers

static double warmup(int64_t step, int64_t warmup_steps) {
  return double(step) / double(std::max<int64_t>(1, warmup_steps));
}
static double progress(int64_t step, int64_t warmup_steps, int64_t training_steps) {
  return double(step - warmup_steps) / double(std::max<int64_t>(1, training_steps - warmup_steps));
}

double constant_with_warmup(int64_t step, int64_t warmup_steps) {
  return step < warmup_steps ? warmup(step, warmup_steps) : 1;
}

double linear_with_warmup(int64_t step, int64_t warmup_steps, int64_t training_steps, double f_min, double f_max) {
  if (step < warmup_steps) return f_max * warmup(step, warmup_steps);
  double left = double(training_steps - step) / double(std::max<int64_t>(1, training_steps - warmup_steps));
  return f_min + (f_max - f_min) * std::max(0.0, left);
}

double cosine_with_warmup(int64_t step, int64_t warmup_steps, int64_t training_steps, double num_cycles) {
  if (step < warmup_steps) return warmup(step, warmup_steps);
  return std::max(0.0, 0.5 * (1 + std::cos(pi * num_cycles * 2 * progress(step, warmup_steps, training_steps))));
}

double cosine_with_restarts(int64_t step, int64_t warmup_steps, int64_t training_steps, double num_cycles) {
  if (step < warmup_steps) return warmup(step, warmup_steps);
  double p = progress(step, warmup_steps, training_steps);
  return p >= 1 ? 0 : std::max(0.0, 0.5 * (1 + std::cos(pi * std::fmod(num_cycles * p, 1.0))));
}

double polynomial_with_warmup(int64_t step, int64_t warmup_steps, int64_t training_steps, double base, double lr_end,
                              double power) {
  if (step < warmup_steps) return warmup(step, warmup_steps);
  if (step > training_steps) return lr_end / base;
  double left = 1 - double(step - warmup_steps) / double(training_steps - warmup_steps);
  return ((base - lr_end) * std::pow(left, power) + lr_end) / base;
}

template <class T> static T number(std::string_view text, const std::string& rules) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  SF_CHECK(error == std::errc() && end == text.data() + text.size() && !text.empty(),
           "piecewise_constant: step_rules must read like '1:10,0.1:20,0.005', got '", rules, "'");
  return value;
}

Pieces::Pieces(const std::string& rules) {
  std::string_view rest = rules;
  for (size_t comma; (comma = rest.find(',')) != rest.npos; rest.remove_prefix(comma + 1)) {
    std::string_view rule = rest.substr(0, comma);
    size_t colon = rule.find(':');
    SF_CHECK(colon != rule.npos, "piecewise_constant: step_rules must read like '1:10,0.1:20,0.005', got '", rules,
             "'");
    before_.push_back({number<int64_t>(rule.substr(colon + 1), rules), number<double>(rule.substr(0, colon), rules)});
  }
  last_ = number<double>(rest, rules);
  std::sort(before_.begin(), before_.end());
}

double Pieces::factor(int64_t step) const {
  for (auto& [end, factor] : before_)
    if (step < end) return factor;
  return last_;
}

}  // namespace sf::optim::schedule
