#include "scaffolding/server/jobs/step_times.h"

#include <gtest/gtest.h>

namespace sf::server {
namespace {

// Measured often enough to count.
void tell(StepTimes& times, int64_t rows, double seconds, double now = 0) {
  for (int i = 0; i < 3; ++i) times.measured("kind", rows, seconds, now);
}

TEST(StepTimes, MoreAtATimeIsTriedAsLongAsItPays) {
  StepTimes times;
  const std::vector<int64_t> rows{2, 2, 2, 2};
  EXPECT_EQ(times.best("kind", rows, 0), 1u);
  tell(times, 2, 1.0);
  EXPECT_EQ(times.best("kind", rows, 0), 2u);
  tell(times, 4, 1.5);
  EXPECT_EQ(times.best("kind", rows, 0), 3u);
  tell(times, 6, 3.5);
  EXPECT_EQ(times.best("kind", rows, 0), 2u);  // 4 is not tried: 3 are slower than 2 already
  EXPECT_EQ(times.best("kind", {2}, 0), 1u);
  EXPECT_EQ(times.best("other", rows, 0), 1u);
}

TEST(StepTimes, WhatGainsNothingIsNotUsed) {
  StepTimes times;
  tell(times, 2, 1.0);
  tell(times, 4, 2.0);
  EXPECT_EQ(times.best("kind", {2, 2}, 0), 1u);
  times.measured("kind", 4, 1.0, 0);
  EXPECT_EQ(times.best("kind", {2, 2}, 0), 2u);
}

TEST(StepTimes, OfRowsNotPictures) {
  StepTimes times;
  tell(times, 1, 1.0);
  tell(times, 3, 1.2);
  EXPECT_EQ(times.best("kind", {1, 2}, 0), 2u);
}

TEST(StepTimes, OldOnesAreMeasuredAnew) {
  StepTimes times;
  tell(times, 2, 1.0);
  tell(times, 4, 5.0);
  EXPECT_EQ(times.best("kind", {2, 2}, 100), 1u);
  tell(times, 2, 1.0, 1000);
  EXPECT_EQ(times.best("kind", {2, 2}, 1000), 2u);
}

}  // namespace
}  // namespace sf::server
