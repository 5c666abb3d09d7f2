// What Tora's pipelines share (Zhang et al. 2024, arXiv 2407.21705): CogVideoX, steered by trajectories or by a flow
// that the caller has.
#pragma once
#include "scaffolding/diffusion/pipelines/cogvideox/cogvideox.h"
#include "scaffolding/diffusion/pipelines/tora/trajectory.h"

namespace sf::diffusion {

// Members of the options of either task.
struct ToraSteering {
  // flow_to_image's colours as a clip [1, T, 3, H, W] from -1 to 1, of the result's size: what video_flow() gives
  Tensor video_flow;
  std::vector<std::string> trajectory;         // "10,54 32,20 54,10" in pixels of the clip
  std::vector<std::string> trajectory_points;  // files of points on a canvas of 256 x 256, as Tora has them
  OptionFields fields();
};

class ToraBase : public CogVideoXBase {
 protected:
  // Tells the transformer what steers the clip, where anything does. ValueError for a flow
  // beside trajectories, for a flow of another size, and for trajectories that leave the clip.
  void steer(CogVideoXRun& run, const CogVideoXOptions& options, const ToraSteering& steering) const;
};

}  // namespace sf::diffusion
