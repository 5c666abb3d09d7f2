#include "scaffolding/autograd/gradcheck.h"

#include <cmath>

#include "scaffolding/autograd/engine.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/generator.h"

namespace sf::autograd {

namespace {

using Fn = std::function<Tensors(const Tensors&)>;

bool is_real(const Tensor& t) { return t && is_floating(t.dtype()); }
bool is_checked(const Tensor& t) { return t && t.requires_grad(); }

// One column of the Jacobian at a time: all outputs for a step in one element of one input.
struct Numeric {
  const Fn& fn;
  const Tensors& inputs;
  double eps;
  Tensors column(size_t input, int64_t element) const {
    Tensors at[2];
    for (int side = 0; side < 2; ++side) {
      NoGrad off;
      Tensors moved = inputs;
      Tensor flat = inputs[input].detach().clone().contiguous();
      flat.data<double>()[element] += side ? -eps : eps;
      Tensor x = empty_like(inputs[input]);
      x.copy_(flat);
      moved[input] = x;
      for (auto& y : fn(moved)) at[side].push_back(is_real(y) ? y.detach().to(kFloat64).contiguous() : Tensor());
    }
    Tensors slope;
    for (size_t k = 0; k < at[0].size(); ++k) {
      Tensor d = at[0][k] ? at[0][k].clone() : Tensor();
      for (int64_t i = 0; d && i < d.numel(); ++i)
        d.data<double>()[i] = (d.data<double>()[i] - at[1][k].data<double>()[i]) / (2 * eps);
      slope.push_back(d);
    }
    return slope;
  }
};

bool check_inputs(const char* what, const Tensors& inputs) {
  bool any = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_checked(inputs[i])) continue;
    any = true;
    SF_CHECK_AS(TypeError, inputs[i].dtype() == kFloat64, what, ": input ", i,
                " must be float64 (float32 differences are noise), got ", inputs[i].dtype());
    SF_CHECK(inputs[i].is_leaf(), what, ": input ", i, " must be a leaf");
  }
  SF_CHECK(any, what, ": no input requires a gradient");
  return any;
}

template <class... P> bool report(const GradcheckOptions& o, const P&... parts) {
  if (o.raise_exception) fail<RuntimeError>(parts...);
  return false;
}

}  // namespace

bool gradcheck(const Fn& fn, const Tensors& inputs, GradcheckOptions o) {
  check_inputs("gradcheck", inputs);
  Tensors wanted;
  for (auto& x : inputs)
    if (is_checked(x)) wanted.push_back(x);
  Tensors ys = fn(inputs);
  bool any = false;
  for (auto& y : ys) any = any || (is_real(y) && y.requires_grad());
  if (!any) return report(o, "gradcheck: no output requires a gradient");
  Numeric numeric{fn, inputs, o.eps};
  // numeric columns first: column[j][k] is d output k / d element j of the inputs, in order
  std::vector<std::vector<Tensors>> columns;
  for (size_t i = 0; i < inputs.size(); ++i) {
    columns.emplace_back();
    if (!is_checked(inputs[i])) continue;
    for (int64_t j = 0; j < inputs[i].numel(); ++j) columns.back().push_back(numeric.column(i, j));
  }
  for (size_t k = 0; k < ys.size(); ++k) {
    if (!is_real(ys[k]) || !ys[k].requires_grad()) continue;
    for (int64_t e = 0; e < ys[k].numel(); ++e) {
      Tensor seed = zeros(ys[k].shape(), kFloat64);
      seed.data<double>()[e] = 1;
      Tensors row = grad({ys[k]}, wanted, {seed}, {.retain_graph = true}, true);
      for (size_t i = 0, w = 0; i < inputs.size(); ++i) {
        if (!is_checked(inputs[i])) continue;
        Tensor dx = row[w++];
        std::vector<double> analytic = dx ? dx.to_vector() : std::vector<double>(size_t(inputs[i].numel()), 0.0);
        for (size_t j = 0; j < analytic.size(); ++j) {
          double want = columns[i][j][k].data<double>()[e], got = analytic[j];
          if (std::fabs(want - got) <= o.atol + o.rtol * std::fabs(want)) continue;
          return report(o, "gradcheck: d output ", int64_t(k), "[", e, "] / d input ", int64_t(i), "[", int64_t(j),
                        "]: backward gives ", got, ", finite differences ", want, " (output ", ys[k].shape(),
                        ", input ", inputs[i].shape(), ")");
        }
      }
    }
  }
  if (o.check_undefined_grad && ys.size() > 1)  // one output's gradient alone, the others absent: done above for each
    for (auto& y : ys)
      if (is_real(y) && y.requires_grad()) grad({y}, wanted, {empty_like(y).fill_(1)}, {.retain_graph = true}, true);
  return true;
}

bool gradgradcheck(const Fn& fn, const Tensors& inputs, Tensors grad_outputs, GradcheckOptions o) {
  check_inputs("gradgradcheck", inputs);
  if (grad_outputs.empty()) {
    Generator g = make_generator();
    for (auto& y : fn(inputs)) {
      Tensor& dy = grad_outputs.emplace_back();
      if (!is_real(y) || !y.requires_grad()) continue;
      dy = empty(y.shape(), y.dtype(), Device::CPU).requires_grad_();
      g->normal(dy.dtype(), dy.data_ptr(), dy.numel(), 0, 1);
    }
  }
  size_t n = inputs.size();
  Tensors all = inputs;
  for (auto& g : grad_outputs) all.push_back(g);
  auto gradients = [&fn, n, &inputs](const Tensors& xs) {
    EnableGrad on;
    Tensors leaves, fresh(xs.begin(), xs.begin() + std::ptrdiff_t(n)), roots, seeds;
    for (size_t i = 0; i < n; ++i) {
      if (!is_checked(inputs[i])) continue;
      if (!fresh[i].requires_grad()) fresh[i] = fresh[i].detach().requires_grad_();  // the finite differences' copies
      leaves.push_back(fresh[i]);
    }
    Tensors ys = fn(fresh);
    for (size_t k = 0; k < ys.size(); ++k)
      if (is_real(ys[k]) && ys[k].requires_grad() && n + k < xs.size() && xs[n + k]) {
        roots.push_back(ys[k]);
        seeds.push_back(xs[n + k]);
      }
    Tensors found = grad(roots, leaves, seeds, {.create_graph = true}, true), out;
    for (size_t i = 0; i < found.size(); ++i) out.push_back(found[i] ? found[i] : zeros_like(leaves[i]));
    return out;
  };
  Tensors second = gradients(all);
  bool depends = false;
  for (auto& g : second) depends = depends || g.requires_grad();
  if (!depends) return true;  // linear in nothing: every second derivative is zero
  o.check_undefined_grad = false;
  return gradcheck(gradients, all, o);
}

}  // namespace sf::autograd
