#include "scaffolding/train/evaluation/picture_features.h"

#include <gtest/gtest.h>

#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/train/evaluation/style_classifier.h"

namespace sf::train {

// A square of a colour on white.
static Tensor square(int64_t size, std::vector<int64_t> rgb, int64_t at = 32, int64_t side = 128) {
  Tensor p = full({3, side, side}, 255, kUInt8);
  for (int64_t c = 0; c < 3; ++c) p.select(0, c).narrow(0, at, size).narrow(1, at, size).fill_(rgb[size_t(c)]);
  return p;
}

static double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) ab += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
  return ab / std::sqrt(aa * bb);
}

TEST(PictureFeatures, NearPicturesAreNearer) {
  auto red = layout_features(square(64, {200, 30, 30}));
  ASSERT_EQ(int64_t(red.size()), kLayoutFeatures);
  auto moved = layout_features(square(64, {200, 30, 30}, 34)), small = layout_features(square(30, {200, 30, 30})),
       blue = layout_features(square(64, {30, 30, 200}));
  EXPECT_GT(cosine(red, moved), 0.97);
  EXPECT_GT(cosine(red, moved), cosine(red, small));
  EXPECT_GT(cosine(red, moved), cosine(red, blue));
  EXPECT_EQ(layout_features(square(64, {200, 30, 30})), red);
}

TEST(PictureFeatures, LabOfWhiteAndTheSizeOfAPicture) {
  auto white = layout_features(full({3, 128, 128}, 255, kUInt8));
  EXPECT_NEAR(white[0], 100 / 30., 1e-4);
  EXPECT_NEAR(white[1], 0, 1e-3);
  EXPECT_NEAR(white[16 * 16 * 3], 0, 0);  // no gradients
  auto large = layout_features(square(64, {30, 160, 60})), small = layout_features(square(32, {30, 160, 60}, 16, 64));
  EXPECT_GT(cosine(large, small), 0.98);
  EXPECT_EQ(int64_t(coarse_features(large).size()), kCoarseFeatures);
  EXPECT_NEAR(coarse_features(large)[0], large[0], 1e-5);
  EXPECT_THROW(layout_features(zeros({1, 128, 128}, kUInt8)), ValueError);
  EXPECT_THROW(texture_features(zeros({3, 128, 128})), ValueError);
}

TEST(PictureFeatures, TheBorderIsTheBackground) {
  Tensor p = full({3, 64, 64}, 128, kUInt8);
  p.narrow(1, 40, 24).fill_(7);  // down to the lower border, which is less than half of it
  EXPECT_EQ(border_colour(p), (std::array<uint8_t, 3>{128, 128, 128}));
  EXPECT_NEAR(lab_distance({255, 255, 255}, {0, 0, 0}), 100, 1e-3);
  EXPECT_EQ(lab_distance({9, 8, 7}, {9, 8, 7}), 0);
}

TEST(PictureFeatures, AClassifierTellsStripesFromFlatSquares) {
  std::vector<std::vector<float>> rows;
  std::vector<int64_t> label;
  for (int64_t i = 0; i < 40; ++i) {
    Tensor p = square(30 + i, {i * 6, 200 - i * 3, 90}, 20 + i % 7);
    if (i % 2)
      for (int64_t y = 0; y < 128; y += 4) p.narrow(1, y, 1).fill_(0);
    rows.push_back(texture_features(p));
    label.push_back(i % 2);
  }
  Matrix first(30, kTextureFeatures);
  for (size_t i = 0; i < 30; ++i)
    std::copy(rows[i].begin(), rows[i].end(), first.values.begin() + int64_t(i) * kTextureFeatures);
  StyleClassifier classifier({"flat", "striped"}, first, {label.begin(), label.begin() + 30});
  for (size_t i = 30; i < 40; ++i) EXPECT_EQ(classifier.classify(rows[i]), label[i]);
}

}  // namespace sf::train
