// Forward and backward variables in logarithms (Graves et al., ICML 2006), one sequence of the batch at a time.
#include <algorithm>
#include <cmath>
#include <vector>

#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/ctc_loss/kernel.h"

namespace sf {
namespace {

constexpr double kNever = -INFINITY;

double log_sum(double a, double b, double c) {
  double top = std::max(a, std::max(b, c));
  if (!(top > kNever)) return top;
  return top + std::log(std::exp(a - top) + std::exp(b - top) + std::exp(c - top));
}

template <class T> class Sequence {
 public:
  Sequence(const CtcLoss& k, int64_t n)
      : k_(k),
        n_(n),
        batch_(k.log_probs.sizes[1]),
        classes_(k.log_probs.sizes[2]),
        time_(k.input_lengths.as<const int64_t>()[n]),
        labels_(k.target_lengths.as<const int64_t>()[n]),
        states_(2 * labels_ + 1),
        target_(k.targets.as<const int64_t>() + n * k.targets.sizes[1]) {}

  void run() {
    if (k_.dx)
      for (int64_t t = 0; t < k_.log_probs.sizes[0]; ++t) std::fill_n(row(k_.dx, t), classes_, T(0));
    double loss = time_ == 0 ? (labels_ == 0 ? 0 : INFINITY) : forward();
    k_.loss.as<T>()[n_] = T(loss);
    if (k_.dx && time_ > 0) backward(loss);
  }

 private:
  T* row(const TensorView& x, int64_t t) const { return x.as<T>() + (t * batch_ + n_) * classes_; }
  // Blanks stand between labels, and at both ends.
  int64_t label(int64_t s) const { return s % 2 ? target_[s / 2] : k_.blank; }
  // Whether the blank before state s may be left out.
  bool skips(int64_t s) const { return s % 2 && s > 1 && target_[s / 2] != target_[s / 2 - 1]; }
  double log_prob(int64_t t, int64_t s) const { return double(row(k_.log_probs, t)[label(s)]); }

  double forward() {
    alpha_.assign(size_t(time_ * states_), kNever);
    double* a = alpha_.data();
    a[0] = log_prob(0, 0);
    if (states_ > 1) a[1] = log_prob(0, 1);
    for (int64_t t = 1; t < time_; ++t, a += states_)
      for (int64_t s = 0; s < states_; ++s)
        a[states_ + s] = log_prob(t, s) + log_sum(a[s], s > 0 ? a[s - 1] : kNever, skips(s) ? a[s - 2] : kNever);
    return -log_sum(a[states_ - 1], states_ > 1 ? a[states_ - 2] : kNever, kNever);
  }

  void backward(double loss) {
    std::vector<double> beta(size_t(states_), kNever), later(size_t(states_), kNever), likely(size_t(classes_), 0.0);
    for (int64_t t = time_ - 1; t >= 0; --t) {
      // beta without the time's own probability, so that alpha + beta has it once
      for (int64_t s = states_ - 1; s >= 0; --s) {
        if (t == time_ - 1) beta[size_t(s)] = s + 2 >= states_ ? 0 : kNever;
        else
          beta[size_t(s)] = log_sum(later[size_t(s)], s + 1 < states_ ? later[size_t(s + 1)] : kNever,
                                    s + 2 < states_ && skips(s + 2) ? later[size_t(s + 2)] : kNever);
      }
      std::fill(likely.begin(), likely.end(), 0.0);
      for (int64_t s = 0; s < states_; ++s) {
        likely[size_t(label(s))] += std::exp(alpha_[size_t(t * states_ + s)] + beta[size_t(s)] + loss);
        later[size_t(s)] = beta[size_t(s)] + log_prob(t, s);
      }
      const T* x = row(k_.log_probs, t);
      T* dx = row(k_.dx, t);
      for (int64_t c = 0; c < classes_; ++c) dx[c] = T(std::exp(double(x[c])) - likely[size_t(c)]);
    }
  }

  const CtcLoss& k_;
  int64_t n_, batch_, classes_, time_, labels_, states_;
  const int64_t* target_;
  std::vector<double> alpha_;  // [time, states]
};

void ctc_loss_cpu(const CtcLoss& k) {
  parallel_for(k.loss.numel(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      if (k.log_probs.dtype == kFloat64) Sequence<double>(k, n).run();
      else Sequence<float>(k, n).run();
    }
  });
}

SF_KERNEL(ctc_loss_kernel, DeviceType::CPU, "native", 0, ctc_loss_cpu, nullptr)

}  // namespace
}  // namespace sf
