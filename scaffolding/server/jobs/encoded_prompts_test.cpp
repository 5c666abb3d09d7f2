#include "scaffolding/server/jobs/encoded_prompts.h"

#include <gtest/gtest.h>

#include "scaffolding/diffusion/pipelines/stable_diffusion/test_pipeline.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/server/jobs/job.h"

namespace sf::server {
namespace {

using Texts = std::vector<std::string>;

// Counts what it encodes.
struct Encoder : diffusion::StableDiffusionPipeline {
  explicit Encoder(int64_t length) : tokens(length) {}
  std::vector<std::pair<std::string, Tensor>> encoded_prompt(const diffusion::AnyOptions& o) const override {
    ++calls;
    return {{"prompt_embeds", full({1, tokens, 16}, double(o.as<Options>().prompt.at(0).size()), kFloat32)},
            {"negative_prompt_embeds", Tensor()}};
  }
  int64_t tokens;
  mutable int calls = 0;
};

// What the options have after a request's texts were put into them.
diffusion::GenerationOptions given(EncodedPrompts& prompts, const Encoder& encoder, const JobRequest& r) {
  const diffusion::AnyOptions options = encoder.make_options();
  options.at<Texts>("prompt") = {r.prompt};
  options.at<Texts>("negative_prompt") = {r.negative_prompt};
  prompts.put_into(options, encoder, r);
  return options.as<diffusion::GenerationOptions>();
}

TEST(EncodedPrompts, APromptIsEncodedOnce) {
  const Encoder encoder(5);
  EncodedPrompts prompts;
  JobRequest r;
  r.prompt = "a cat";
  for (int64_t seed : {1, 2}) {
    r.seed = seed;
    const auto o = given(prompts, encoder, r);
    EXPECT_TRUE(o.prompt.empty() && o.negative_prompt.empty());
    EXPECT_EQ(o.prompt_embeds.flatten()[0].item(), 5);
    EXPECT_FALSE(o.negative_prompt_embeds);
  }
  EXPECT_EQ(encoder.calls, 1);
  r.negative_prompt = "a dog", given(prompts, encoder, r);
  r.guidance = 1, given(prompts, encoder, r);
  r.options["clip_skip"] = "1", given(prompts, encoder, r);
  EXPECT_EQ(encoder.calls, 4);
  prompts.forget();
  given(prompts, encoder, r);
  EXPECT_EQ(encoder.calls, 5);
}

TEST(EncodedPrompts, TheLastOnesAreKept) {
  const Encoder small(5), large(EncodedPrompts::kMostBytes / 128);  // half of the bound each
  EncodedPrompts prompts;
  JobRequest r;
  auto ask = [&](const Encoder& encoder, size_t which) {
    r.prompt = std::to_string(which);
    given(prompts, encoder, r);
    return encoder.calls;
  };
  for (size_t i = 0; i < EncodedPrompts::kMost; ++i) ask(small, i);
  const int calls = ask(small, 0);
  ask(small, EncodedPrompts::kMost);  // 1 goes, which was not used since
  EXPECT_EQ(prompts.size(), EncodedPrompts::kMost);
  EXPECT_EQ(ask(small, 0), calls + 1);
  EXPECT_EQ(ask(small, 1), calls + 2);
  for (size_t i = 0; i < 3; ++i) ask(large, 1000 + i);
  EXPECT_EQ(prompts.size(), 2u);
  EXPECT_EQ(ask(large, 1001), 3);
}

}  // namespace
}  // namespace sf::server
