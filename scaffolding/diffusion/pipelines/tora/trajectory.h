// Trajectories: where something shall be at each moment of a clip, as points on a canvas. Rules and numbers are those
// of Tora's own files (Zhang et al. 2024, arXiv 2407.21705). Free functions; any thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sf::diffusion {

struct TrajectoryPoint {
  double x = 0, y = 0;  // to the right and down from the upper left corner of the canvas
  bool operator==(const TrajectoryPoint&) const = default;
};
using Trajectory = std::vector<TrajectoryPoint>;

// What points are measured on; the frame may have any size. As large as the frame: points are pixels.
struct Canvas {
  int64_t width = 256, height = 256;
};

inline constexpr size_t kMostTrajectories = 16;
inline constexpr size_t kMostTrajectoryPoints = 65536;     // of one
inline constexpr uint64_t kMostTrajectoryBytes = 1 << 20;  // of a file
inline constexpr int64_t kMostTrajectoryFrames = 65536, kMostFrameSide = 65536;

// "10,54 32,20 54,10": points apart by spaces or lines; trajectories apart by ";". ValueError for what is no number,
// for more or fewer than two of them, and for too many points or trajectories. `who` begins the error.
std::vector<Trajectory> parse_trajectories(std::string_view text, const std::string& who = "trajectory");
// A file of one trajectory, a point "x,y" on each line; empty lines are passed over. RuntimeError where it cannot be
// read.
Trajectory read_trajectory(const std::string& path);

// ValueError for no trajectory or more than kMostTrajectories, for one of fewer than two points, and for points that
// are not finite or lie outside the canvas.
void check_trajectories(const std::vector<Trajectory>& trajectories, const Canvas& canvas);

// The point of each frame, still on the canvas. Of more points than frames every (points / frames)-th one is taken from
// the first on and the rest is left out; between fewer points others are put on straight lines, as equally many as can
// be, and cut to whole numbers.
Trajectory points_of_frames(const Trajectory& trajectory, int64_t num_frames);

struct PixelPoint {
  int64_t x = 0, y = 0;
  bool operator==(const PixelPoint&) const = default;
};
// The pixel of each frame of height x width: points_of_frames, scaled and cut. The far edges of the canvas are the last
// pixels. ValueError as check_trajectories.
std::vector<PixelPoint> pixels_of_frames(const Trajectory& trajectory, int64_t num_frames, int64_t height,
                                         int64_t width, const Canvas& canvas = {});

}  // namespace sf::diffusion
