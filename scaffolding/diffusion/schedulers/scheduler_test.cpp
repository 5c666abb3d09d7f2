// Schedulers from C++. Whole runs against diffusers are in tests/python/diffusion/test_schedulers.py.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/diffusion.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {
namespace {

using io::error_of;
class SchedulerFile : public io::TestFolder {};

TEST(Scheduler, RunsOfEveryClassEnd) {
  for (auto& name : scheduler_names()) {
    auto s = make_scheduler(name, io::Object::container(io::Object::Dict));
    s->set_timesteps(5);
    Tensor x = randn({1, 2, 3, 3}, make_generator()) * s->init_noise_sigma();
    for (double t : s->timesteps().to_vector()) {
      Tensor y = s->scale_model_input(x, t) * 0.5;
      x = s->step(y, t, x).prev_sample;
    }
    for (double v : x.to_vector()) ASSERT_TRUE(std::isfinite(v)) << name;
    EXPECT_EQ(x.shape(), Shape({1, 2, 3, 3})) << name;
  }
}

TEST(Scheduler, ConfigOfAClass) {
  DDIMConfig config;
  config.beta_schedule = "scaled_linear";
  config.clip_sample = false;
  DDIMScheduler scheduler(config);
  EXPECT_EQ(scheduler.config().find("beta_schedule")->text(), "scaled_linear");
  config.beta_end = 2;
  EXPECT_NO_THROW(DDIMScheduler{config}) << "as diffusers, which computes with it";
  config.beta_end = std::numeric_limits<double>::infinity();
  EXPECT_EQ(error_of<ValueError>([&] { DDIMScheduler bad(config); }),
            "DDIMScheduler: beta_end must be at least 0 and finite, got inf");
  EulerDiscreteConfig noise_levels;
  noise_levels.beta_end = 2;
  EXPECT_EQ(error_of<ValueError>([&] { EulerDiscreteScheduler bad(noise_levels); }),
            "EulerDiscreteScheduler: beta_end must be at least 0 and below 1, got 2");
  EXPECT_EQ(error_of<ValueError>([] { make_scheduler("DDIM", io::Object::container(io::Object::Dict)); }).substr(0, 36),
            "make_scheduler: no scheduler 'DDIM';");
}

TEST(Scheduler, OptionsThatAClassDoesNotTake) {
  PNDMScheduler scheduler;
  TimestepOptions options;
  options.num_inference_steps = 10;
  options.sigmas = {{1.0, 0.5}};
  EXPECT_EQ(error_of<ValueError>([&] { scheduler.set_timesteps(options); }),
            "PNDMScheduler: set_timesteps takes no sigmas, only num_inference_steps, device");
  EXPECT_FALSE(scheduler.num_inference_steps().has_value()) << "a refused call changes nothing";
}

TEST(SchedulerConfig, JsonOfPythonsWords) {
  io::Object dict = io::parse_config(
      R"({"a": -Infinity, "b": [NaN, Infinity, 1], "c": "NaN \" Infinity", "d": {"e": null, "f": true}, )"
      R"("g": 9223372036854775807})",
      "test");
  EXPECT_EQ(dict.find("a")->as_float(), -INFINITY);
  EXPECT_TRUE(std::isnan(dict.find("b")->items()[0].as_float()));
  EXPECT_EQ(dict.find("c")->text(), "NaN \" Infinity");
  EXPECT_EQ(dict.find("g")->as_int(), INT64_MAX);
  EXPECT_EQ(io::format_config(io::parse_config(io::format_config(dict), "again")), io::format_config(dict));
}

TEST(SchedulerConfig, HostileText) {
  std::string deep(100000, '[');
  for (std::string text :
       {std::string(), std::string("nul"), std::string("[]"), "{\"a\":" + deep, std::string("{\"a\": 1e999}"),
        std::string("{\"a\": \"\xff\"}"), std::string("{\"a\": \"\\"), std::string("{\"a\": 1, }")})
    EXPECT_THROW(io::parse_config(text, "test"), ValueError) << text.substr(0, 20);
}

TEST_F(SchedulerFile, NamesItsClass) {
  PNDMConfig config;
  config.skip_prk_steps = true;
  PNDMScheduler scheduler(config);
  save_scheduler(scheduler, folder_.string());
  auto read = load_scheduler(folder_.string());
  EXPECT_STREQ(read->name(), "PNDMScheduler");
  EXPECT_TRUE(read->config().find("skip_prk_steps")->as_bool());
}

}  // namespace
}  // namespace sf::diffusion
