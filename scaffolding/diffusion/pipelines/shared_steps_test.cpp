// Runs that share calls of the denoiser.
#include "scaffolding/diffusion/pipelines/shared_steps.h"

#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/diffusion/pipelines/stable_diffusion/test_pipeline.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {
namespace {

using test::tiny;

// One picture of a prompt of its own, steps, guidance and sampler.
std::unique_ptr<Run> begun(const StableDiffusionPipeline& pipe, int64_t steps, double guidance,
                           const char* scheduler = "DDIMScheduler", int64_t seed = 1) {
  GenerationOptions o;
  o.num_inference_steps = steps;
  Generator g = make_generator();
  g->manual_seed(uint64_t(seed) + 100);
  o.prompt_embeds = randn({1, 5, 16}, g);
  o.negative_prompt_embeds = randn({1, 5, 16}, g);
  o.guidance_scale = guidance;
  o.generator = {make_generator()};
  o.generator[0]->manual_seed(uint64_t(seed));
  o.scheduler = make_scheduler(scheduler, io::Object::container(io::Object::Dict));
  return pipe.start(o);
}

Tensor alone(const StableDiffusionPipeline& pipe, int64_t steps, double guidance, const char* scheduler, int64_t seed) {
  auto run = begun(pipe, steps, guidance, scheduler, seed);
  while (!run->done()) run->step();
  return run->finish().images;
}

double furthest(const Tensor& a, const Tensor& b) { return amax(abs(a - b)).item(); }

TEST(SharedSteps, GiveEachRunThePictureThatItHasAlone) {
  const auto pipe = tiny();
  struct Kind {
    int64_t steps;
    double guidance;
    const char* scheduler;
  };
  const std::vector<Kind> kinds{
      {5, 7.5, "DDIMScheduler"}, {3, 1.0, "EulerAncestralDiscreteScheduler"}, {4, 2.0, "DPMSolverMultistepScheduler"}};
  std::vector<std::unique_ptr<diffusion::Run>> runs;
  for (size_t i = 0; i < kinds.size(); ++i)
    runs.push_back(begun(pipe, kinds[i].steps, kinds[i].guidance, kinds[i].scheduler, int64_t(i)));
  SharedSteps shared;
  runs[0]->step();  // the others join after it
  while (std::any_of(runs.begin(), runs.end(), [](auto& r) { return !r->done(); })) {
    std::vector<diffusion::Run*> some;
    for (auto& r : runs)
      if (!r->done()) some.push_back(r.get());
    for (auto& error : shared.step(some)) EXPECT_FALSE(error);
  }
  for (size_t i = 0; i < kinds.size(); ++i)
    EXPECT_LT(furthest(runs[i]->finish().images,
                       alone(pipe, kinds[i].steps, kinds[i].guidance, kinds[i].scheduler, int64_t(i))),
              1e-4)
        << i;
  // In rows: 2 of a guided run, 1 of the other.
  ASSERT_EQ(runs[0]->calls().size(), 3u);
  EXPECT_EQ(runs[0]->calls()[1].rows, 5);
  EXPECT_EQ(runs[2]->calls()[0].place, 3);
  EXPECT_EQ(runs[2]->calls()[0].steps, 3);
}

TEST(SharedSteps, AreRepeatedBesideEmptyNeighboursToTheBit) {
  const auto pipe = tiny();
  auto a = begun(pipe, 4, 7.5, "DDIMScheduler", 1), b = begun(pipe, 4, 3.0, "EulerDiscreteScheduler", 2),
       c = begun(pipe, 2, 2.0, "DDIMScheduler", 3);
  SharedSteps shared;
  while (!c->done()) shared.step({a.get(), b.get(), c.get()});
  while (!b->done()) shared.step({a.get(), b.get()});
  auto again = begun(pipe, 4, 3.0, "EulerDiscreteScheduler", 2);
  SharedSteps beside;
  for (auto& call : b->calls())
    for (int64_t i = 0; i < call.steps; ++i) beside.step_beside(*again, call.place, call.rows);
  EXPECT_EQ(b->finish().images.to_vector(), again->finish().images.to_vector());
  EXPECT_THROW(beside.step_beside(*begun(pipe, 4, 3.0), 3, 4), ValueError);
}

TEST(SharedSteps, TakeOnlyRunsThatFit) {
  const auto pipe = tiny(), other = tiny();
  auto a = begun(pipe, 2, 7.5), b = begun(other, 2, 7.5), c = begun(pipe, 3, 1.0);
  EXPECT_TRUE(SharedSteps::fit(*a, *c));
  EXPECT_FALSE(SharedSteps::fit(*a, *b));
  a->guidance.mode = GuidanceMode::Sequential;
  EXPECT_FALSE(SharedSteps::fit(*a, *c));
  EXPECT_THROW(SharedSteps().step({c.get(), b.get()}), ValueError);
}

TEST(SharedSteps, TakeOneAloneThatFitsNoOther) {
  const auto pipe = tiny();
  auto run = begun(pipe, 2, 5);
  run->guidance.mode = GuidanceMode::Sequential;  // as a run does by itself where memory did not suffice
  EXPECT_FALSE(SharedSteps::fit(*run, *run));
  SharedSteps shared;
  while (!run->done()) EXPECT_FALSE(shared.step({run.get()})[0]);
  EXPECT_LT(furthest(run->finish().images, alone(pipe, 2, 5, "DDIMScheduler", 1)), 1e-3);
}

// On a GPU, each number of them once, whoever they are: texts change with those that join.
TEST(SharedSteps, CudaGraphsAreOneForEachNumberOfRuns) {
  std::string why;
  if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
  auto pipe = tiny();
  pipe.to({.device = Device("cuda")});
  SharedSteps shared;
  std::vector<std::unique_ptr<diffusion::Run>> runs;
  for (int64_t i = 0; i < 4; ++i) runs.push_back(begun(pipe, 8, 2.0, "DDIMScheduler", i));
  auto step = [&](size_t from, size_t n) {
    std::vector<diffusion::Run*> some;
    for (size_t i = from; i < from + n; ++i) some.push_back(runs[i].get());
    for (auto& error : shared.step(some)) EXPECT_FALSE(error);
  };
  for (int again = 0; again < 2; ++again) step(0, 2), step(2, 2), step(0, 3), step(1, 3);
  EXPECT_EQ(pipe.graphs->statistics().captures, 2);
  SharedSteps beside;
  auto repeated = begun(pipe, 8, 2.0, "DDIMScheduler", 3);
  for (auto& call : runs[3]->calls())
    for (int64_t i = 0; i < call.steps; ++i) beside.step_beside(*repeated, call.place, call.rows);
  EXPECT_EQ(repeated->latents.cpu().to_vector(), runs[3]->latents.cpu().to_vector());
}

TEST(SharedSteps, LeaveTheOthersWhereOneFails) {
  const auto pipe = tiny();
  auto a = begun(pipe, 3, 7.5), b = begun(pipe, 3, 7.5, "DDIMScheduler", 2);
  b->step_options.generator = {make_generator(), make_generator()};  // two for one sample
  b->step_options.eta = 1;
  SharedSteps shared;
  const auto errors = shared.step({b.get(), a.get()});
  EXPECT_TRUE(errors[0]);
  EXPECT_FALSE(errors[1]);
  EXPECT_EQ(a->at(), 1u);
}

}  // namespace
}  // namespace sf::diffusion
