#include "scaffolding/diffusion/pipelines/tora/tora.h"

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/tora/trajectory_flow.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

OptionFields ToraSteering::fields() {
  return {
      {"video_flow", &video_flow, "a clip [1, T, 3, H, W] of flow in colours, from -1 to 1, as large as the result"},
      {"trajectory", &trajectory,
       "where things go: points 'x,y x,y' in pixels of the clip, from its first frame to its last; one text for each "
       "thing"},
      {"trajectory_points", &trajectory_points,
       "the same from files, a point 'x,y' on each line, on a canvas of 256 x 256"}};
}

static Tensor flow_of(const char* who, const ToraSteering& s, int64_t num_frames, int64_t height, int64_t width) {
  const bool drawn = !s.trajectory.empty() || !s.trajectory_points.empty();
  SF_CHECK(!s.video_flow || !drawn, who, ": takes video_flow or trajectories, not both");
  if (s.video_flow) {
    const Shape wanted{1, num_frames, 3, height, width};
    SF_CHECK(s.video_flow.shape() == wanted, who, ": video_flow must be ", wanted,
             " (1, frames, 3, height, width), got ", s.video_flow.shape());
    return s.video_flow;
  }
  if (!drawn) return {};
  std::vector<Trajectory> all;  // in pixels
  for (auto& text : s.trajectory)
    for (auto& t : parse_trajectories(text, std::string(who) + ": trajectory")) all.push_back(t);
  for (auto& path : s.trajectory_points) {
    Trajectory t = read_trajectory(path);
    check_trajectories({t}, Canvas());
    for (auto& p : t) p.x *= double(width) / Canvas().width, p.y *= double(height) / Canvas().height;
    all.push_back(std::move(t));
  }
  return video_flow(all, num_frames, height, width, {.canvas = {width, height}});
}

void ToraBase::steer(CogVideoXRun& run, const CogVideoXOptions& o, const ToraSteering& steering) const {
  const auto [height, width] = size(o.height, o.width);
  const Tensor flow = flow_of(name(), steering, num_frames(o), height, width);
  if (!flow) return;
  SF_CHECK(vae, name(), ": has no vae to encode the flow with");
  SF_CHECK(run.surplus == 0, name(), ": a transformer whose patches take several frames cannot be steered");
  const Tensor clip = flow.to(vae->device()).to(vae->dtype()).permute({0, 2, 1, 3, 4});
  const Tensor latents = vae->encode(clip, o.generator.empty() ? Generator() : o.generator[0])
                             .to(transformer->device())
                             .to(run.prompt_embeds().dtype())
                             .permute({0, 2, 1, 3, 4});
  run.told.push_back({"video_flow", vae->config_float("scaling_factor", 0.7) * latents, ArgumentRole::Shared});
}

}  // namespace sf::diffusion
