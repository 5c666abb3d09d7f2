#include "scaffolding/optim/lr_scheduler.h"

#include <cmath>
#include <numbers>

#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/optim/optim.h"

namespace sf::test {

static Tensor leaf() {
  Tensor p = zeros({1});
  p.requires_grad_();
  return p;
}

// The rates of group 0 for epochs 0 to n.
static std::vector<double> rates(optim::LRScheduler& schedule, int n) {
  std::vector<double> out{schedule.get_last_lr()[0]};
  for (int i = 0; i < n; ++i) {
    schedule.step();
    EXPECT_EQ(schedule.get_last_lr()[0], schedule.optimizer().lr());
    out.push_back(schedule.get_last_lr()[0]);
  }
  return out;
}
static void expect_rates(const std::vector<double>& got, const std::function<double(int)>& want) {
  for (size_t t = 0; t < got.size(); ++t) EXPECT_NEAR(got[t], want(int(t)), 1e-12) << "epoch " << t;
}

TEST(lr_scheduler, chained_forms_are_the_closed_ones) {
  auto check = [](auto options, auto tag) {
    using Schedule = typename decltype(tag)::type;
    optim::SGD one({leaf()}, {.lr = 0.1}), two({leaf()}, {.lr = 0.1});
    Schedule chained(one, options), jumping(two, options);
    for (int t = 1; t < 15; ++t) {
      chained.step();
      jumping.step(t);
      EXPECT_NEAR(one.lr(), two.lr(), 1e-12) << "epoch " << t;
    }
  };
  check(optim::StepOptions{.step_size = 3, .gamma = 0.5}, type_tag<optim::StepLR>{});
  check(optim::MultiStepOptions{.milestones = {2, 5, 5}, .gamma = 0.5}, type_tag<optim::MultiStepLR>{});
  check(optim::ConstantOptions{.factor = 0.25, .total_iters = 4}, type_tag<optim::ConstantLR>{});
  check(optim::LinearOptions{.start_factor = 0.2, .end_factor = 0.8, .total_iters = 6}, type_tag<optim::LinearLR>{});
  check(optim::ExponentialOptions{.gamma = 0.9}, type_tag<optim::ExponentialLR>{});
  check(optim::PolynomialOptions{.total_iters = 20, .power = 2}, type_tag<optim::PolynomialLR>{});
  check(optim::CosineAnnealingOptions{.T_max = 5, .eta_min = 0.01}, type_tag<optim::CosineAnnealingLR>{});
  check(optim::WarmRestartsOptions{.T_0 = 2, .T_mult = 2}, type_tag<optim::CosineAnnealingWarmRestarts>{});
}

TEST(lr_scheduler, cosine_and_lambda) {
  optim::SGD opt({leaf()}, {.lr = 0.2});
  optim::CosineAnnealingLR cosine(opt, {.T_max = 4});
  expect_rates(rates(cosine, 9), [](int t) { return 0.1 * (1 + std::cos(std::numbers::pi * t / 4)); });
  optim::SGD other({leaf()}, {.lr = 0.2});
  optim::LambdaLR lambda(other, [](int64_t t) { return 1.0 / double(1 + t); });
  expect_rates(rates(lambda, 5), [](int t) { return 0.2 / (1 + t); });
}

TEST(lr_scheduler, sequential_begins_each_part_anew) {
  optim::SGD opt({leaf()}, {.lr = 1});
  std::vector<std::unique_ptr<optim::LRScheduler>> parts;
  parts.push_back(std::make_unique<optim::LinearLR>(opt, optim::LinearOptions{.start_factor = 0.25, .total_iters = 3}));
  parts.push_back(std::make_unique<optim::ExponentialLR>(opt, optim::ExponentialOptions{.gamma = 0.5}));
  optim::SequentialLR schedule(opt, std::move(parts), {3});
  expect_rates(rates(schedule, 6), [](int t) { return t < 3 ? 0.25 + 0.25 * t : std::pow(0.5, t - 3); });
}

TEST(lr_scheduler, chained_schedules_multiply) {
  optim::SGD opt({leaf()}, {.lr = 1});
  std::vector<std::unique_ptr<optim::LRScheduler>> parts;
  parts.push_back(std::make_unique<optim::ConstantLR>(opt, optim::ConstantOptions{.factor = 0.5, .total_iters = 3}));
  parts.push_back(std::make_unique<optim::ExponentialLR>(opt, optim::ExponentialOptions{.gamma = 0.9}));
  optim::ChainedScheduler schedule(std::move(parts));
  expect_rates(rates(schedule, 6), [](int t) { return (t < 3 ? 0.5 : 1) * std::pow(0.9, t); });
  auto saved = schedule.state_dict();
  EXPECT_EQ(std::get<int64_t>(saved.at("1.last_epoch")), 6);
  schedule.load_state_dict(saved);
  EXPECT_THROW(optim::ChainedScheduler({}), ValueError);
}

TEST(lr_scheduler, one_cycle_moves_the_momentum_too) {
  optim::SGD opt({leaf()}, {.lr = 1, .momentum = 0.5});
  optim::OneCycleLR schedule(opt, {.max_lr = 1, .total_steps = 11, .pct_start = 3.0 / 11, .cosine = false});
  EXPECT_NEAR(opt.lr(), 1.0 / 25, 1e-12);
  EXPECT_NEAR(opt.options().momentum, 0.95, 1e-12);
  schedule.step();
  schedule.step();
  EXPECT_NEAR(opt.lr(), 1, 1e-12);
  EXPECT_NEAR(opt.options().momentum, 0.85, 1e-12);
  for (int i = 0; i < 8; ++i) schedule.step();
  EXPECT_NEAR(opt.lr(), 1.0 / 25 / 1e4, 1e-12);
  schedule.step();
  EXPECT_THROW(schedule.step(), ValueError);
}

TEST(lr_scheduler, state_resumes) {
  optim::SGD opt({leaf()}, {.lr = 1});
  optim::CosineAnnealingLR first(opt, {.T_max = 10});
  for (int i = 0; i < 4; ++i) first.step();
  auto saved = first.state_dict();
  auto saved_optimizer = opt.state_dict();
  optim::SGD again({leaf()}, {.lr = 7});
  optim::CosineAnnealingLR second(again, {.T_max = 10});
  again.load_state_dict(saved_optimizer);
  second.load_state_dict(saved);
  first.step();
  second.step();
  EXPECT_EQ(opt.lr(), again.lr());
  EXPECT_EQ(second.last_epoch(), 5);
  saved.erase("base_lrs");
  EXPECT_THROW(second.load_state_dict(saved), ValueError);
}

TEST(lr_scheduler, diffusers_schedules_by_name) {
  auto run = [](const char* name, const optim::GetSchedulerOptions& options, int n) {
    optim::SGD opt({leaf()}, {.lr = 1});
    return rates(*optim::get_scheduler(name, opt, options), n);
  };
  expect_rates(run("constant", {}, 3), [](int) { return 1; });
  expect_rates(run("constant_with_warmup", {.num_warmup_steps = 4}, 8), [](int t) { return std::min(1.0, t / 4.0); });
  expect_rates(run("linear", {.num_warmup_steps = 2, .num_training_steps = 6}, 8),
               [](int t) { return t < 2 ? t / 2.0 : std::max(0.0, (6 - t) / 4.0); });
  expect_rates(run("cosine", {.num_warmup_steps = 0, .num_training_steps = 8}, 8),
               [](int t) { return 0.5 * (1 + std::cos(std::numbers::pi * t / 8)); });
  expect_rates(run("piecewise_constant", {.step_rules = "1:2,0.1:5,0.01"}, 8), [](int t) {
    return t < 2 ? 1 : t < 5 ? 0.1 : 0.01;
  });
  optim::SGD opt({leaf()}, {.lr = 1});
  EXPECT_THROW(optim::get_scheduler("parabola", opt), ValueError);
  EXPECT_THROW(optim::get_scheduler("linear", opt, {.num_warmup_steps = 3}), ValueError);
  EXPECT_THROW(optim::get_scheduler("piecewise_constant", opt, {.step_rules = "x:1,2"}), ValueError);
}

TEST(lr_scheduler, refuses_impossible_arguments) {
  optim::SGD opt({leaf()}, {.lr = 1});
  EXPECT_THROW(optim::StepLR(opt, {.step_size = 0}), ValueError);
  EXPECT_THROW(optim::CosineAnnealingLR(opt, {.T_max = 0}), ValueError);
  EXPECT_THROW(optim::LinearLR(opt, {.start_factor = 0}), ValueError);
  EXPECT_THROW(optim::ConstantLR(opt, {.factor = 2}), ValueError);
  EXPECT_THROW(optim::CosineAnnealingWarmRestarts(opt, {.T_0 = 0}), ValueError);
  EXPECT_THROW(optim::MultiStepLR(opt, {.milestones = {5, 2}}), ValueError);
  EXPECT_THROW(optim::SequentialLR(opt, {}, {}), ValueError);
  EXPECT_THROW(optim::MultiStepLR(opt, {.milestones = {-1, 2}}), ValueError);
  EXPECT_THROW(optim::ConstantLR(opt, {.total_iters = -1}), ValueError);
  EXPECT_THROW(optim::get_scheduler("constant_with_warmup", opt, {.num_warmup_steps = -1}), ValueError);
  EXPECT_THROW(optim::get_scheduler("linear", opt, {.num_warmup_steps = 1, .num_training_steps = 0}), ValueError);
  EXPECT_THROW(optim::get_scheduler("cosine_with_restarts", opt,
                                    {.num_warmup_steps = 1, .num_training_steps = 9, .num_cycles = 0}),
               ValueError);
  optim::SGD fresh({leaf()}, {.lr = 1});
  EXPECT_THROW(optim::StepLR(fresh, {.step_size = 2}, 3), ValueError);  // no initial rate is known
}

}  // namespace sf::test
