#include "scaffolding/server/jobs/step_times.h"

#include <gtest/gtest.h>

namespace sf::server {
namespace {

// Measured often enough to count.
void tell(StepTimes& times, int64_t rows, double seconds, double now = 0) {
  for (int i = 0; i < 4; ++i) times.measured("kind", rows, seconds, now);
}

TEST(StepTimes, TwiceAsManyAreTriedAsLongAsThatIsNotFarSlower) {
  StepTimes times;
  const std::vector<int64_t> rows{2, 2, 2, 2, 2, 2, 2, 2};
  EXPECT_EQ(times.best("kind", rows, 0), 1u);
  tell(times, 2, 1.0);
  EXPECT_EQ(times.best("kind", rows, 0), 2u);
  tell(times, 4, 2.2);
  EXPECT_EQ(times.best("kind", rows, 0), 4u);
  tell(times, 8, 6.0);
  EXPECT_EQ(times.best("kind", rows, 0), 1u);  // 8 are not tried: 4 are far slower than 1
  EXPECT_EQ(times.best("kind", {2}, 0), 1u);
  EXPECT_EQ(times.best("other", rows, 0), 1u);
}

TEST(StepTimes, WhatWasNotTimedLiesBetweenItsNeighbours) {
  StepTimes times;
  tell(times, 2, 1.0);
  tell(times, 4, 1.6);
  EXPECT_EQ(times.best("kind", {2, 2, 2}, 0), 3u);  // nothing is known of more than two: all of them are tried
  tell(times, 8, 2.4);
  EXPECT_DOUBLE_EQ(times.seconds("kind", 6, 0), 2.0);
  EXPECT_EQ(times.best("kind", {2, 2, 2}, 0), 3u);
  tell(times, 6, 3.1);
  EXPECT_EQ(times.best("kind", {2, 2, 2}, 0), 2u);
  EXPECT_EQ(times.best("kind", {2, 2, 2, 2}, 0), 4u);
  EXPECT_LT(times.seconds("kind", 10, 0), 0);
}

TEST(StepTimes, OneSampleAloneSaysLittle) {
  StepTimes times;
  tell(times, 2, 1.0);
  times.measured("kind", 4, 9.0, 0);  // passed over
  times.measured("kind", 4, 2.4, 0);
  EXPECT_EQ(times.best("kind", {2, 2}, 0), 2u);  // again
  times.measured("kind", 4, 1.5, 0);
  times.measured("kind", 4, 2.4, 0);
  EXPECT_EQ(times.best("kind", {2, 2}, 0), 2u);
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

TEST(StepTimes, WhatWasSlowIsTriedAgainAfterSomeCalls) {
  StepTimes times;
  tell(times, 4, 5.0);
  for (int i = 0; i < 200; ++i) times.measured("kind", 2, 1.0, 0);
  EXPECT_EQ(times.best("kind", {2, 2}, 0), 1u);
  for (int i = 0; i < 100; ++i) times.measured("kind", 2, 1.0, 0);
  EXPECT_EQ(times.best("kind", {2, 2}, 0), 2u);
}

TEST(StepTimes, FewerAtATimeThanAreBestAreNotTriedAgainSoon) {
  StepTimes times;
  tell(times, 2, 1.0);
  tell(times, 4, 1.2);
  for (int i = 0; i < 400; ++i) times.measured("kind", 4, 1.2, 0);
  EXPECT_EQ(times.best("kind", {2, 2}, 0), 2u);
  EXPECT_EQ(times.best("kind", {2, 2}, 1000), 1u);
}

TEST(StepTimes, MoreThanWereTriedTwiceGoWhereTheyPay) {
  StepTimes times;
  tell(times, 2, 1.0);
  tell(times, 4, 1.8);
  tell(times, 8, 3.2);
  for (int i = 0; i < 3; ++i) times.measured("kind", 12, 4.75, 0);  // hardly more a second than 8
  EXPECT_EQ(times.best("kind", {2, 2, 2, 2, 2, 2}, 0), 6u) << "too few samples";
  times.measured("kind", 12, 4.75, 0);
  EXPECT_EQ(times.best("kind", {2, 2, 2, 2, 2, 2}, 0), 4u);
  tell(times, 16, 6.0);
  EXPECT_EQ(times.best("kind", {2, 2, 2, 2, 2, 2, 2, 2}, 0), 8u) << "6 would be as good";
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
