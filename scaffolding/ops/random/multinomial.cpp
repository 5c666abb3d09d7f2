// multinomial: torch's two algorithms, so that samples are torch's. With replacement, binary search in the running sum;
// without, the races of Efraimidis and Spirakis (2006): the num_samples largest of weight / exponential.
#include <algorithm>
#include <cmath>

#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/random/streams.h"

namespace sf {

namespace {

// The dtype that torch adds probabilities up in.
template <class T> using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T> void with_replacement(const T* weights, int64_t rows, int64_t categories, int64_t samples, const Generator& g, int64_t* out) {
  std::vector<Sum<T>> running(static_cast<size_t>(categories));
  std::vector<double> u(static_cast<size_t>(samples));
  for (int64_t r = 0; r < rows; ++r) {
    Sum<T> sum = 0;
    for (int64_t i = 0; i < categories; ++i) {
      if constexpr (std::is_same_v<T, double>) sum += weights[r * categories + i];
      else sum += to_float(weights[r * categories + i]);
      running[size_t(i)] = sum;
    }
    for (auto& v : running) v /= sum;
    running.back() = 1;
    g->uniform(kFloat64, u.data(), samples, 0, 1);
    for (int64_t s = 0; s < samples; ++s)
      out[r * samples + s] = std::lower_bound(running.begin(), running.end(), u[size_t(s)], [](Sum<T> c, double v) { return double(c) < v; }) - running.begin();
  }
}

void largest(const double* race, int64_t rows, int64_t categories, int64_t samples, int64_t* out) {
  std::vector<std::pair<double, int64_t>> queue(static_cast<size_t>(categories));
  auto before = [](const auto& a, const auto& b) { return a.first > b.first; };
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < categories; ++i) queue[size_t(i)] = {race[r * categories + i], i};
    if (samples == 1) {
      out[r] = std::max_element(queue.begin(), queue.end(), [&](const auto& a, const auto& b) { return a.first < b.first; })->second;
      continue;
    }
    if (samples * 64 <= categories) {  // torch.topk's two ways: they differ where values tie
      std::partial_sort(queue.begin(), queue.begin() + samples, queue.end(), before);
    } else {
      std::nth_element(queue.begin(), queue.begin() + samples - 1, queue.end(), before);
      std::sort(queue.begin(), queue.begin() + samples - 1, before);
    }
    for (int64_t s = 0; s < samples; ++s) out[r * samples + s] = queue[size_t(s)].second;
  }
}

}  // namespace

Tensor multinomial(const Tensor& input, int64_t num_samples, bool replacement, const Generator& generator) {
  check_defined("multinomial", "input", input);
  check_floating("multinomial", "input", input);
  SF_CHECK(input.ndim() == 1 || input.ndim() == 2, "multinomial: input must have 1 or 2 dimensions, got ", input.shape());
  int64_t categories = input.size(-1), rows = input.ndim() == 2 ? input.size(0) : 1;
  SF_CHECK(num_samples > 0, "multinomial: num_samples must be positive, got ", num_samples);
  SF_CHECK(categories > 0, "multinomial: input must have categories, got ", input.shape());
  SF_CHECK(replacement || num_samples <= categories, "multinomial: cannot draw num_samples=", num_samples, " of ", categories,
           " categories without replacement");
  SF_CHECK(categories <= (1 << 24), "multinomial: at most 2^24 categories, got ", categories);
  Shape size = input.ndim() == 2 ? Shape{rows, num_samples} : Shape{num_samples};
  Tensor out = empty(size, kInt64, input.device().is_meta() ? input.device() : Device());
  if (input.device().is_meta() || rows == 0) return to_device(out, input.device());
  refuse_host_draw("multinomial", input.device());
  Tensor weights = contiguous(input.detach().to(Device::CPU));
  std::vector<double> w = weights.to_vector();
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t i = 0; i < categories; ++i) {
      double v = w[size_t(r * categories + i)];
      SF_CHECK(std::isfinite(v) && v >= 0, "multinomial: probabilities must be finite and not negative, got ", v);
      sum += v;
    }
    SF_CHECK(sum > 0, "multinomial: the probabilities of row ", r, " add up to 0");
  }
  Generator g = generator ? generator : default_generator(input.device());
  if (replacement && num_samples > 1) {
    visit_dtype(weights.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (!std::is_integral_v<T>) with_replacement(weights.data<T>(), rows, categories, num_samples, g, out.data<int64_t>());
    });
  } else {
    Tensor race = div(weights, exponential_(empty_like(weights), 1, g)).to(kFloat64);
    largest(race.data<double>(), rows, categories, num_samples, out.data<int64_t>());
  }
  return to_device(out, input.device());
}

SF_OP(multinomial, "input, num_samples, replacement=False, generator=None")
    .doc("num_samples indices per row of input, drawn with probability proportional to input.")
    .no_gradient()
    .random();

}  // namespace sf
