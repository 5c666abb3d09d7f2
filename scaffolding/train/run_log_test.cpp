#include "scaffolding/train/run_log.h"

#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/io/test_folder.h"

namespace sf::train {

namespace {

class RunLogTest : public io::TestFolder {};

TEST(Crc32c, EqualsThePublishedValues) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);            // the polynomial's check value
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
}

TEST_F(RunLogTest, EventFilesBeginWithTheirVersion) {
  EventFile file(path("logs"));
  file.add_scalar("loss", 0.5, 3);
  std::string bytes = bytes_of(file.path());
  ASSERT_GT(bytes.size(), 40u);
  EXPECT_EQ(bytes[0], 26);  // wall time (9), step (2), version (2 + 13)
  EXPECT_EQ(bytes.substr(12 + 9 + 2 + 2, 13), "brain.Event:2");
  EXPECT_NE(bytes.find("loss"), std::string::npos);
  SF_EXPECT_ERROR(TypeError, "uint8, or floating", file.add_image("a", zeros({2, 2}, kInt64), 0));
}

TEST_F(RunLogTest, MetricsHaveEachStepOnce) {
  std::string name = path("metrics.jsonl");
  {
    MetricsFile file(name, 0);
    file.write(1, 0, {{"loss", 0.1}});
    file.write(2, 0, {{"loss", std::nan("")}, {"lr", 1e-300}});
    file.write(3, 1, {{"loss", INFINITY}});
  }
  std::ofstream(name, std::ios::app) << "{\"step\": 4, \"lo";
  { MetricsFile file(name, 2); }
  EXPECT_EQ(bytes_of(name),
            "{\"step\":1,\"epoch\":0,\"loss\":0.1}\n{\"step\":2,\"epoch\":0,\"loss\":null,\"lr\":1e-300}\n");
}

TEST(ProgressLine, IsRewrittenOnATerminalOnly) {
  ProgressLine lines({.seconds = 10, .last_step = 4}, 0, 100);
  EXPECT_EQ(lines.step(1, 0.5, 8, 102), "step 1/4 (25 %), loss 0.5, 4.00 samples/s, 6 s left\n");
  EXPECT_EQ(lines.step(2, 0.25, 8, 104), "");
  EXPECT_EQ(lines.step(3, 0.25, 8, 112), "step 3/4 (75 %), loss 0.25, 3.77 samples/s, 2 s left\n");
  EXPECT_EQ(lines.step(4, 0.125, 8, 112.1).substr(0, 27), "step 4/4 (100 %), loss 0.12");
  EXPECT_EQ(lines.finish(), "");

  ProgressLine terminal({.terminal = true}, 0, 0);
  EXPECT_EQ(terminal.step(1, 2, 100, 0.5), "\rstep 1, loss 2, 200 samples/s\x1b[K");
  EXPECT_EQ(terminal.step(2, 2, 100, 0.55), "");
  EXPECT_EQ(terminal.finish().back(), '\n');
  EXPECT_EQ(ProgressLine({.terminal = true}, 0, 0).finish(), "");
}

TEST(ProgressLine, SpellsDurations) {
  EXPECT_EQ(spelled_duration(41.6), "42 s");
  EXPECT_EQ(spelled_duration(187), "3:07");
  EXPECT_EQ(spelled_duration(7387), "2:03:07");
  EXPECT_EQ(spelled_duration(-1), "0 s");
}

TEST_F(RunLogTest, StatesRoundTripAndDamagedOnesAreRefused) {
  RunState state;
  state.step = 7;
  state.samples = 56;
  state.loss_sum = 0.1 + 0.2;
  state.note({{"error", 2.0}});
  state.step = 8;
  state.note({{"error", 1.0}, {"other", std::nan("")}});
  std::string name = path("trainer_state.json");
  save_run_state(state, {.output_dir = "run", .max_steps = 9}, name);
  RunState read = load_run_state(name);
  EXPECT_EQ(read.step, 8);
  EXPECT_EQ(read.loss_sum, state.loss_sum);
  ASSERT_EQ(read.best.size(), 1u);
  EXPECT_EQ(read.best["error"].lowest_step, 8);
  EXPECT_EQ(read.best["error"].highest, 2.0);
  for (const char* text : {"", "{}", "{\"format\": 2}", "{\"format\": 1, \"step\": \"x\"}"})
    SF_EXPECT_ERROR(ValueError, "trainer_state.json", load_run_state(write("trainer_state.json", text)));
}

TEST(RunOptions, CountSteps) {
  EXPECT_EQ((RunOptions{.max_epochs = 3, .gradient_accumulation_steps = 2}.total_steps(5)), 7);
  EXPECT_EQ((RunOptions{.max_steps = 4, .max_epochs = 3}.total_steps(5)), 4);
  EXPECT_EQ((RunOptions{.max_epochs = 3}.total_steps({})), std::nullopt);
  EXPECT_THROW((RunOptions{}.check(3)), ValueError);
}

}  // namespace

}  // namespace sf::train
