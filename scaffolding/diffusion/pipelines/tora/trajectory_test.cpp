#include <cmath>

#include "scaffolding/diffusion/pipelines/tora/trajectory_flow.h"
#include "scaffolding/io/test_folder.h"

namespace sf::diffusion {
namespace {

class TrajectoryFile : public io::TestFolder {};

TEST_F(TrajectoryFile, PointsOfFilesAndTexts) {
  const Trajectory points{{10, 54}, {32, 20}, {54, 10}};
  EXPECT_EQ(read_trajectory(write("points.txt", "10,54\n32, 20\n\n54,10\r\n")), points);
  EXPECT_EQ(parse_trajectories("10,54 32,20 54,10"), std::vector<Trajectory>{points});
  EXPECT_EQ(parse_trajectories("10,54 32,20 54,10; 0.5,1e1 2,3"),
            (std::vector<Trajectory>{points, {{0.5, 10}, {2, 3}}}));
  SF_EXPECT_ERROR(ValueError, "point 2 must be two numbers, as in 10,54, got '3 4'",
                  read_trajectory(write("a.txt", "1,2\n3 4\n5,6\n")));
  SF_EXPECT_ERROR(ValueError, "a.txt': is empty", read_trajectory(write("a.txt", "")));
  SF_EXPECT_ERROR(ValueError, "a file has one trajectory", read_trajectory(write("a.txt", "1,2 3,4; 5,6 7,8")));
  SF_EXPECT_ERROR(ValueError, "at most 1048576 bytes", read_trajectory(write("a.txt", std::string(2 << 20, '1'))));
  SF_EXPECT_ERROR(RuntimeError, "is not a regular file", read_trajectory(folder_.string()));
}

TEST(Trajectory, APixelForEachFrame) {
  const std::vector<PixelPoint> want{{10, 54}, {17, 42}, {24, 31}, {32, 20}, {43, 15}, {54, 10}};
  EXPECT_EQ(pixels_of_frames({{10, 54}, {32, 20}, {54, 10}}, 6, 256, 256), want);
  EXPECT_EQ(pixels_of_frames({{0, 0}, {256, 256}}, 2, 48, 72), (std::vector<PixelPoint>{{0, 0}, {71, 47}}));
  SF_EXPECT_ERROR(ValueError, "needs at least 2 points, got 1", pixels_of_frames({{1, 2}}, 5, 64, 64));
  SF_EXPECT_ERROR(ValueError, "point 2 (65, 1) lies outside the canvas of 64x64",
                  pixels_of_frames({{1, 2}, {65, 1}}, 5, 64, 64, {64, 64}));
}

TEST(Trajectory, FlowIsOneAtItsPointAndFallsOff) {
  const Tensor flow = trajectory_flow({{{128, 128}, {160, 96}}}, 3, 64, 64);  // pixels (32, 32), (36, 28), (40, 24)
  auto at = [&](int64_t frame, int64_t y, int64_t x, int64_t c) {
    return double(flow.data<float>()[((frame * 64 + y) * 64 + x) * 2 + c]);
  };
  EXPECT_EQ(at(0, 32, 32, 0), 0);
  EXPECT_NEAR(at(1, 32, 32, 0), 4, 4e-3);  // the edges are 32 pixels away and send a little back
  EXPECT_NEAR(at(1, 32, 32, 1), -4, 4e-3);
  EXPECT_NEAR(at(1, 32, 42, 0), 4 * std::exp(-0.5), 4e-3);
  EXPECT_NEAR(at(2, 28, 36, 1), -4, 4e-3);
  const Tensor video = video_of_flow(flow);
  EXPECT_EQ(video.shape(), (Shape{1, 3, 3, 64, 64}));
  EXPECT_EQ(video.select(1, 0).mean().item(), 1);
}

}  // namespace
}  // namespace sf::diffusion
