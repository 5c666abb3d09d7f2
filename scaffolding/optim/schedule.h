// The formulas of learning-rate schedules: torch.optim.lr_scheduler's and diffusers.optimization's, for C++ and Python.
// epoch counts scheduler steps from 0. `lr` is a group's present rate, `base` the one that it began with. The chained
// forms compute the next rate from the present one, so that schedules multiply;
// the closed forms need only base and epoch.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace sf::optim::schedule {

double step(double lr, int64_t epoch, int64_t step_size, double gamma);
double step_closed(double base, int64_t epoch, int64_t step_size, double gamma);
// milestones ascend and may repeat.
double multi_step(double lr, int64_t epoch, const std::vector<int64_t>& milestones, double gamma);
double multi_step_closed(double base, int64_t epoch, const std::vector<int64_t>& milestones, double gamma);
double constant(double lr, int64_t epoch, double factor, int64_t total_iters);
double constant_closed(double base, int64_t epoch, double factor, int64_t total_iters);
double linear(double lr, int64_t epoch, double start_factor, double end_factor, int64_t total_iters);
double linear_closed(double base, int64_t epoch, double start_factor, double end_factor, int64_t total_iters);
double polynomial(double lr, int64_t epoch, int64_t total_iters, double power);
double polynomial_closed(double base, int64_t epoch, int64_t total_iters, double power);
double cosine_annealing(double lr, double base, int64_t epoch, double T_max, double eta_min);
double cosine_annealing_closed(double base, double epoch, double T_max, double eta_min);

// Where a warm restart stands: T_cur steps into a period of T_i.
struct Restart {
  double T_cur, T_i;
};
Restart restart_at(double epoch, int64_t T_0, int64_t T_mult);

// From start to end as fraction goes from 0 to 1.
double anneal(double start, double end, double fraction, bool cosine);
// One-cycle policy (Smith and Topin 2018): the phase and the fraction of it that `epoch` lies in.
struct CyclePhase {
  int64_t phase;
  double fraction;
};
CyclePhase one_cycle(int64_t epoch, int64_t total_steps, double pct_start, bool three_phase);
// Triangular cycles (Smith 2017): how far up, 0 to 1, and the number of the cycle from 1.
struct Triangle {
  double height;
  int64_t cycle;
};
Triangle triangle(int64_t epoch, double step_size_up, double step_size_down);

// ---- diffusers: factors of the base rate, with a linear warm-up over warmup_steps
double constant_with_warmup(int64_t step, int64_t warmup_steps);
double linear_with_warmup(int64_t step, int64_t warmup_steps, int64_t training_steps, double f_min = 0,
                          double f_max = 1);
double cosine_with_warmup(int64_t step, int64_t warmup_steps, int64_t training_steps, double num_cycles = 0.5);
double cosine_with_restarts(int64_t step, int64_t warmup_steps, int64_t training_steps, double num_cycles = 1);
double polynomial_with_warmup(int64_t step, int64_t warmup_steps, int64_t training_steps, double base,
                              double lr_end = 1e-7, double power = 1);

// "1:10,0.1:20,0.005": 1 before step 10, 0.1 before step 20, then 0.005. ValueError when it does not read so.
struct Pieces {
  explicit Pieces(const std::string& rules);
  double factor(int64_t step) const;

 private:
  std::vector<std::pair<int64_t, double>> before_;  // ascending
  double last_ = 1;
};

}  // namespace sf::optim::schedule
