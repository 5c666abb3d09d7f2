// In-place writes and views on the tape. Expected numbers are torch's (2.15), worked out by hand where they are small.
#include <gtest/gtest.h>

#include "scaffolding/autograd/engine.h"
#include "scaffolding/autograd/hooks.h"
#include "scaffolding/autograd/take_over.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf::autograd {
namespace {

using Numbers = std::vector<double>;
Tensor leaf(std::initializer_list<double> v) { return tensor(v, kFloat64).requires_grad_(); }
Numbers gradient(const Tensor& t) { return t.grad() ? t.grad().to_vector() : Numbers{}; }

template <class F> std::string refusal(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}
#define EXPECT_REFUSED(text, expression) \
  EXPECT_NE(refusal([&] { expression; }).find(text), std::string::npos) << refusal([&] { expression; })

TEST(inplace, a_chain_of_writes_has_the_gradient_of_the_out_of_place_chain) {
  Tensor x = leaf({1, 2, 3}), w = leaf({4, 5, 6});
  Tensor y = x * 2.0;
  y.mul_(3).add_(w).mul_(w.detach()).div_(tensor({1, 2, 4}, kFloat64)).sub_(x);
  y.sum().backward();  // (6x + w)c / d - x
  EXPECT_EQ(gradient(x), (Numbers{23, 14, 8}));
  EXPECT_EQ(gradient(w), (Numbers{4, 2.5, 1.5}));
  Tensor z = x * 2.0;
  w.set_grad({});
  z.mul_(w);  // w's gradient needs what z was
  z.sum().backward();
  EXPECT_EQ(gradient(w), (Numbers{2, 4, 6}));
}

TEST(inplace, leaves_and_their_views_are_refused_while_recording_only) {
  Tensor x = leaf({1, 2, 3});
  EXPECT_REFUSED("leaf that requires a gradient", x.add_(1));
  EXPECT_REFUSED("view of a leaf", x[0].add_(1));
  EXPECT_REFUSED("view of a leaf", x.view({3, 1}).select(1, 0).zero_());
  {
    NoGrad off;
    x.add_(1);
    x[0].mul_(10);
  }
  EXPECT_EQ(x.to_vector(), (Numbers{20, 3, 4}));
  EXPECT_TRUE(x.requires_grad() && x.is_leaf());
}

TEST(inplace, a_write_through_a_view_reaches_its_base) {
  Tensor x = leaf({1, 2, 3}), y = x * 2.0, v = y.narrow(0, 0, 2);
  v.mul_(tensor({10, 100}, kFloat64));
  EXPECT_EQ(y.to_vector(), (Numbers{20, 400, 6}));
  (y * y).sum().backward();
  EXPECT_EQ(gradient(x), (Numbers{800, 160000, 24}));
}

TEST(inplace, a_write_to_the_base_reaches_its_views) {
  Tensor x = leaf({1, 2, 3}), y = x * 2.0, v = y[0];
  y.mul_(3);
  v.backward();
  EXPECT_EQ(gradient(x), (Numbers{6, 0, 0}));
}

TEST(inplace, a_write_through_one_view_reaches_the_others) {
  Tensor x = leaf({1, 2, 3, 4}), y = x * 1.0, a = y.narrow(0, 0, 3), b = y.narrow(0, 1, 3);
  a.mul_(2);  // y = 2 4 6 4
  b.mul_(3);  // y = 2 12 18 12
  a.sum().backward({}, true);
  EXPECT_EQ(gradient(x), (Numbers{2, 6, 6, 0}));
  b.sum().backward();
  EXPECT_EQ(gradient(x), (Numbers{2, 12, 12, 3}));
}

TEST(inplace, views_of_views_share_one_base) {
  Tensor x = leaf({1, 2, 3, 4}), y = x * 1.0, m = y.view({2, 2}), t = m.transpose(0, 1), row = t[0];
  row.mul_(5);  // elements 0 and 2
  t.sum().backward();
  EXPECT_EQ(gradient(x), (Numbers{5, 1, 5, 1}));
  EXPECT_EQ(m.to_vector(), (Numbers{5, 2, 15, 4}));
}

TEST(inplace, a_view_taken_before_its_base_joined_the_tape_joins_with_it) {
  Tensor x = leaf({1, 2, 3}), a = zeros({3}, kFloat64), v = a[1];
  EXPECT_FALSE(v.requires_grad());
  a.add_(x);
  EXPECT_TRUE(v.requires_grad());
  EXPECT_FALSE(v.is_leaf());
  (v * 7.0).backward();
  EXPECT_EQ(gradient(x), (Numbers{0, 7, 0}));
}

TEST(inplace, an_expanded_view_follows_its_base) {
  Tensor x = leaf({1, 2}), y = x * 1.0, e = y.view({2, 1}).expand({2, 3});
  y.mul_(4);
  e.sum().backward();
  EXPECT_EQ(gradient(x), (Numbers{12, 12}));
  EXPECT_REFUSED("expanded", e.mul_(2));
}

TEST(inplace, pieces_of_chunk_and_unbind_may_be_written) {
  Tensor x = leaf({1, 2, 3, 4}), y = x * 1.0;
  Tensors halves = y.chunk(2), all = y.unbind();
  halves[1].mul_(10);
  all[3].mul_(2);
  y.sum().backward();
  EXPECT_EQ(gradient(x), (Numbers{1, 1, 10, 20}));
}

TEST(inplace, copy_into_slices_passes_gradients_to_both) {
  Tensor x = leaf({1, 2, 3}), w = leaf({5}), y = x * 2.0;
  y.narrow(0, 1, 1).copy_(w);
  (y * y).sum().backward();
  EXPECT_EQ(gradient(x), (Numbers{8, 0, 24}));
  EXPECT_EQ(gradient(w), (Numbers{10}));
}

TEST(inplace, assigning_into_a_constant_puts_it_on_the_tape) {
  Tensor w = leaf({5, 6}), buffer = zeros({2, 2}, kFloat64);
  buffer[0].copy_(w);
  buffer[1].copy_(w * 3.0);
  buffer.sum().backward();
  EXPECT_EQ(gradient(w), (Numbers{4, 4}));
}

TEST(inplace, copying_a_leaf_does_not_lose_its_gradient) {
  Tensor w = leaf({5, 6}), a = zeros({2}, kFloat64);
  a.copy_(w);
  EXPECT_TRUE(a.requires_grad());
  a.sum().backward();
  EXPECT_EQ(gradient(w), (Numbers{1, 1}));
}

TEST(inplace, a_copy_has_hooks_of_its_own) {
  Tensor w = leaf({5, 6}), y = w * 2.0, a = zeros({2}, kFloat64);
  a.copy_(y);
  int calls = 0;
  register_hook(a, [&](const Tensor& g) {
    ++calls;
    return g * 10.0;
  });
  (a.sum() + y.sum()).backward();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(gradient(w), (Numbers{22, 22})) << "the hook sees the gradient of the copy alone";
}

TEST(inplace, zeroing_gives_a_gradient_of_zero) {
  Tensor x = leaf({1, 2}), y = x * 2.0;
  y.zero_();
  y.sum().backward();
  EXPECT_EQ(gradient(x), (Numbers{0, 0}));
  Tensor z = x * 2.0;
  z[0].zero_();
  z.sum().backward();
  EXPECT_EQ(gradient(x), (Numbers{0, 2}));
}

TEST(inplace, writing_a_saved_tensor_is_an_error_at_backward) {
  Tensor x = leaf({1, 2}), w = leaf({3, 4}), y = x * w, z = y * w;
  y.add_(1);
  EXPECT_REFUSED("modified in place", z.sum().backward());
  Tensor e = exp(x);
  e.add_(1);
  EXPECT_REFUSED("modified in place", e.sum().backward());
  Tensor p = x * 1.0, q = p * w;
  p.detach().add_(1);  // detach shares storage and version
  EXPECT_REFUSED("modified in place", q.sum().backward());
  Tensor a = x * 1.0, b = a + w;  // add saves nothing
  a.mul_(2);
  EXPECT_NO_THROW(b.sum().backward());
}

TEST(inplace, detach_shares_bytes_and_version_but_not_the_tape) {
  Tensor x = leaf({1, 2}), d = x.detach();
  EXPECT_EQ(d.data_ptr(), x.data_ptr());
  uint32_t version = x.version();
  d.add_(1);
  EXPECT_EQ(x.version(), version + 1);
  EXPECT_EQ(x.to_vector(), (Numbers{2, 3}));
  EXPECT_FALSE(d.requires_grad());
}

TEST(inplace, a_view_made_under_no_grad_is_refused_when_the_write_is_recorded) {
  Tensor w = leaf({1, 2}), a = zeros({3}, kFloat64), v;
  {
    NoGrad off;
    v = a.narrow(0, 0, 2);
  }
  EXPECT_REFUSED("view made under no_grad", v.mul_(w));
  EXPECT_NO_THROW(v.mul_(2)) << "nothing is recorded here";
}

TEST(inplace, retained_gradients_follow_the_tensor_hooks_stay_with_the_old_value) {
  Tensor x = leaf({1, 1}), y = x * 2.0;
  Numbers seen;
  y.retain_grad();
  register_hook(y, [&](const Tensor& g) {
    seen = g.to_vector();
    return Tensor();
  });
  y.mul_(3);
  (y * y).sum().backward();
  EXPECT_EQ(gradient(y), (Numbers{12, 12}));
  EXPECT_EQ(seen, (Numbers{36, 36}));
  EXPECT_EQ(gradient(x), (Numbers{72, 72}));
}

TEST(inplace, overlapping_source_and_destination_read_the_old_values) {
  Tensor x = arange(0, 6, 1, kFloat64);
  x.narrow(0, 1, 5).add_(x.narrow(0, 0, 5));
  EXPECT_EQ(x.to_vector(), (Numbers{0, 1, 3, 5, 7, 9}));
  x.narrow(0, 1, 5).copy_(x.narrow(0, 0, 5));
  EXPECT_EQ(x.to_vector(), (Numbers{0, 0, 1, 3, 5, 7}));
  Tensor m = arange(0, 9, 1, kFloat64).view({3, 3});
  m.copy_(m.t());
  EXPECT_EQ(m.to_vector(), (Numbers{0, 3, 6, 1, 4, 7, 2, 5, 8}));
}

TEST(inplace, second_derivatives_pass_through_writes) {
  Tensor x = leaf({2, 3}), y = x * x, v = y[0];
  v.copy_(v.clone() * x[1]);  // y = x0^2 x1, x1^2
  Tensor g = grad({y.sum()}, {x}, {}, {.create_graph = true})[0];
  EXPECT_EQ(g.to_vector(), (Numbers{12, 10}));
  Tensor h = grad({g.sum()}, {x})[0];  // d/dx0 (2 x0 x1 + x0^2 + 2 x1), d/dx1
  EXPECT_EQ(h.to_vector(), (Numbers{10, 6}));
}

TEST(inplace, an_op_whose_gradient_reads_what_it_overwrites_has_its_gradient) {
  const std::initializer_list<double> values = {-1.5, -0.25, 0.5, 2};
  Tensor w = tensor({1, -2, 3, 4}, kFloat64);
  using Write = std::function<Tensor(Tensor&)>;
  auto gradient_of = [&](const Write& write) {
    Tensor x = leaf(values), h = x * 2, y = write(h);
    (y * w).sum().backward();
    return gradient(x);
  };
  using F = std::function<Tensor(const Tensor&)>;
  for (const F& f : {F([](const Tensor& x) { return silu(x); }), F([](const Tensor& x) { return exp(x); }),
                     F([&](const Tensor& x) { return x * w; }), F([](const Tensor& x) { return x * x; })}) {
    Numbers want = gradient_of([&](Tensor& h) { return f(h); });
    EXPECT_EQ(gradient_of([&](Tensor& h) { return overwrite("f_", h, f); }), want);
    EXPECT_EQ(gradient_of([&](Tensor& h) {
                Tensor other = h.detach();
                return overwrite("f_", h, f);
              }),
              want);
    EXPECT_EQ(gradient_of([&](Tensor& h) {
                Tensor view = h.view({4});
                overwrite("f_", view, f);
                return h;
              }),
              want);
  }
}

TEST(inplace, a_factor_that_trains_gets_the_values_before_the_write) {
  Tensor w = leaf({2, 2, 2}), x = tensor({0, 1, 2}, kFloat64);
  x.mul_(w);
  x.sum().backward();
  EXPECT_EQ(gradient(w), (Numbers{0, 1, 2}));
  Tensor h = w * 3;
  h.mul_(h);
  w.set_grad({});
  h.sum().backward();
  EXPECT_EQ(gradient(w), (Numbers{36, 36, 36}));
}

TEST(inplace, self_products_do_not_keep_themselves_alive) {
  size_t before;
  Storage* watched;
  Ref<Storage> storage;
  {
    Tensor x = leaf({1, 2}), y = x * 1.0;
    y.mul_(y);
    Tensor v = y[0];
    y.add_((v * v).expand({2}));
    storage = y.storage();
    watched = storage.get();
    before = watched->refs.load();
  }
  EXPECT_GT(before, 1u);
  EXPECT_EQ(watched->refs.load(), 1u) << "the tape still holds the tensor";
}

TEST(inplace, a_result_of_a_higher_kind_does_not_fit) {
  Tensor i = zeros({2}, kInt64), b = zeros({2}, kBool);
  EXPECT_REFUSED("cannot be stored", i.add_(0.5));
  EXPECT_REFUSED("cannot be stored", b.add_(2));
  EXPECT_REFUSED("does not fit", zeros({1}).add_(ones({3})));
  Tensor h = zeros({2}, kFloat16);
  h.add_(ones({2}, kFloat32));
  EXPECT_EQ(h.dtype(), kFloat16);
}

TEST(inference_mode, its_tensors_stay_off_the_tape) {
  Tensor w = leaf({1, 2}), t, view;
  {
    InferenceMode on;
    t = ones({2}, kFloat64);
    t.add_(1);
    view = w.view({2, 1});
    EXPECT_FALSE((w * 2.0).requires_grad());
    EXPECT_TRUE((w * 2.0).impl()->inference);
  }
  EXPECT_FALSE(view.impl()->inference) << "a view of an ordinary tensor is an ordinary tensor";
  EXPECT_REFUSED("inference_mode", t * w);
  EXPECT_REFUSED("inference_mode", t.add_(1));
  EXPECT_REFUSED("inference_mode", t.requires_grad_());
  EXPECT_NO_THROW(t * 2.0);
  EXPECT_TRUE((t.clone() * w).requires_grad());
}

}  // namespace
}  // namespace sf::autograd
