#include "scaffolding/train/text_to_video/clips.h"

#include <nlohmann/json.hpp>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/tora/trajectory_flow.h"
#include "scaffolding/io/json.h"
#include "scaffolding/ops/ops.h"

namespace sf::train {

namespace {

constexpr const char* kTrajectory = "trajectory";  // of a row of metadata

std::string trajectory_text(const std::string& row) {
  const auto json = io::parse_json(row);
  if (!json.is_object()) return {};
  const auto it = json.find(kTrajectory);
  return it != json.end() && it->is_string() ? it->get<std::string>() : std::string();
}

Tensor in_floats(const Tensor& pixels) { return pixels.to(kFloat32) * (1 / 127.5) - 1; }

// [K, T, 2]
std::vector<diffusion::Trajectory> trajectories_in(const Tensor& points) {
  const Tensor p = points.contiguous();
  const auto* at = p.data<float>();
  std::vector<diffusion::Trajectory> out;
  for (int64_t k = 0; k < p.size(0); ++k) {
    auto& trajectory = out.emplace_back();
    for (int64_t i = 0; i < p.size(1); ++i, at += 2) trajectory.push_back({at[0], at[1]});
  }
  return out;
}

}  // namespace

TrainingClips::TrainingClips(const ClipData& d) : data_(d) {
  if (d.has_icons) {
    auto icons = std::make_shared<data::MovingIcons>(std::make_shared<data::IconDataset>(d.path, d.icons), d.moving);
    icons_ = icons.get();
    source_ = icons;
    steered_ = true;
    return;
  }
  data::VideoFolderOptions options{
      .num_frames = d.num_frames, .frame_stride = d.frame_stride, .size = {d.height, d.width}};
  auto folder = std::make_shared<data::VideoFolder>(d.path, options);
  SF_CHECK(folder->has_captions(), "train: the clips of ", d.path,
           " have no captions; write clip.txt beside clip.mp4, or a metadata.jsonl with file_name and text");
  steered_ = !trajectory_text(folder->metadata(0)).empty();
  if (steered_) {  // which begin with the first frame
    options.random_start = false;
    folder = std::make_shared<data::VideoFolder>(d.path, options);
  }
  folder_ = folder.get();
  source_ = folder;
}

std::vector<diffusion::Trajectory> TrainingClips::trajectories_of(int64_t index) const {
  const std::string text = trajectory_text(folder_->metadata(index)), who = name(index) + ": " + kTrajectory;
  SF_CHECK(!text.empty(), who, ": there is none, and ", name(0), " has one; all clips have one, or none has");
  auto all = diffusion::parse_trajectories(text, who);
  diffusion::check_trajectories(all, {data_.width, data_.height});
  return all;
}

TrainingClip TrainingClips::get(int64_t index, data::SampleRandom& random) const {
  data::Sample sample = source_->get(index, random);
  TrainingClip clip{in_floats(sample.image), std::move(sample.caption), {}};
  if (icons_) clip.trajectories = trajectories_in(sample.target);
  else if (steered_) clip.trajectories = trajectories_of(index);
  return clip;
}

Tensor TrainingClips::flow(const TrainingClip& clip) const {
  const Shape& size = clip.frames.shape();
  return diffusion::video_flow(clip.trajectories, size[1], size[2], size[3], {.canvas = {size[3], size[2]}})
      .select(0, 0)
      .transpose(0, 1)
      .contiguous();
}

std::vector<std::string> TrainingClips::texts() const {
  if (icons_) return icons_->texts();
  std::vector<std::string> out;
  for (int64_t i = 0; i < folder_->size(); ++i) out.push_back(folder_->caption(i));
  return out;
}

AutoencoderClips::AutoencoderClips(std::shared_ptr<const TrainingClips> clips, const ClipAutoencoderRecipe& recipe,
                                   bool with_flow)
    : clips_(std::move(clips)),
      flow_share_(with_flow ? recipe.flow_share : 0),
      num_frames_(recipe.num_frames.value_or(clips_->data().num_frames)),
      height_(recipe.crop.value_or(clips_->data().height)),
      width_(recipe.crop.value_or(clips_->data().width)) {}

diffusion::PixelPoint AutoencoderClips::corner(const TrainingClip& clip, int64_t first,
                                               data::SampleRandom& random) const {
  const Shape& size = clip.frames.shape();
  if (clip.trajectories.empty()) {
    const int64_t top = random.below(size[2] - height_ + 1);
    return {random.below(size[3] - width_ + 1), top};
  }
  const auto& trajectory = clip.trajectories[size_t(random.below(int64_t(clip.trajectories.size())))];
  const auto way = diffusion::pixels_of_frames(trajectory, size[1], size[2], size[3], {size[3], size[2]});
  const diffusion::PixelPoint at = way[size_t(first + random.below(num_frames_))];
  const auto about = [&](int64_t centre, int64_t side, int64_t most) {
    const int64_t aside = side / 5;
    return std::clamp<int64_t>(centre - side / 2 - aside + random.below(2 * aside + 1), 0, most - side);
  };
  const int64_t top = about(at.y, height_, size[2]);
  return {about(at.x, width_, size[3]), top};
}

data::Sample AutoencoderClips::get(int64_t index, data::SampleRandom& random) const {
  const bool coloured = clips_->has_trajectories() && random.uniform() < flow_share_;
  TrainingClip clip = clips_->get(index, random);
  data::Sample sample;
  const Tensor whole = coloured ? clips_->flow(clip) : clip.frames;
  const int64_t first = random.below(whole.size(1) - num_frames_ + 1);
  const auto [left, top] = corner(clip, first, random);
  sample.image = whole.narrow(1, first, num_frames_).narrow(2, top, height_).narrow(3, left, width_).contiguous();
  sample.caption = std::move(clip.caption);
  sample.name = clips_->name(index);
  sample.index = index;
  return sample;
}

}  // namespace sf::train
