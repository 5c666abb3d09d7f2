// multinomial: torch's two algorithms, so that samples are torch's. With replacement, binary search in the running sum;
// without, the races of Efraimidis and Spirakis (2006): the num_samples largest of weight / exponential.
#include <algorithm>
#include <cmath>
#include <limits>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/index/index_internal.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/philox_numbers.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/random/streams.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/sort/sort.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

namespace {

// The dtype that torch adds probabilities up in.
template <class T> using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
void with_replacement(const T* weights, int64_t rows, int64_t categories, int64_t samples, const Generator& g,
                      int64_t* out) {
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
      out[r * samples + s] = std::lower_bound(running.begin(), running.end(), u[size_t(s)],
                                              [](Sum<T> c, double v) { return double(c) < v; }) -
                             running.begin();
  }
}

void largest(const double* race, int64_t rows, int64_t categories, int64_t samples, int64_t* out) {
  std::vector<std::pair<double, int64_t>> queue(static_cast<size_t>(categories));
  auto before = [](const auto& a, const auto& b) { return a.first > b.first; };
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < categories; ++i) queue[size_t(i)] = {race[r * categories + i], i};
    if (samples == 1) {
      out[r] = std::max_element(queue.begin(), queue.end(), [&](const auto& a, const auto& b) {
                 return a.first < b.first;
               })->second;
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

// ValueError for rows that are no weights.
void check_weights(const Tensor& weights, int64_t rows, int64_t categories) {
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
}

// torch's algorithm on CUDA, by ops and so on any device, for Philox's numbers.
Tensor drawn_there(const Tensor& weights, int64_t samples, bool replacement, const Generator& g) {
  autograd::NoGrad off;
  int64_t rows = weights.size(0), categories = weights.size(1);
  Tensor total = sum(weights, Shape{-1}, true);
  if (weights.device().is_cuda()) {
    Tensor good = logical_and(ge(weights, wrapped(0)), lt(weights, wrapped(std::numeric_limits<double>::infinity())));
    Tensor ok = logical_and(amin(to_dtype(good, kInt32), Shape{-1}, true), gt(total, wrapped(0)));
    if (!indexing::all_hold("multinomial", ok)) check_weights(weights, rows, categories);
  } else {
    check_weights(weights, rows, categories);
  }
  if (!replacement || samples == 1) {
    Tensor race = div(weights, exponential_(empty_like(weights), 1, g));
    return samples == 1 ? argmax(race, -1, true) : std::get<1>(topk(race, samples, -1));
  }
  Tensor shares = div(weights, total), out = empty({rows, samples}, kInt64, weights.device());
  Tensor running = cumsum(shares, -1);
  philox::Categories how(rows, samples);
  PhiloxCategories draw{out, shares, running, {}};
  draw.place = *reserve_philox(g, uint64_t(how.counters));
  if (!weights.device().is_cpu()) {
    auto kernel = philox_categories.find(weights.device(), draw);
    SF_CHECK_AS(NotSupported, kernel, "multinomial: no kernel for ", weights.dtype(), " on ", weights.device());
    kernel(draw);
    return out;
  }
  philox::Stream stream(draw.place);
  visit_dtype(weights.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_integral_v<T>)
      for (int64_t i = 0; i < rows * samples; ++i) {
        int64_t first = i / samples * categories;
        out.data<int64_t>()[i] = philox::category_of(shares.data<T>() + first, running.data<T>() + first, categories,
                                                     how.unit_of(stream, i / samples, i % samples));
      }
  });
  return out;
}

}  // namespace

Tensor multinomial(const Tensor& input, int64_t num_samples, bool replacement, const Generator& generator) {
  check_defined("multinomial", "input", input);
  check_floating("multinomial", "input", input);
  SF_CHECK(input.ndim() == 1 || input.ndim() == 2, "multinomial: input must have 1 or 2 dimensions, got ",
           input.shape());
  int64_t categories = input.size(-1), rows = input.ndim() == 2 ? input.size(0) : 1;
  SF_CHECK(num_samples > 0, "multinomial: num_samples must be positive, got ", num_samples);
  SF_CHECK(categories > 0, "multinomial: input must have categories, got ", input.shape());
  SF_CHECK(replacement || num_samples <= categories, "multinomial: cannot draw num_samples=", num_samples, " of ",
           categories, " categories without replacement");
  SF_CHECK(categories <= (1 << 24), "multinomial: at most 2^24 categories, got ", categories);
  Shape size = input.ndim() == 2 ? Shape{rows, num_samples} : Shape{num_samples};
  Tensor out = empty(size, kInt64, input.device().is_meta() ? input.device() : Device());
  if (input.device().is_meta() || rows == 0) return to_device(out, input.device());
  Generator g = generator ? generator : default_generator(input.device());
  if (std::string_view(g->algorithm()) == "philox")
    return drawn_there(contiguous(input.detach()).reshape({rows, categories}), num_samples, replacement, g)
        .reshape(size);
  refuse_host_draw("multinomial", input.device());
  Tensor weights = contiguous(input.detach().to(Device::CPU));
  check_weights(weights, rows, categories);
  if (replacement && num_samples > 1) {
    visit_dtype(weights.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (!std::is_integral_v<T>)
        with_replacement(weights.data<T>(), rows, categories, num_samples, g, out.data<int64_t>());
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
    .random()
    .kernels(philox_categories);

}  // namespace sf
