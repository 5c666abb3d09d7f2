#include "scaffolding/optim/gradient_map.h"

#include <cmath>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"

namespace sf::optim {

namespace {

struct Sums {
  double sum = 0, power = 0, abs_max = 0;  // power: sum of |x|^p
  int64_t nan = 0, inf = 0;
};

// One pass in double precision. Partial sums are joined in the order of the elements, whatever thread was first.
// Non-finite elements are counted and left out, unless they shall `poison` the sums.
Sums sums_of(const Tensor& t, double p, bool poison) {
  Sums total;
  if (t.numel() == 0 || t.device().is_meta()) return total;
  autograd::NoGrad off;
  Tensor x = contiguous(t.detach().to(Device::CPU));
  constexpr int64_t kPiece = 1 << 15;
  std::vector<Sums> parts(size_t((x.numel() + kPiece - 1) / kPiece));
  visit_dtype(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* data = static_cast<const T*>(x.data_ptr());
    parallel_for(int64_t(parts.size()), 1, [&](int64_t b, int64_t e) {
      for (int64_t k = b; k < e; ++k) {
        Sums s;
        for (int64_t i = k * kPiece, end = std::min(x.numel(), (k + 1) * kPiece); i < end; ++i) {
          double v;
          if constexpr (std::is_arithmetic_v<T>) v = double(data[i]);
          else v = to_float(data[i]);
          double a = std::fabs(v);
          s.nan += v != v;
          s.inf += a == INFINITY;
          if (!poison && !(a < INFINITY)) continue;
          s.sum += v;
          s.power += p == 2 ? v * v : p == 1 ? a : p == INFINITY ? 0 : std::pow(a, p);
          s.abs_max = s.abs_max < a || a != a ? a : s.abs_max;
        }
        parts[size_t(k)] = s;
      }
    });
  });
  for (auto& s : parts) {
    total.sum += s.sum;
    total.power += s.power;
    total.abs_max = total.abs_max < s.abs_max || s.abs_max != s.abs_max ? s.abs_max : total.abs_max;
    total.nan += s.nan;
    total.inf += s.inf;
  }
  return total;
}

double root(const Sums& s, double p) {
  return p == INFINITY ? s.abs_max : p == 2 ? std::sqrt(s.power) : p == 1 ? s.power : std::pow(s.power, 1 / p);
}
double norm_of(const Tensor& t, double p) { return root(sums_of(t, p, true), p); }
void check_norm_type(double p) { SF_CHECK(p > 0, "GradientMap: norm_type must be positive, got ", p); }

}  // namespace

GradientStatistics statistics_of(const Tensor& t) {
  check_defined("statistics", "tensor", t);
  Sums s = sums_of(t, 2, false);
  int64_t finite = t.numel() - s.nan - s.inf;
  return {std::sqrt(s.power), s.abs_max, finite ? s.sum / double(finite) : 0, t.numel(), s.nan, s.inf};
}

Tensor GradientMap::get(const Tensor& leaf) const {
  auto it = index_.find(leaf.impl());
  return it == index_.end() ? Tensor() : entries_[it->second].gradient;
}

void GradientMap::set(const Tensor& leaf, const Tensor& gradient) {
  check_defined("GradientMap.set", "leaf", leaf);
  check_defined("GradientMap.set", "gradient", gradient);
  SF_CHECK(gradient.shape() == leaf.shape(), "GradientMap.set: gradient must have the leaf's shape ", leaf.shape(),
           ", got ", gradient.shape());
  SF_CHECK_AS(TypeError, gradient.dtype() == leaf.dtype(), "GradientMap.set: gradient must have the leaf's dtype ",
              leaf.dtype(), ", got ", gradient.dtype());
  check_same_device("GradientMap.set", leaf, gradient);
  auto [it, is_new] = index_.try_emplace(leaf.impl(), entries_.size());
  if (is_new) entries_.push_back({leaf, gradient});
  else entries_[it->second].gradient = gradient;
}

Tensor GradientMap::take(const Tensor& leaf) {
  Tensor g = get(leaf);
  erase(leaf);
  return g;
}

bool GradientMap::erase(const Tensor& leaf) {
  auto it = index_.find(leaf.impl());
  if (it == index_.end()) return false;
  entries_.erase(entries_.begin() + std::ptrdiff_t(it->second));
  index_.clear();
  for (size_t i = 0; i < entries_.size(); ++i) index_[entries_[i].leaf.impl()] = i;
  return true;
}

void GradientMap::clear() {
  entries_.clear();
  index_.clear();
}

void GradientMap::transform(const std::function<Tensor(const Tensor&, const Tensor&)>& f) {
  GradientMap result;
  for (auto& [leaf, g] : entries_)
    if (Tensor edited = f(leaf, g)) result.set(leaf, edited);
  *this = std::move(result);
}

// f changes gradients in place: ones that somebody else holds too are copied first.
void GradientMap::edit(const std::function<void(const Tensor&, Tensor&)>& f) {
  autograd::NoGrad off;
  for (auto& [leaf, g] : entries_) {
    bool ours = g.impl()->refs.load() == 1 && g.storage()->refs.load() == 1 && g.is_contiguous() && !g.requires_grad();
    if (!ours) g = g.detach().clone();
    f(leaf, g);
  }
}

void GradientMap::scale(double factor) {
  edit([&](const Tensor&, Tensor& g) { g.mul_(factor); });
}

double GradientMap::norm(double norm_type) const {
  check_norm_type(norm_type);
  Sums total;
  for (auto& [leaf, g] : entries_) {
    Sums s = sums_of(g, norm_type, true);
    total.power += s.power;
    total.abs_max = total.abs_max < s.abs_max || s.abs_max != s.abs_max ? s.abs_max : total.abs_max;
  }
  return root(total, norm_type);
}

double GradientMap::clip_norm(double max_norm, double norm_type, bool error_if_nonfinite) {
  SF_CHECK(max_norm >= 0, "clip_norm: max_norm must not be negative, got ", max_norm);
  double before = norm(norm_type);
  SF_CHECK_AS(RuntimeError, !error_if_nonfinite || std::isfinite(before), "clip_norm: the norm of the gradients is ",
              before, "; find the op with detect_anomaly, or pass error_if_nonfinite=False");
  double factor = max_norm / (before + 1e-6);
  if (!(factor >= 1)) scale(factor);
  return before;
}

void GradientMap::clip_value(double limit) {
  SF_CHECK(limit >= 0, "clip_value: limit must not be negative, got ", limit);
  edit([&](const Tensor&, Tensor& g) { g = clamp(g, -limit, limit); });
}

void GradientMap::clip_adaptive(double clip_factor, double eps, bool unit_wise) {
  SF_CHECK(clip_factor > 0 && eps >= 0, "clip_adaptive: clip_factor must be positive and eps not negative, got ",
           clip_factor, " and ", eps);
  auto clip = [&](const Tensor& leaf, Tensor& g) {
    double limit = clip_factor * std::max(norm_of(leaf, 2), eps), norm = norm_of(g, 2);
    if (norm > limit) g.mul_(limit / norm);
  };
  edit([&](const Tensor& leaf, Tensor& g) {
    if (!unit_wise || g.ndim() < 2) return clip(leaf, g);
    for (int64_t row = 0; row < g.size(0); ++row) {
      Tensor part = g[row];
      clip(leaf.detach()[row], part);
    }
  });
}

void GradientMap::normalize(double norm_type, bool each, double eps) {
  check_norm_type(norm_type);
  double all = each ? 0 : norm(norm_type);
  edit([&](const Tensor&, Tensor& g) { g.mul_(1 / std::max(each ? norm_of(g, norm_type) : all, eps)); });
}

void GradientMap::add_noise(double std, const Generator& generator) {
  SF_CHECK(std >= 0, "add_noise: std must not be negative, got ", std);
  edit([&](const Tensor&, Tensor& g) { g.add_(randn_like(g, generator), std); });
}

GradientStatistics GradientMap::statistics(const Tensor& leaf) const {
  Tensor g = get(leaf);
  SF_CHECK(g, "GradientMap.statistics: there is no gradient of this tensor");
  return statistics_of(g);
}

GradientStatistics GradientMap::statistics() const {
  GradientStatistics all;
  double squares = 0, sum = 0;
  for (auto& [leaf, g] : entries_) {
    GradientStatistics s = statistics_of(g);
    squares += s.norm * s.norm;
    sum += s.mean * double(s.count - s.nan - s.inf);
    all.abs_max = std::max(all.abs_max, s.abs_max);
    all.count += s.count;
    all.nan += s.nan;
    all.inf += s.inf;
  }
  int64_t finite = all.count - all.nan - all.inf;
  all.norm = std::sqrt(squares);
  all.mean = finite ? sum / double(finite) : 0;
  return all;
}

bool GradientMap::has_invalid_values() const {
  for (auto& [leaf, g] : entries_)
    if (GradientStatistics s = statistics_of(g); s.nan || s.inf) return true;
  return false;
}

void GradientMap::apply_to_grads(bool accumulate) const {
  autograd::NoGrad off;
  for (auto& [leaf, g] : entries_) {
    if (!accumulate) leaf.set_grad({});
    autograd::accumulate_grad(leaf, g);
  }
}

GradientMap backward_map(const Tensors& roots, const Tensors& gradients, autograd::BackwardOptions options,
                         bool write_grad) {
  GradientMap map;
  for (auto& [leaf, g] : autograd::leaf_gradients(roots, gradients, options)) map.set(leaf, g);
  if (write_grad) map.apply_to_grads(true);
  return map;
}

}  // namespace sf::optim
