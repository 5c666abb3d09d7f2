// The optical flow of trajectories, and flow as pictures in colours: what Tora's network is told. Numbers are those of
// Tora's process_traj and torchvision's flow_to_image. Everything is computed on the host. Free functions; any thread.
#pragma once
#include "scaffolding/core/tensor.h"
#include "scaffolding/diffusion/pipelines/tora/trajectory.h"

namespace sf::diffusion {

struct TrajectoryFlowOptions {
  Canvas canvas;
  int64_t kernel_size = 99;  // of the Gaussian that spreads a point's flow, in pixels; odd
  double sigma = 10;         // of it; 0: the flow stays at the points
};

// Flow [num_frames, height, width, 2], float32: how far, in pixels to the right and down, what is at this place has
// come with this frame. Frame 0 has none. At a point of frame i - 1 stands the way to that of frame i; of two
// trajectories at one pixel the later one counts; the Gaussian is 1 at its centre and reflected at the edges.
// ValueError as check_trajectories, and for sizes that cannot be.
Tensor trajectory_flow(const std::vector<Trajectory>& trajectories, int64_t num_frames, int64_t height, int64_t width,
                       const TrajectoryFlowOptions& options = {});

// Flow [N, 2, H, W] or [2, H, W] in float32 -> [N, 3, H, W] or [3, H, W], uint8: directions as colours of Baker's wheel
// (Baker et al. 2007), lengths, divided by the longest of all N, as their strength; no flow is white. ValueError for
// flow that is not finite.
Tensor flow_to_image(const Tensor& flow);

// Flow [num_frames, height, width, 2] -> flow_to_image's pictures as a clip [1, num_frames, 3, height, width] of values
// from -1 to 1, float32: what a video's autoencoder takes.
Tensor video_of_flow(const Tensor& flow);

// video_of_flow(trajectory_flow(...))
Tensor video_flow(const std::vector<Trajectory>& trajectories, int64_t num_frames, int64_t height, int64_t width,
                  const TrajectoryFlowOptions& options = {});

}  // namespace sf::diffusion
