// The backward pass: accumulation, freeing, hooks, re-entrance and threads.
#include "scaffolding/autograd/engine.h"

#include <gtest/gtest.h>

#include <thread>

#include "scaffolding/autograd/hooks.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf::autograd {
namespace {

using Numbers = std::vector<double>;
Tensor leaf(std::initializer_list<double> v, DType t = kFloat64) { return tensor(v, t).requires_grad_(); }
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

TEST(backward, accumulates_into_leaves) {
  Tensor x = leaf({2, 3});
  (x * x + x).sum().backward();
  EXPECT_EQ(gradient(x), (Numbers{5, 7}));
  Tensor first = x.grad();
  (x * x).sum().backward();
  EXPECT_EQ(gradient(x), (Numbers{9, 13}));
  EXPECT_TRUE(first.is_same(x.grad())) << "the gradient's memory is kept";
  x.set_grad({});
  EXPECT_FALSE(x.grad());
}

TEST(backward, the_gradient_has_memory_of_its_own) {
  Tensor x = leaf({1, 2}), y = leaf({3, 4}), seed = ones({2}, kFloat64);
  (x + y).backward(seed);
  EXPECT_NE(x.grad().data_ptr(), y.grad().data_ptr());
  EXPECT_NE(x.grad().data_ptr(), seed.data_ptr());
  x.grad().add_(1);
  EXPECT_EQ(gradient(y), (Numbers{1, 1}));
  Tensor z = leaf({1, 2, 3});
  z.sum().backward();  // the gradient of sum is an expanded scalar
  EXPECT_TRUE(z.grad().is_contiguous());
  z.sum().backward();
  EXPECT_EQ(gradient(z), (Numbers{2, 2, 2}));
}

TEST(backward, the_gradient_has_the_leafs_layout) {
  Tensor w = to_channels_last(ones({2, 3, 4, 4})).requires_grad_();
  (w * ones({2, 3, 4, 4})).sum().backward();
  EXPECT_TRUE(w.grad().strides() == w.strides());
}

// A sum goes into the first gradient's memory, dense in either layout.
TEST(backward, gradients_of_two_layouts_add_up) {
  for (bool first : {false, true}) {
    Tensor x = ones({2, 3, 4, 4}).requires_grad_(), a = x * 2, b = to_channels_last(arange(0, 96).view({2, 3, 4, 4}));
    Tensor y = first ? (a * b).sum() + (a * 3).sum() : (a * 3).sum() + (a * b).sum();
    y.backward();
    for (int64_t i = 0; i < 96; ++i) ASSERT_EQ(x.grad().to_vector()[size_t(i)], 2 * (double(i) + 3));
  }
}

TEST(backward, a_second_pass_needs_retain_graph) {
  Tensor x = leaf({2}), y = (x * x).sum();
  y.backward({}, true);
  y.backward();
  EXPECT_EQ(gradient(x), Numbers{8});
  EXPECT_REFUSED("second time", y.backward());
}

TEST(backward, bad_calls_are_refused) {
  Tensor x = leaf({1, 2});
  EXPECT_REFUSED("gradient must be given", (x * 2.0).backward());
  EXPECT_REFUSED("must have the output's shape", (x * 2.0).backward(ones({3})));
  EXPECT_REFUSED("does not require a gradient", ones({1}).backward());
  EXPECT_REFUSED("must be a tensor", Tensor().backward());
  EXPECT_REFUSED("no outputs", backward({}));
  EXPECT_REFUSED("2 gradients for 1", backward({x.sum()}, {ones({}), ones({})}));
  EXPECT_REFUSED("not used", grad({x.sum()}, {leaf({1})}));
  EXPECT_REFUSED("does not require a gradient", grad({x.sum()}, {ones({1})}));
  EXPECT_FALSE(grad({x.sum()}, {leaf({1})}, {}, {}, true)[0]);
}

TEST(backward, several_roots_share_one_pass) {
  Tensor x = leaf({1, 2}), h = x * x, a = h.sum(), b = h * 3.0;
  backward({a, b}, {{}, tensor({1, 10}, kFloat64)});
  EXPECT_EQ(gradient(x), (Numbers{8, 124}));
}

TEST(backward, inputs_limit_where_gradients_go) {
  Tensor x = leaf({1, 2}), w = leaf({3, 4}), h = x * w;
  backward({(h * h).sum()}, {}, {.retain_graph = true}, {w, h});
  EXPECT_FALSE(x.grad());
  EXPECT_EQ(gradient(w), (Numbers{6, 32}));
  EXPECT_EQ(gradient(h), (Numbers{6, 16}));
}

TEST(grad, gives_gradients_of_leaves_and_intermediates_and_leaves_grad_alone) {
  Tensor x = leaf({1, 2}), y = x * 3.0, z = (y * y).sum();
  Tensors g = grad({z}, {x, y, x});
  EXPECT_EQ(g[0].to_vector(), (Numbers{18, 36}));
  EXPECT_EQ(g[1].to_vector(), (Numbers{6, 12}));
  EXPECT_EQ(g[2].to_vector(), (Numbers{18, 36})) << "an input may be listed twice";
  EXPECT_FALSE(x.grad());
}

TEST(grad, third_derivatives) {
  Tensor x = leaf({2}), y = x * x * x * x;
  Tensor a = grad({y.sum()}, {x}, {}, {.create_graph = true})[0];
  Tensor b = grad({a.sum()}, {x}, {}, {.create_graph = true})[0];
  Tensor c = grad({b.sum()}, {x})[0];
  EXPECT_EQ(a.item(), 32);
  EXPECT_EQ(b.item(), 48);
  EXPECT_EQ(c.item(), 48);
}

TEST(backward, gradients_have_the_dtype_of_what_they_belong_to) {
  Tensor h = leaf({1, 2}, kFloat16), f = leaf({3, 4}, kFloat32), d = leaf({5, 6}, kFloat64);
  (h * f * d).sum().backward();
  EXPECT_EQ(h.grad().dtype(), kFloat16);
  EXPECT_EQ(f.grad().dtype(), kFloat32);
  EXPECT_EQ(d.grad().dtype(), kFloat64);
  Tensor m = leaf({1, 2}, kFloat32);
  (to_dtype(to_dtype(m, kBFloat16) * 2.0, kFloat32) * m).sum().backward();
  EXPECT_EQ(m.grad().dtype(), kFloat32);
  EXPECT_EQ(gradient(m), (Numbers{4, 8}));
}

TEST(backward, saved_tensors_are_freed_as_it_goes) {
  Tensor x = leaf({1, 2}), y = x * 2.0;
  Ref<Storage> watched = y.storage();
  Tensor z = (y * y).sum();
  y = {};
  EXPECT_GT(watched->refs.load(), 1u);
  z.backward();
  EXPECT_EQ(watched->refs.load(), 1u) << "z is alive, but what its graph saved is gone";
}

TEST(backward, a_chain_of_a_million_nodes) {
  Tensor x = leaf({1});
  {
    Tensor y = x * 1.0;
    for (int i = 0; i < 1000000; ++i) y = y + x;
    y.backward();
    EXPECT_EQ(gradient(x), Numbers{1000001});
  }
  x.set_grad({});
  {  // never walked: freed through the nodes alone
    Tensor y = x * 1.0;
    for (int i = 0; i < 1000000; ++i) y = y * x;
  }
  {  // through saved tensors that hold nodes
    Tensor y = x * 1.0;
    for (int i = 0; i < 200000; ++i) y = y * y;
    Tensor view = y.view({1, 1});
    for (int i = 0; i < 100000; ++i) view = view.view({1, 1});
  }
}

TEST(hooks, edit_replace_and_are_removed) {
  Tensor x = leaf({1, 2}), y = x * 2.0;
  Numbers seen;
  HookHandle on_y = register_hook(y, [&](const Tensor& g) {
    seen = g.to_vector();
    return g * 10.0;
  });
  HookHandle on_x = register_hook(x, [](const Tensor& g) { return g + 1.0; });
  y.sum().backward({}, true);
  EXPECT_EQ(seen, (Numbers{1, 1}));
  EXPECT_EQ(gradient(x), (Numbers{21, 21}));
  on_y.remove();
  on_y.remove();
  y.sum().backward({}, true);
  EXPECT_EQ(gradient(x), (Numbers{24, 24}));
  on_x.remove();
  y.sum().backward();
  EXPECT_EQ(gradient(x), (Numbers{26, 26}));
}

TEST(hooks, run_in_order_before_the_gradient_is_retained) {
  Tensor x = leaf({1, 2}), y = x * 2.0;
  y.retain_grad();
  register_hook(y, [](const Tensor& g) { return g * 10.0; });
  register_hook(y, [](const Tensor& g) { return g + 1.0; });
  y.sum().backward();
  EXPECT_EQ(gradient(y), (Numbers{11, 11}));
  EXPECT_EQ(gradient(x), (Numbers{22, 22}));
}

TEST(hooks, see_the_whole_gradient_once_and_act_on_grad_too) {
  Tensor x = leaf({1, 2}), y = x * 2.0;
  int calls = 0;
  register_hook(y, [&](const Tensor& g) {
    ++calls;
    EXPECT_EQ(g.to_vector(), (Numbers{3, 3}));
    return g * 2.0;
  });
  EXPECT_EQ(grad({(y + y * 2.0).sum()}, {x})[0].to_vector(), (Numbers{12, 12}));
  EXPECT_EQ(calls, 1);
}

TEST(hooks, on_one_output_of_several) {
  Tensor x = leaf({1, 2, 3, 4});
  Tensors halves = x.chunk(2);
  register_hook(halves[1], [](const Tensor& g) { return g * 5.0; });
  (halves[0].sum() + halves[1].sum()).backward();
  EXPECT_EQ(gradient(x), (Numbers{1, 1, 5, 5}));
}

TEST(hooks, may_add_and_remove_hooks_and_outlive_tensors) {
  Tensor x = leaf({1});
  HookHandle second, orphan;
  register_hook(x, [&](const Tensor&) {
    second.remove();
    register_hook(x, [](const Tensor& g) { return g * 100.0; });
    return Tensor();
  });
  second = register_hook(x, [](const Tensor& g) { return g * 3.0; });
  (x * 1.0).sum().backward();
  EXPECT_EQ(gradient(x), Numbers{3}) << "the list of this pass is fixed";
  {
    Tensor y = leaf({1}) * 2.0;
    orphan = register_hook(y, [](const Tensor&) { return Tensor(); });
  }
  EXPECT_NO_THROW(orphan.remove());
}

TEST(hooks, wrong_results_and_places_are_refused) {
  Tensor x = leaf({1, 2}), y = x * 2.0;
  register_hook(y, [](const Tensor&) { return ones({3}); });
  EXPECT_REFUSED("a hook returned a gradient of shape [3]", y.sum().backward());
  EXPECT_REFUSED("does not require a gradient", register_hook(ones({1}), nullptr));
  EXPECT_REFUSED("must be a tensor", register_hook({}, nullptr));
  EXPECT_REFUSED("needs a leaf", register_post_accumulate_grad_hook(y, nullptr));
  EXPECT_REFUSED("does not require a gradient", retain_grads({ones({1})}));
}

TEST(hooks, after_accumulation_see_and_clear_grad) {
  Tensor x = leaf({1, 2});
  Numbers seen;
  auto handle = register_post_accumulate_grad_hook(x, [&](const Tensor& p) {  // the optimizer-in-backward pattern
    seen = p.grad().to_vector();
    p.set_grad({});
  });
  (x * 3.0).sum().backward();
  EXPECT_EQ(seen, (Numbers{3, 3}));
  EXPECT_FALSE(x.grad());
  handle.remove();
  (x * 3.0).sum().backward();
  EXPECT_EQ(gradient(x), (Numbers{3, 3}));
}

TEST(retain_grad, keeps_the_gradients_of_chosen_tensors) {
  Tensor x = leaf({1, 2}), a = x * 2.0, b = a * 3.0, c = b.sum();
  retain_grads({a, c});
  c.backward();
  EXPECT_EQ(gradient(a), (Numbers{3, 3}));
  EXPECT_EQ(gradient(c), Numbers{1});
  EXPECT_FALSE(b.grad());
}

TEST(retain_grad, does_not_keep_the_graph_alive) {
  Tensor x = leaf({1, 2});
  Ref<Storage> watched;
  {
    Tensor a = x * 2.0, b = a * a;
    a.retain_grad();
    watched = a.storage();
    b.sum().backward();
  }
  EXPECT_EQ(watched->refs.load(), 1u);
}

TEST(backward, may_be_called_from_a_hook) {
  Tensor x = leaf({1, 2}), w = leaf({5, 5}), y = x * 2.0;
  register_hook(y, [&](const Tensor& g) {
    EnableGrad on;
    (w * g).sum().backward();
    return g;
  });
  (y * y).sum().backward();
  EXPECT_EQ(gradient(w), (Numbers{4, 8}));
  EXPECT_EQ(gradient(x), (Numbers{8, 16}));
}

TEST(backward, threads_walk_graphs_of_their_own_into_shared_leaves) {
  Tensor x = leaf({1, 2, 3});
  auto work = [&] {
    for (int i = 0; i < 300; ++i) (x * x).sum().backward();
  };
  std::thread a(work), b(work);
  work();
  a.join();
  b.join();
  EXPECT_EQ(gradient(x), (Numbers{1800, 3600, 5400}));
}

TEST(saved, pack_hooks_replace_what_is_kept) {
  Tensor x = leaf({1, 2}), w = leaf({3, 4}), y, a = x * 1.0, b = w * 1.0;
  int packed = 0, unpacked = 0;
  {
    SavedTensorHooks hooks([&](const Tensor& t) {
      ++packed;
      Tensor copy = t.detach().to(kFloat32);
      return std::function<Tensor()>([&unpacked, copy] {
        ++unpacked;
        return copy.to(kFloat64);
      });
    });
    y = (a * b * w).sum();
  }
  y.backward();
  EXPECT_EQ(packed, 3) << "all but the leaf w";
  EXPECT_EQ(unpacked, 3);
  EXPECT_EQ(gradient(x), (Numbers{9, 16}));
  EXPECT_EQ(gradient(w), (Numbers{6, 16}));
}

}  // namespace
}  // namespace sf::autograd
