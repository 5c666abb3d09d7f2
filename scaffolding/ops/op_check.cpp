#include "scaffolding/ops/op_check.h"

#include <cmath>

#include "scaffolding/autograd/engine.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/provider.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::test {

bool is_real(const Tensor& t) { return t && is_floating(t.dtype()) && !is_float8(t.dtype()); }

Tensor leaf_of(const Tensor& t) {
  Tensor x = empty_like(t);
  copy_bytes(x, t);
  return x.requires_grad_();
}

Tensor weighted_sum(const Tensors& ys, const Tensors& cs) {
  Tensor total;
  for (size_t i = 0; i < ys.size(); ++i) {
    if (!is_real(ys[i]) || ys[i].numel() == 0) continue;
    Tensor part = (to_dtype(ys[i], kFloat64) * cs[i]).sum();
    total = total ? total + part : part;
  }
  return total;
}

std::vector<Tensor> real_inputs(const std::vector<Value>& args) {
  std::vector<Tensor> v;
  map_tensors(args, [&](const Tensor& t) {
    if (is_real(t)) v.push_back(t);
    return t;
  });
  return v;
}

std::string describe(const OpEntry& op, const std::vector<Value>& args) {
  std::string s = op.name + "(";
  map_tensors(args, [&](const Tensor& t) {
    s += std::string(name(t.dtype())) + str(t.shape()) + " ";
    return t;
  });
  return s + ")";
}

static double epsilon(DType t) {
  return t == kBFloat16 ? 0x1p-8 : t == kFloat16 ? 0x1p-11 : t == kFloat32 ? 0x1p-24 : 0x1p-53;
}

double tolerance(DType dtype, double length) {
  return epsilon(dtype) * (6 + 0.5 * std::sqrt(length)) + (is_reduced(dtype) ? 4e-7 : 1e-7);
}

// Element counts of inputs over outputs bounds the reduction length.
double reduction_length(const std::vector<Value>& args, const Tensors& ys) {
  double in = 1, out = 1;
  for (auto& t : real_inputs(args)) in = std::max(in, double(t.numel()));
  for (auto& y : ys) out = std::max(out, double(y.numel()));
  return std::max(in / out, 1.0) * 8;
}

void expect_close(const Tensor& got, const Tensor& want, double tol, const std::string& what) {
  ASSERT_EQ(str(got.shape()), str(want.shape())) << what;
  auto a = got.to_vector(), b = want.to_vector();
  double err = 0, scale = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (a[i] == b[i]) {
      scale += std::isfinite(b[i]) ? b[i] * b[i] : 0;
      continue;
    }
    err += (a[i] - b[i]) * (a[i] - b[i]);
    scale += b[i] * b[i];
  }
  // A result that should be zero (a gradient that cancels) is compared with 1.
  double relative =
      std::sqrt(err) / std::max(std::sqrt(scale), 1e-2 * std::sqrt(double(std::max<size_t>(a.size(), 1))));
  EXPECT_LE(relative, tol) << what;
}

Value call_seeded(const OpEntry& op, const std::vector<Value>& args) {
  if (op.is_random) manual_seed(kDefaultSeed);
  return op.call(args);
}

std::vector<Value> complete(const OpEntry& op, const Sample& s) {
  std::vector<Value> v = s.args;
  for (size_t i = v.size(); i < op.args.size(); ++i) v.push_back(op.args[i].fallback);
  return v;
}

Tensors outputs(const Value& v) {
  if (auto* t = std::get_if<Tensor>(&v)) return {*t};
  if (auto* ts = std::get_if<Tensors>(&v)) return *ts;
  return {};
}

std::vector<Value> map_tensors(const std::vector<Value>& args, const std::function<Tensor(const Tensor&)>& f) {
  std::vector<Value> out = args;
  for (auto& v : out) {
    if (auto* t = std::get_if<Tensor>(&v); t && *t) *t = f(*t);
    if (auto* ts = std::get_if<Tensors>(&v))
      for (auto& t : *ts)
        if (t) t = f(t);
  }
  return out;
}

Tensor to_dtype_keeping_layout(const Tensor& t, DType dtype) { return is_real(t) ? to_dtype(t, dtype) : t; }

Tensors cotangents(const Tensors& ys) {
  Tensors cs;
  uint64_t s = 88172645463325252ull;
  for (auto& y : ys) {
    Tensor c = empty(y.shape(), kFloat64);
    for (int64_t i = 0; i < c.numel(); ++i) {
      s ^= s << 13;
      s ^= s >> 7;
      s ^= s << 17;
      c.data<double>()[i] = double(s >> 11) * 0x1p-52 - 1;
    }
    cs.push_back(c);
  }
  return cs;
}

Evaluation evaluate(const OpEntry& op, const std::vector<Value>& args, bool want_gradients) {
  Tensors leaves;
  auto with_leaves = map_tensors(args, [&](const Tensor& t) {
    if (!want_gradients || !is_real(t)) return t;
    leaves.push_back(leaf_of(t));
    return leaves.back();
  });
  Evaluation e;
  Tensors ys = outputs(call_seeded(op, with_leaves));
  for (auto& y : ys) e.all.push_back(y ? y.detach() : y);
  for (auto& y : ys)
    if (is_real(y)) e.values.push_back(to_dtype(y.detach(), kFloat64));
  if (!want_gradients || leaves.empty()) return e;
  Tensor loss = weighted_sum(ys, cotangents(ys));
  if (!loss || !loss.requires_grad()) return e;
  for (auto& g : autograd::grad({loss}, leaves, {}, {}, true))
    e.gradients.push_back(g ? to_dtype(g, kFloat64) : Tensor());
  return e;
}

void check_meta(const OpEntry& op, const OpTest& t) {
  for (auto& s : t.all) {
    if (!s->meta) continue;
    auto args = complete(op, *s);
    SCOPED_TRACE(describe(op, args));
    bool any_tensor = false;
    map_tensors(args, [&](const Tensor& x) { return any_tensor = true, x; });
    if (!any_tensor) continue;  // factories: the device is an argument
    Tensors real = outputs(call_seeded(op, args));
    Tensors meta = outputs(call_seeded(op, map_tensors(args, [](const Tensor& x) { return x.to(Device::Meta); })));
    ASSERT_EQ(real.size(), meta.size());
    for (size_t i = 0; i < real.size(); ++i) {
      EXPECT_EQ(str(real[i].shape()), str(meta[i].shape()));
      EXPECT_EQ(name(real[i].dtype()), name(meta[i].dtype()));
      EXPECT_TRUE(meta[i].device().is_meta()) << "a meta input gave a result on " << meta[i].device().str();
    }
  }
}

void check_gradients(const OpEntry& op, const OpTest& t) {
  if (!op.differentiable) return;
  for (auto& s : t.all) {
    if (!s->grad) continue;
    auto args = complete(op, *s);
    SCOPED_TRACE(describe(op, args));
    Evaluation e = evaluate(op, args, true);
    auto inputs = real_inputs(args);
    if (inputs.empty() || e.gradients.empty()) {
      int64_t elements = 0;
      for (auto& y : e.values) elements += y.numel();
      EXPECT_TRUE(inputs.empty() || elements == 0) << "the op has floating inputs but recorded no gradient";
      continue;
    }
    // Central differences of the weighted sum, each input element (or 40 of them) in turn.
    for (size_t k = 0; k < inputs.size(); ++k) {
      int64_t n = inputs[k].numel();
      if (n == 0) continue;
      std::vector<double> analytic = e.gradients[k] ? e.gradients[k].to_vector() : std::vector<double>(size_t(n), 0.0);
      for (int64_t step = std::max<int64_t>(1, n / 40), i = 0; i < n; i += step) {
        double loss[2];
        constexpr double h = 1e-6;
        for (int side = 0; side < 2; ++side) {
          size_t index = 0;
          autograd::NoGrad off;
          auto moved = map_tensors(args, [&](const Tensor& x) {
            if (!is_real(x) || index++ != k) return x;
            Tensor y = empty_like(x);
            copy_bytes(y, x);
            Tensor flat = contiguous(y);
            flat.data<double>()[i] += side ? -h : h;
            copy_bytes(y, flat);
            return y;
          });
          Tensors ys = outputs(call_seeded(op, moved));
          Tensor w = weighted_sum(ys, cotangents(ys));
          loss[side] = w ? w.item() : 0;
        }
        double numeric = (loss[0] - loss[1]) / (2 * h);
        EXPECT_NEAR(analytic[size_t(i)], numeric, 2e-6 * std::max({1.0, std::fabs(numeric), std::fabs(loss[0])}))
            << "input " << k << " element " << i;
      }
    }
  }
}

void check_second_derivatives(const OpEntry& op, const OpTest& t) {
  if (!op.differentiable || op.is_random) return;
  size_t checked = 0;
  for (auto& s : t.all) {
    if (!s->grad || checked == 2) continue;  // two samples suffice: the formula does not depend on the layout
    auto args = complete(op, *s);
    if (real_inputs(args).empty()) continue;
    ++checked;
    SCOPED_TRACE(describe(op, args));
    // g(x) = sum over inputs of <d(loss)/dx, fixed weights>; its gradient against differences of the first gradient.
    Tensors leaves;
    auto with_leaves = map_tensors(args, [&](const Tensor& x) {
      if (!is_real(x)) return x;
      leaves.push_back(leaf_of(x));
      return leaves.back();
    });
    Tensors ys = outputs(call_seeded(op, with_leaves));
    Tensor loss = weighted_sum(ys, cotangents(ys));
    if (!loss || !loss.requires_grad()) continue;
    Tensors first = autograd::grad({loss}, leaves, {}, {.create_graph = true}, true);
    Tensors weights = cotangents(leaves);
    Tensor directional;
    for (size_t i = 0; i < leaves.size(); ++i)
      if (first[i])
        directional = directional ? directional + (first[i] * weights[i]).sum() : (first[i] * weights[i]).sum();
    if (!directional) continue;
    Tensors second(leaves.size());
    if (directional.requires_grad()) second = autograd::grad({directional}, leaves, {}, {}, true);
    // Along one random direction d: <second, d> against (g(x + hd) - g(x - hd)) / 2h.
    Tensors direction = cotangents(leaves);
    double analytic = 0, side_value[2];
    for (size_t i = 0; i < leaves.size(); ++i)
      if (second[i]) analytic += (second[i] * direction[i]).sum().item();
    constexpr double h = 1e-5;
    for (int side = 0; side < 2; ++side) {
      size_t index = 0;
      auto moved =
          map_tensors(args, [&](const Tensor& x) { return is_real(x) ? x + direction[index++] * (side ? -h : h) : x; });
      Evaluation e = evaluate(op, moved, true);
      side_value[side] = 0;
      for (size_t i = 0; i < e.gradients.size(); ++i)
        if (e.gradients[i]) side_value[side] += (e.gradients[i] * weights[i]).sum().item();
    }
    double numeric = (side_value[0] - side_value[1]) / (2 * h);
    EXPECT_NEAR(analytic, numeric, 1e-4 * std::max({1.0, std::fabs(numeric), std::fabs(side_value[0])}));
  }
}

std::vector<std::string> provider_labels(const OpEntry& op) {
  std::vector<std::string> labels{""};
  for (auto* table : op.tables)
    for (int i = 0; i < table->count(Device::CPU); ++i)
      if (auto l = provider_label(table->entry(Device::CPU, i));
          std::find(labels.begin(), labels.end(), l) == labels.end())
        labels.push_back(l);
  return labels;
}

void check_providers(const OpEntry& op, const OpTest& t) {
  if (op.is_random) return;
  std::vector<std::string> labels = provider_labels(op);
  for (auto& s : t.all) {
    auto args = complete(op, *s);
    if (real_inputs(args).empty()) continue;
    for (DType dtype : {kFloat32, kBFloat16, kFloat16}) {
      if (is_reduced(dtype) && !s->low_precision) continue;
      // The exact answer for the rounded inputs.
      auto rounded = map_tensors(args, [&](const Tensor& x) { return to_dtype_keeping_layout(x, dtype); });
      auto exact_args = map_tensors(rounded, [](const Tensor& x) { return to_dtype_keeping_layout(x, kFloat64); });
      Evaluation exact = evaluate(op, exact_args, op.differentiable && s->grad);
      double tol = tolerance(dtype, reduction_length(args, exact.values));
      for (auto& label : labels) {
        if (!label.empty()) pin_provider("*", label);
        SCOPED_TRACE(describe(op, rounded) + " provider " + (label.empty() ? "default" : label));
        Evaluation e = evaluate(op, rounded, op.differentiable && s->grad);
        // fused ops may take another path where nothing is recorded
        Evaluation inference = evaluate(op, rounded, false);
        unpin_providers();
        ASSERT_EQ(inference.values.size(), exact.values.size());
        for (size_t i = 0; i < e.values.size(); ++i)
          expect_close(inference.values[i], exact.values[i], tol, "value without gradients");
        ASSERT_EQ(e.values.size(), exact.values.size());
        for (size_t i = 0; i < e.values.size(); ++i) expect_close(e.values[i], exact.values[i], tol, "value");
        for (size_t i = 0; i < e.gradients.size(); ++i) {
          ASSERT_EQ(e.gradients[i].defined(), exact.gradients[i].defined());
          if (e.gradients[i])
            expect_close(e.gradients[i], exact.gradients[i], 4 * tol, "gradient of input " + std::to_string(i));
        }
      }
    }
  }
}

void check_refusals(const OpEntry& op, const OpTest& t) {
  for (auto& r : t.refused) {
    Sample s;
    s.args = r.args;
    auto args = complete(op, s);
    SCOPED_TRACE(describe(op, args));
    try {
      call_seeded(op, args);
      ADD_FAILURE() << "was accepted; expected an error with '" << r.text << "'";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(r.text), std::string::npos) << e.what();
    }
  }
}

}  // namespace sf::test
