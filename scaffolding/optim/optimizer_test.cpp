#include <cmath>

#include "scaffolding/autograd/engine.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/optim/optim.h"

namespace sf::test {

using optim::StateDict;

static Tensor parameter(std::initializer_list<double> values) {
  Tensor p = tensor(values, kFloat32);
  p.requires_grad_();
  return p;
}
static void set_grad(const Tensor& p, std::initializer_list<double> values) { p.set_grad(tensor(values, p.dtype())); }
static std::string message(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(optim, sgd_with_momentum_follows_the_formula) {
  Tensor p = parameter({1, -2});
  optim::SGD opt({p}, {.lr = 0.1, .momentum = 0.9, .nesterov = true});
  double x = 1, buffer = 0;
  for (int t = 0; t < 4; ++t) {
    double g = 0.5 + t;
    set_grad(p, {g, -1});
    opt.step();
    buffer = t == 0 ? g : 0.9 * buffer + g;
    x -= 0.1 * (g + 0.9 * buffer);
  }
  EXPECT_NEAR(p.to_vector()[0], x, 1e-6);
}

TEST(optim, groups_have_options_and_state_of_their_own) {
  Tensor a = parameter({1}), b = parameter({1}), c = parameter({1});
  optim::AdamW opt({{{a, b}, {.lr = 0.1, .weight_decay = 0}}, {{c}, {.lr = 0.01, .weight_decay = 0}}});
  set_grad(a, {3});
  set_grad(c, {3});
  opt.step();
  EXPECT_NEAR(a.item(), 0.9, 1e-6);
  EXPECT_EQ(b.item(), 1);  // no gradient
  EXPECT_NEAR(c.item(), 0.99, 1e-6);
  EXPECT_EQ(opt.state_dict().state.size(), 2u);
  opt.zero_grad();
  EXPECT_FALSE(a.grad());
  opt.set_lr(0.5, 1);
  EXPECT_EQ(opt.lr(0), 0.1);
  EXPECT_EQ(opt.options(1).lr, 0.5);
  opt.set_option(0, "betas", Floats{0.5, 0.6});
  EXPECT_EQ(opt.options(0).betas[1], 0.6);
}

TEST(optim, a_closure_is_recorded_and_its_loss_returned) {
  Tensor p = parameter({3});
  optim::SGD opt({p}, {.lr = 0.1});
  autograd::NoGrad off;
  Tensor loss = opt.step([&] {
    opt.zero_grad();
    Tensor l = (p * p).sum();
    l.backward();
    return l;
  });
  EXPECT_EQ(loss.item(), 9);
  EXPECT_NEAR(p.item(), 2.4, 1e-6);
}

TEST(optim, state_dict_resumes_every_rule) {
  auto run = [](auto make, bool save) {
    manual_seed(4);
    Tensor p = randn({70, 80}), q = randn({5});
    p.requires_grad_();
    q.requires_grad_();
    auto opt = make(Tensors{p, q});
    for (int t = 0; t < 6; ++t) {
      if (save && t == 3) {
        StateDict saved = opt->state_dict();
        for (auto& [id, state] : saved.state)
          for (auto& [name, tensor] : state) tensor = tensor.clone();
        opt = make(Tensors{p, q});
        opt->set_lr(77);
        opt->load_state_dict(saved);
      }
      p.set_grad(randn({70, 80}));
      q.set_grad(randn({5}));
      opt->step();
    }
    auto v = p.to_vector(), w = q.to_vector();
    v.insert(v.end(), w.begin(), w.end());
    return v;
  };
  auto check = [&](auto make) { EXPECT_EQ(run(make, false), run(make, true)); };
  check([](Tensors p) {
    return std::make_unique<optim::AdamW>(std::move(p), optim::AdamWOptions{.lr = 0.1, .amsgrad = true});
  });
  check([](Tensors p) {
    return std::make_unique<optim::Adam>(std::move(p), optim::AdamOptions{.lr = 0.1, .weight_decay = 0.1});
  });
  check([](Tensors p) { return std::make_unique<optim::AdamW8bit>(std::move(p), optim::AdamW8bitOptions{.lr = 0.1}); });
  check([](Tensors p) { return std::make_unique<optim::Adafactor>(std::move(p), optim::AdafactorOptions{.lr = 0.1}); });
  check([](Tensors p) {
    return std::make_unique<optim::SGD>(std::move(p), optim::SGDOptions{.lr = 0.1, .momentum = 0.5});
  });
  check([](Tensors p) {
    return std::make_unique<optim::RMSprop>(std::move(p), optim::RMSpropOptions{.momentum = 0.5, .centered = true});
  });
  check([](Tensors p) { return std::make_unique<optim::Adagrad>(std::move(p), optim::AdagradOptions{.lr_decay = 1}); });
  check([](Tensors p) { return std::make_unique<optim::Adamax>(std::move(p)); });
  check([](Tensors p) { return std::make_unique<optim::NAdam>(std::move(p)); });
  check([](Tensors p) { return std::make_unique<optim::RAdam>(std::move(p)); });
  check([](Tensors p) { return std::make_unique<optim::Lion>(std::move(p)); });
  check([](Tensors p) { return std::make_unique<optim::Adadelta>(std::move(p)); });
  check([](Tensors p) { return std::make_unique<optim::ASGD>(std::move(p), optim::ASGDOptions{.t0 = 1}); });
  check([](Tensors p) { return std::make_unique<optim::Rprop>(std::move(p)); });
}

TEST(optim, refusals_say_what_came) {
  Tensor p = parameter({1}), q = parameter({1});
  EXPECT_EQ(message([&] { optim::AdamW({p}, {.lr = -1}); }), "Invalid learning rate: -1.0");
  EXPECT_EQ(message([&] { optim::Adam({p}, {.betas = {0.9, 1}}); }), "Invalid beta parameter at index 1: 1.0");
  EXPECT_EQ(message([&] { optim::SGD({p}, {.nesterov = true}); }),
            "Nesterov momentum requires a momentum and zero dampening");
  EXPECT_EQ(message([&] { optim::SGD(Tensors{}); }), "optimizer got an empty parameter list");
  EXPECT_EQ(message([&] { optim::SGD({p * p}); }), "can't optimize a non-leaf Tensor");
  EXPECT_NE(message([&] {
              optim::SGD({{{p}, {}}, {{p}, {}}});
            }).find("more than one parameter group"),
            std::string::npos);
  optim::AdamW opt({p});
  EXPECT_NE(message([&] { opt.option(0, "speed"); }).find("has no option 'speed'"), std::string::npos);
  EXPECT_EQ(message([&] { opt.set_lr(-3); }), "Invalid learning rate: -3.0");
  EXPECT_EQ(opt.lr(), 1e-3);
  StateDict two = optim::AdamW({p, q}).state_dict();
  EXPECT_NE(message([&] { opt.load_state_dict(two); }).find("doesn't match the size of optimizer's group"),
            std::string::npos);
  StateDict odd = opt.state_dict();
  odd.state[0]["speed"] = p;
  EXPECT_NE(message([&] { opt.load_state_dict(odd); }).find("has no 'speed'"), std::string::npos);
  p.set_grad(tensor({1}, kFloat32));
  StateDict wide = opt.state_dict();
  wide.state[0]["exp_avg"] = zeros({3});
  EXPECT_NE(message([&] { opt.load_state_dict(wide); }).find("exp_avg must have shape"), std::string::npos);
}

TEST(optim, dense_says_whether_memory_has_holes) {
  Tensor x = randn({2, 3, 4, 5});
  EXPECT_TRUE(optim::is_dense(x));
  EXPECT_TRUE(optim::is_dense(x.permute({3, 1, 0, 2})));
  EXPECT_TRUE(optim::is_dense(x.contiguous(MemoryFormat::ChannelsLast)));
  EXPECT_FALSE(optim::is_dense(x.slice(3, 0, 4)));
  EXPECT_FALSE(optim::is_dense(x.select(3, 0).expand({2, 3, 4})));
  EXPECT_FALSE(optim::is_dense(randn({1, 3}).expand({4, 3})));
  EXPECT_TRUE(optim::is_dense(zeros({0, 3}).transpose(0, 1)));
}

// Sizes around vector and block widths, 16-bit types, layouts without and with holes:
// the same steps as on plain memory.
TEST(optim, rules_do_not_care_about_sizes_and_layouts) {
  auto run = [](auto make, const Tensor& data, const Tensor& grad) {
    Tensor p = data.detach();
    p.requires_grad_();
    auto opt = make(Tensors{p});
    for (int t = 0; t < 3; ++t) {
      p.set_grad(grad.clone());
      opt->step();
    }
    return p.detach().to(kFloat32).to_vector();
  };
  auto check = [&](auto make) {
    manual_seed(8);
    for (DType t : {kFloat32, kBFloat16, kFloat16, kFloat64})
      for (Shape size : {Shape{1}, {15}, {17}, {3, 255}, {1, 257}, {9, 7, 13, 2}, {4, 3, 10, 31}}) {
        Tensor data = randn(size).to(t), grad = randn(size).to(t);
        auto want = run(make, data.clone(), grad);
        if (size.size() == 4) {
          EXPECT_EQ(want, run(make, data.contiguous(MemoryFormat::ChannelsLast).clone(), grad));
        }
        Shape wide = size;
        wide.back() += 3;
        Tensor holes = zeros(wide, t).narrow(-1, 1, size.back());
        holes.copy_(data);
        EXPECT_EQ(want, run(make, holes, grad)) << str(size);
      }
  };
  check([](Tensors p) {
    return std::make_unique<optim::AdamW>(std::move(p),
                                          optim::AdamWOptions{.lr = 0.1, .amsgrad = true, .master_weights = true});
  });
  check([](Tensors p) {
    return std::make_unique<optim::SGD>(std::move(p),
                                        optim::SGDOptions{.lr = 0.1, .momentum = 0.5, .master_weights = true});
  });
}

TEST(optim, eight_bit_blocks_of_every_length) {
  for (int64_t n : {1, 15, 16, 255, 256, 257, 511, 513, 5000})
    for (DType t : {kFloat32, kBFloat16, kFloat16}) {
      Tensor p = zeros({n}, t), q = zeros({n});
      p.requires_grad_();
      q.requires_grad_();
      optim::AdamW8bit small({p}, {.lr = 0.1, .min_8bit_size = 0, .master_weights = true});
      optim::AdamW full({q}, {.lr = 0.1});
      for (int step = 0; step < 4; ++step) {
        Tensor g = randn({n});
        p.set_grad(g.to(t));
        q.set_grad(g);
        small.step();
        full.step();
      }
      auto a = p.detach().to(kFloat32).to_vector(), b = q.detach().to_vector();
      double worst = 0;
      for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
      EXPECT_LT(worst, 0.1) << n;  // of steps of 0.1 each
      EXPECT_EQ(small.state_dict().state[0]["absmax1"].numel(), (n + 255) / 256);
    }
}

TEST(optim, lerp_and_unscale_take_views_and_mixed_types) {
  Tensor average = zeros({5, 7}), value = ones({7, 5}, kBFloat16).transpose(0, 1), wide = zeros({4, 9}, kFloat64);
  Tensor holes = wide.narrow(1, 2, 3);
  optim::lerp_({average, holes}, {value, ones({4, 3})}, 0.25);
  EXPECT_EQ(average.sum().item(), 35 * 0.25);
  EXPECT_EQ(wide.sum().item(), 12 * 0.25);
  Tensor found = zeros({}, kFloat32);
  optim::unscale_({average, holes}, 4, found);
  EXPECT_EQ(average.sum().item() + wide.sum().item(), 47);
  EXPECT_EQ(found.item(), 0);
  holes.select(0, 3).fill_(NAN);
  optim::unscale_({average, holes}, 1, found);
  EXPECT_EQ(found.item(), 1);
  EXPECT_THROW(optim::lerp_({average}, {ones({2})}, 0.5), ValueError);
}

TEST(optim, averages_follow_and_come_back) {
  Tensor p = parameter({2, 4});
  optim::EMAModel ema({p}, {.decay = 0.5});
  double want = 2;
  for (int t = 1; t <= 4; ++t) {
    autograd::NoGrad off;
    p.mul_(2);
    ema.step({p});
    double decay = t == 1 ? 0 : std::min(0.5, double(t) / (9 + t));
    want = decay * want + (1 - decay) * p.to_vector()[0];
    EXPECT_NEAR(ema.cur_decay_value(), decay, 1e-12);
  }
  EXPECT_NEAR(ema.shadow_params()[0].to_vector()[0], want, 1e-4);
  ema.store({p});
  ema.copy_to({p});
  EXPECT_NEAR(p.to_vector()[0], want, 1e-4);
  ema.restore({p});
  EXPECT_EQ(p.to_vector()[0], 32);
  EXPECT_NE(message([&] { ema.restore({p}); }).find("no `store()`ed weights"), std::string::npos);
  optim::EMAModel other({p});
  other.load(ema.options(), ema.optimization_step(), ema.shadow_params());
  EXPECT_EQ(other.optimization_step(), 4);
  EXPECT_NE(message([&] { other.step({p, p}); }).find("made for 1 parameters, got 2"), std::string::npos);
}

TEST(optim, grad_scaler_skips_overflows_and_grows) {
  Tensor p = parameter({1});
  optim::SGD opt({p}, {.lr = 0.25});
  optim::GradScaler scaler({.init_scale = 8, .growth_interval = 2});
  auto step = [&](double factor) {
    opt.zero_grad();
    scaler.scale((p * wrapped(factor)).sum()).backward();
    bool stepped = scaler.step(opt);
    scaler.update();
    return stepped;
  };
  EXPECT_TRUE(step(1));
  EXPECT_EQ(p.item(), 0.75);
  EXPECT_FALSE(step(INFINITY));
  EXPECT_EQ(p.item(), 0.75);
  EXPECT_EQ(scaler.get_scale(), 4);
  EXPECT_TRUE(step(1));
  EXPECT_TRUE(step(1));
  EXPECT_EQ(scaler.get_scale(), 8);
  EXPECT_EQ(scaler.growth_tracker(), 0);
  EXPECT_NE(message([&] { scaler.update(); }).find("No inf checks"), std::string::npos);
  optim::GradScaler off({.enabled = false});
  EXPECT_EQ(off.get_scale(), 1);
  EXPECT_TRUE(off.step(opt));
}

}  // namespace sf::test
