// The clips that a recipe trains on: a folder's, or those of icons that move.
#pragma once
#include <algorithm>

#include "scaffolding/data/moving_icons.h"
#include "scaffolding/data/video_dataset.h"
#include "scaffolding/diffusion/pipelines/tora/trajectory.h"
#include "scaffolding/train/text_to_video/recipe.h"

namespace sf::train {

struct TrainingClip {
  Tensor frames;  // float32 [3, T, H, W] in [-1, 1]
  std::string caption;
  std::vector<diffusion::Trajectory> trajectories;  // in pixels of the clip; empty where the data have none
};

// Thread-safe.
class TrainingClips {
 public:
  // Of a folder: data::VideoFolder with captions; its metadata may have a "trajectory" of each clip, which then begins
  // at the file's first frame. ValueError where there are no clips, and for clips without captions.
  explicit TrainingClips(const ClipData& data);
  int64_t size() const { return std::min(source_->size(), data_.most.value_or(source_->size())); }
  std::string name(int64_t index) const { return source_->sample_name(index); }
  bool has_trajectories() const { return steered_; }
  TrainingClip get(int64_t index, data::SampleRandom& random) const;
  // A clip's flow in colours, as large as its frames, which is what a steered transformer is told.
  Tensor flow(const TrainingClip& clip) const;
  std::vector<std::string> texts() const;  // every caption, or what captions are made of: for a tokenizer
  const ClipData& data() const { return data_; }
  const data::MovingIcons* icons() const { return icons_; }  // null where the clips are a folder's

 private:
  std::vector<diffusion::Trajectory> trajectories_of(int64_t index) const;  // a folder's clip
  ClipData data_;
  std::shared_ptr<const data::Dataset> source_;
  const data::MovingIcons* icons_ = nullptr;
  const data::VideoFolder* folder_ = nullptr;
  bool steered_ = false;
};

// Clips as an autoencoder is trained on them: a share of them is the flow in colours. image: as many frames and as
// large a part of them as the recipe says, from anywhere in the clip; of clips with trajectories a part about where one
// is, since most of the rest is ground.
class AutoencoderClips final : public data::Dataset {
 public:
  AutoencoderClips(std::shared_ptr<const TrainingClips> clips, const ClipAutoencoderRecipe& recipe, bool with_flow);
  int64_t size() const override { return clips_->size(); }
  data::Sample get(int64_t index, data::SampleRandom& random) const override;
  std::string sample_name(int64_t index) const override { return clips_->name(index); }

 private:
  // A corner, x and y, of a part of frames from `first` on.
  diffusion::PixelPoint corner(const TrainingClip& clip, int64_t first, data::SampleRandom& random) const;
  std::shared_ptr<const TrainingClips> clips_;
  double flow_share_;
  int64_t num_frames_, height_, width_;
};

}  // namespace sf::train
