#include "scaffolding/train/text_to_image/recipe.h"

#include <gtest/gtest.h>

#include <fstream>

#include "scaffolding/core/source_dir.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/optim/optim.h"

namespace sf::train {

static std::vector<double> rates(StageRecipe recipe, int64_t steps) {
  optim::SGD optimizer(Tensors{zeros({1}).requires_grad_()}, optim::SGDOptions{.lr = recipe.learning_rate});
  auto schedule = recipe.schedule(optimizer);
  std::vector<double> all{schedule->get_last_lr()[0]};
  for (int64_t i = 0; i < steps; ++i) {
    schedule->step();
    all.push_back(schedule->get_last_lr()[0]);
  }
  return all;
}

TEST(Recipe, RateStaysBetweenWarmUpAndDecay) {
  StageRecipe recipe;
  recipe.learning_rate = 0.5;
  recipe.warmup_steps = 2;
  recipe.decay_steps = 4;
  recipe.max_steps = 10;
  EXPECT_EQ(rates(recipe, 10), (std::vector<double>{0, 0.25, 0.5, 0.5, 0.5, 0.5, 0.5, 0.375, 0.25, 0.125, 0}));
  recipe.max_steps = 8;  // ended earlier: the same rates until the fall begins
  EXPECT_EQ(rates(recipe, 8), (std::vector<double>{0, 0.25, 0.5, 0.5, 0.5, 0.375, 0.25, 0.125, 0}));
}

TEST(Recipe, WithoutDecayTheRateFollowsACosine) {
  StageRecipe recipe;
  recipe.learning_rate = 1;
  recipe.warmup_steps = 0;
  recipe.max_steps = 4;
  auto got = rates(recipe, 4);
  EXPECT_NEAR(got[2], 0.5, 1e-12);
  EXPECT_NEAR(got[4], 0, 1e-12);
}

TEST(Recipe, CompositionsAreReadAndCheckedByTheirNames) {
  const std::string examples = std::string(SF_SOURCE_DIR) + "/examples/icons_further.json";
  const Recipe recipe = Recipe::read(examples);
  ASSERT_TRUE(recipe.composition);
  EXPECT_GT(recipe.composition->pair_probability, 0);
  EXPECT_FALSE(Recipe::read(std::string(SF_SOURCE_DIR) + "/models/emoji-128/train.json").composition);
  std::ifstream file(examples);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto refused = [&](const std::string& composition) -> std::string {
    const auto begin = text.find("\"composition\": ") + 15, end = text.find('}', begin) + 1;
    const std::string path = ::testing::TempDir() + "composition.json";
    std::ofstream(path) << text.substr(0, begin) + composition + text.substr(end);
    try {
      Recipe::read(path);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(refused("{}"), "");
  for (auto [composition, said] : {std::pair{R"({"pairs": 1})", "data: composition: has no field 'pairs'"},
                                   std::pair{R"({"smallest": 2})", "data: composition: smallest must be 0.1 to 1"},
                                   std::pair{R"([1])", "data: must have an object 'composition'"},
                                   std::pair{R"({"rotation": "much"})", "rotation"}})
    EXPECT_NE(refused(composition).find(said), std::string::npos) << composition << ": " << refused(composition);
}

TEST(Recipe, ShippedRecipeIsReadAndADecayLongerThanTheRunRefused) {
  std::string path = std::string(SF_SOURCE_DIR) + "/models/emoji-128/train.json";
  Recipe recipe = Recipe::read(path);
  EXPECT_GT(recipe.denoiser.max_steps, 0);
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  auto place = text.find("\"decay_steps\": ");
  ASSERT_NE(place, std::string::npos);
  text.replace(place, 15, "\"decay_steps\": 9");
  std::string other = ::testing::TempDir() + "long_decay.json";
  std::ofstream(other) << text;
  EXPECT_THROW(Recipe::read(other), Error);
}

TEST(Recipe, NoisesAreOneOrMore) {
  std::ifstream file(std::string(SF_SOURCE_DIR) + "/models/emoji-128/train.json");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  auto read = [&](const std::string& entry) {
    const std::string part = "\"denoiser_training\": {", path = ::testing::TempDir() + "noises.json";
    const auto place = text.find(part) + part.size();
    std::ofstream(path) << text.substr(0, place) + entry + text.substr(place);
    return Recipe::read(path).denoiser.noises;
  };
  EXPECT_EQ(read(""), 1);
  EXPECT_EQ(read("\"noises\": 4,"), 4);
  EXPECT_THROW(read("\"noises\": 0,"), ValueError);
}

}  // namespace sf::train
