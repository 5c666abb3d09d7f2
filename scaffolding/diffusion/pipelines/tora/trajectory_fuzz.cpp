#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/diffusion/pipelines/tora/trajectory.h"

// Points as a file or the program has them, and what becomes of them in a few frames.
SF_FUZZ_TARGET(trajectory) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (auto& t : sf::diffusion::parse_trajectories(text)) sf::diffusion::pixels_of_frames(t, 9, 48, 72);
}
