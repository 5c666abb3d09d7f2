// Steps of SGD, averages of weights and unscaling on a CUDA device (or the emulator) against the CPU: more tensors than
// a launch takes, one longer than a block's share, every dtype.
#include <gtest/gtest.h>

#include <cmath>

#include "scaffolding/autograd/set_data.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/ops/cat/cat.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/optim/ema.h"
#include "scaffolding/optim/grad_scaler.h"
#include "scaffolding/optim/optim.h"

namespace sf {
namespace {

class CudaOptim : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
    manual_seed(5);
  }
  static Tensors some(int64_t count, DType t) {
    Tensors all;
    for (int64_t i = 0; i < count; ++i) all.push_back(to_dtype(randn({i == 3 || i == 5 ? 9001 : i % 7}), t));
    return all;
  }
  // The tensor on the device; the sixth of a list where no vector begins.
  static Tensor there(const Tensor& t, size_t index) {
    if (index != 5) return t.cuda();
    Tensor behind = zeros({t.numel() + 1}, t.dtype(), Device("cuda")).narrow(0, 1, t.numel());
    behind.copy_(t);
    return behind;
  }
  static Tensors there(const Tensors& all) {
    Tensors moved;
    for (size_t i = 0; i < all.size(); ++i) moved.push_back(there(all[i], i));
    return moved;
  }
  static void expect_close(const Tensors& got, const Tensors& want, const char* what) {
    for (size_t k = 0; k < got.size(); ++k) {
      auto a = got[k].detach().cpu().to_vector(), b = want[k].detach().to_vector();
      double eps = want[k].dtype() == kFloat64   ? 1e-14
                   : want[k].dtype() == kFloat32 ? 1e-6
                   : want[k].dtype() == kFloat16 ? 2e-3
                                                 : 1e-2;
      for (size_t i = 0; i < a.size(); ++i)
        ASSERT_NEAR(a[i], b[i], eps * (1 + std::fabs(b[i]))) << what << ", tensor " << k << " element " << i;
    }
  }
};

constexpr DType kTypes[] = {kFloat32, kFloat64, kBFloat16, kFloat16};

TEST_F(CudaOptim, sgd_steps_as_on_the_cpu) {
  for (DType t : kTypes)
    for (bool nesterov : {false, true}) {
      Tensors values = some(50, t), grads = some(50, t), params[2];
      for (int side = 0; side < 2; ++side) {
        for (size_t i = 0; i < values.size(); ++i)
          params[side].push_back((side ? there(values[i], i) : values[i].clone()).requires_grad_());
        optim::SGD opt(
            params[side],
            {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = nesterov, .master_weights = is_reduced(t)});
        for (int step = 0; step < 3; ++step) {
          for (size_t i = 0; i < values.size(); ++i) params[side][i].set_grad(side ? grads[i].cuda() : grads[i]);
          opt.step();
        }
      }
      expect_close(params[1], params[0], nesterov ? "nesterov" : "momentum");
    }
}

TEST_F(CudaOptim, adamw_steps_as_on_the_cpu) {
  for (DType t : kTypes)
    for (bool amsgrad : {false, true}) {
      Tensors values = some(50, t), grads = some(50, t), params[2];
      for (int side = 0; side < 2; ++side) {
        for (size_t i = 0; i < values.size(); ++i)
          params[side].push_back((side ? there(values[i], i) : values[i].clone()).requires_grad_());
        optim::AdamW opt(params[side],
                         {.lr = 0.01, .weight_decay = 0.1, .amsgrad = amsgrad, .master_weights = is_reduced(t)});
        for (int step = 0; step < 3; ++step) {
          for (size_t i = 0; i < values.size(); ++i) params[side][i].set_grad(side ? grads[i].cuda() : grads[i]);
          opt.step();
        }
      }
      expect_close(params[1], params[0], amsgrad ? "amsgrad" : "adamw");
    }
}

TEST_F(CudaOptim, eight_bit_adamw_steps_as_on_the_cpu) {
  for (DType t : {kFloat32, kBFloat16, kFloat16}) {
    Tensors values{to_dtype(randn({9001}), t), to_dtype(randn({300, 20}), t)}, params[2];
    for (int side = 0; side < 2; ++side) {
      manual_seed(8);
      for (auto& v : values) params[side].push_back((side ? v.cuda() : v.clone()).requires_grad_());
      optim::AdamW8bit opt(params[side], {.lr = 0.01, .weight_decay = 0.1});
      for (int step = 0; step < 3; ++step) {
        for (Tensor& p : params[side]) {
          Tensor g = to_dtype(randn(p.shape()) * 0.1, t);
          p.set_grad(side ? g.cuda() : g);
        }
        opt.step();
      }
    }
    expect_close(params[1], params[0], "eight bits");
  }
}

TEST_F(CudaOptim, averages_follow_as_on_the_cpu) {
  for (DType t : kTypes) {
    Tensors averages = some(60, t == kFloat64 ? kFloat64 : kFloat32), values = some(60, t), moved = there(averages);
    optim::lerp_(moved, there(values), 0.25);
    optim::lerp_(averages, values, 0.25);
    expect_close(moved, averages, "averages");
  }
}

TEST_F(CudaOptim, unscaling_finds_what_is_not_finite) {
  for (DType t : kTypes)
    for (double bad : {0.0, double(INFINITY), double(NAN)}) {
      Tensors grads = some(20, t), moved;
      if (bad != 0) grads[3].narrow(0, 8000, 1).fill_(bad);
      moved = there(grads);
      Tensor found = zeros({}, kFloat32, Device("cuda"));
      optim::unscale_(moved, 0.5, found);
      EXPECT_EQ(found.cpu().to_vector()[0], bad != 0 ? 1.0 : 0.0);
      if (bad != 0) continue;
      Tensor here = zeros({});
      optim::unscale_(grads, 0.5, here);
      expect_close(moved, grads, "gradients");
    }
}

// A step of `Optimizer` on CUDA, op by op and as graphs.
template <class Optimizer, class Options> void graphed_steps_equal_plain_ones(const Options& options) {
  Tensor weights = randn({6, 50}), bias = randn({50});
  struct Result {
    std::vector<double> losses, weights;
    int64_t captures = 0;
  };
  auto run = [&](bool graphed) {
    Result result;
    Tensor w = weights.cuda().requires_grad_(), b = bias.cuda().requires_grad_();
    Options o = options;
    o.capturable = graphed;
    Optimizer opt(Tensors{w, b}, o);
    optim::EMAModel averages(Tensors{w, b});
    auto step = [&](const Tensors& in) -> Tensors {
      opt.zero_grad();
      Tensor loss = square(matmul(in[0], w) + b).mean();
      loss.backward();
      opt.step();
      averages.step({w, b});
      return {loss};
    };
    optim::GraphedStep graph(step);
    for (int64_t i = 0; i < 8; ++i) {
      Tensor x = (full({i < 4 ? 5 : 3, 6}, 0.1 * double(i + 1), kFloat32)).cuda();
      result.losses.push_back((graphed ? graph({x}) : step({x}))[0].detach().item());
      opt.set_lr(0.05 / double(i + 2));
      opt.set_option(0, "weight_decay", 0.02 * double(i));
      if (opt.name() == std::string("SGD")) opt.set_option(0, "momentum", 0.9 - 0.05 * double(i));
      else opt.set_option(0, "betas", Floats{0.9 - 0.05 * double(i), 0.99});
      if (i == 1) autograd::set_data(w, w.detach().clone());
      if (i == 5) {
        auto saved = opt.state_dict();
        opt.load_state_dict(saved);  // other tensors: what was captured is of no use
        if (graphed) {
          EXPECT_THROW(graph({x}), RuntimeError);
        }
        graph.reset();
      }
    }
    for (const Tensor& t : {w.detach(), b.detach(), averages.shadow_params()[0]})
      for (double v : t.cpu().to_vector()) result.weights.push_back(v);
    EXPECT_EQ(averages.optimization_step(), 8);
    result.captures = graph.statistics().captures;
    return result;
  };
  Result plain = run(false), graphed = run(true);
  EXPECT_EQ(graphed.losses, plain.losses);
  EXPECT_EQ(graphed.weights, plain.weights);
  EXPECT_EQ(graphed.captures, 4);  // two shapes, and again after a weight has other memory and after the reset
}

TEST_F(CudaOptim, graphed_steps_are_the_plain_ones_with_options_as_they_are_then) {
  graphed_steps_equal_plain_ones<optim::SGD>(optim::SGDOptions{.lr = 0.05, .momentum = 0.9, .nesterov = true});
  graphed_steps_equal_plain_ones<optim::Adam>(optim::AdamOptions{.lr = 0.05, .weight_decay = 0.1});
  graphed_steps_equal_plain_ones<optim::AdamW>(optim::AdamWOptions{.lr = 0.05, .amsgrad = true});
  graphed_steps_equal_plain_ones<optim::AdamW8bit>(optim::AdamW8bitOptions{.lr = 0.05, .min_8bit_size = 100});
}

TEST_F(CudaOptim, a_scaled_step_that_overflows_is_skipped_in_a_graph) {
  struct Result {
    std::vector<std::vector<double>> weights;
    std::vector<double> scales;
  };
  auto run = [&](bool graphed) {
    Result result;
    Tensor w = full({6, 50}, 0.5, kFloat32, Device("cuda")).requires_grad_();
    optim::AdamW opt(Tensors{w}, optim::AdamWOptions{.lr = 0.05, .capturable = graphed});
    optim::GradScaler scaler({.init_scale = 1024, .growth_interval = 2, .capturable = graphed});
    auto step = [&](const Tensors& in) -> Tensors {
      opt.zero_grad();
      Tensor loss = square(matmul(in[0], w)).mean();
      scaler.scale(loss).backward();
      scaler.unscale_(opt);
      scaler.step(opt);
      scaler.update();
      return {loss};
    };
    optim::GraphedStep graph(step);
    for (int i = 0; i < 9; ++i) {
      Tensor x = full({5, 6}, i == 4 ? 1e30 : 0.1 * i, kFloat32, Device("cuda"));
      if (graphed) graph({x});
      else step({x});
      result.weights.push_back(w.detach().cpu().to_vector());
      result.scales.push_back(scaler.get_scale());
    }
    scaler.update(32.0);
    result.scales.push_back(scaler.get_scale());
    return result;
  };
  Result plain = run(false), graphed = run(true);
  EXPECT_EQ(graphed.weights, plain.weights);
  EXPECT_EQ(graphed.scales, plain.scales);
  EXPECT_EQ(plain.weights[4], plain.weights[3]);
  EXPECT_NE(plain.weights[5], plain.weights[4]);
  EXPECT_EQ(plain.scales, (std::vector<double>{1024, 2048, 2048, 4096, 2048, 2048, 4096, 4096, 8192, 32}));
}

TEST_F(CudaOptim, capturable_adamw_counts_as_the_plain_one) {
  Tensors results;
  for (bool capturable : {false, true}) {
    Tensor w = ones({7}).cuda().requires_grad_(), late = ones({3}).cuda().requires_grad_();
    optim::AdamW opt(Tensors{w, late}, optim::AdamWOptions{.lr = 0.1, .capturable = capturable});
    for (int i = 0; i < 4; ++i) {
      w.set_grad(full({7}, 0.5 + i, kFloat32, Device("cuda")));
      if (i > 1) late.set_grad(full({3}, 1.5, kFloat32, Device("cuda")));
      opt.step();
    }
    results.push_back(cat({w.detach(), late.detach()}).cpu());
  }
  expect_close({results[1]}, {results[0]}, "counts");
}

TEST_F(CudaOptim, what_cannot_be_captured_is_refused) {
  Tensor w = ones({300}).cuda().requires_grad_();
  w.set_grad(ones({300}).cuda());
  auto refused = [&](const char* what, const std::function<void()>& f) {
    std::string message = "no error";
    try {
      cuda::capture(f, {.warmup = 0});
    } catch (const Error& e) {
      message = e.what();
    }
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  optim::AdamW adam(Tensors{w}, optim::AdamWOptions{.capturable = true});
  refused("the first step makes the state and cannot be captured", [&] { adam.step(); });
  adam.step();
  refused("an option that is set while a graph is captured", [&] { adam.set_lr(0.5); });
  EXPECT_EQ(adam.lr(), 1e-3);
  optim::SGD sgd(Tensors{w}, {.lr = 0.1});
  refused("learning rate and momentum are numbers of the host", [&] { sgd.step(); });
  optim::EMAModel averages(Tensors{w});
  refused("call step() once before the capture", [&] { averages.step({w}); });
  optim::GradScaler scaler;
  refused("the scale would stay that of the capture", [&] { scaler.scale(w.sum()); });
  refused("the scale would stay that of the capture", [&] { scaler.unscale_(adam); });
  optim::Adafactor adafactor(Tensors{w}, {});
  refused("Adafactor.step: cannot be part of a CUDA graph", [&] { adafactor.step(); });
  optim::AdamW8bit eight(Tensors{w}, optim::AdamW8bitOptions{.min_8bit_size = 0});
  refused("step count and learning rate", [&] { eight.step(); });
  EXPECT_THROW(optim::AdamW(Tensors{ones({2}).requires_grad_()}, optim::AdamWOptions{.capturable = true}), ValueError);
}

}  // namespace
}  // namespace sf
