#include "scaffolding/diffusion/pipelines/pixart/picture_size.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include <nlohmann/json.hpp>

#include "scaffolding/core/source_dir.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {
namespace {

using Json = nlohmann::json;

TEST(PixArtSizes, bins_are_those_of_diffusers) {
  const Json bins = Json::parse(std::ifstream(SF_SOURCE_DIR "/tests/golden/pixart_bins.json"));
  for (int64_t sample_size : {32, 64, 128, 256}) {
    for (auto& row : bins[std::to_string(sample_size)])
      EXPECT_EQ(trained_size(row[0], row[1], sample_size), (std::pair<int64_t, int64_t>{row[2], row[3]}))
          << sample_size << ' ' << row;
    // the ratio with two digits times 100 over 100 has no neighbour that is nearer
    for (auto& row : bins["table_" + std::to_string(sample_size)])
      EXPECT_EQ(trained_size(std::llround(row[0].get<double>() * 100), 100, sample_size),
                (std::pair<int64_t, int64_t>{row[1], row[2]}))
          << row;
  }
  SF_EXPECT_ERROR(ValueError, "32, 64, 128 or 256, got 16", trained_size(8, 8, 16));
  SF_EXPECT_ERROR(ValueError, "must be positive, got 0 and 8", trained_size(0, 8, 32));
}

TEST(PixArtSizes, the_middle_is_cropped_after_resizing) {
  Tensor ramp = arange(0, 8, 1, kFloat32).reshape({1, 1, 1, 8}).expand({1, 1, 4, 8});
  EXPECT_TRUE(resized_and_cropped(ramp, 4, 8).is_same(ramp));
  EXPECT_EQ(resized_and_cropped(ramp, 4, 4).select(2, 0).to_vector(), (std::vector<double>{2, 3, 4, 5}));
  Tensor smaller = resized_and_cropped(ramp, 2, 3);
  EXPECT_EQ(smaller.shape(), (Shape{1, 1, 2, 3}));
  EXPECT_EQ(smaller.select(2, 0).to_vector(), (std::vector<double>{0.5, 2.5, 4.5}));
  EXPECT_EQ(resized_and_cropped(ramp, 9, 3).shape(), (Shape{1, 1, 9, 3}));
}

}  // namespace
}  // namespace sf::diffusion
