// ClipJudge: how well clips made from the prompts and trajectories of moving icons show what they should. It knows all
// real icons of the set, and judges by fixed formulas (clip_tracker.h, picture_features.h):
//   distance   pixels between the tracked centre and the trajectory's point, the mean over a clip's frames. By chance:
//              the same of another clip's trajectory
//   retrieval  the icon cut out of the clip is compared with all real icons of the style that was asked for, drawn into
//              a frame of the same size and cut out alike; its rank is the place of the icon whose caption the clip was
//              made from, nearest first (cosine of layout_features without their mean). It is taken from the frame that
//              is most like the mean of all
//   change     what differs between a frame and the next around the tracked centre, a share of the range of levels: 0
//              is the same thing, moved
// Immutable after construction: any thread may use it.
#pragma once
#include <map>
#include <memory>

#include "scaffolding/data/moving_icons.h"
#include "scaffolding/train/evaluation/clip_tracker.h"

namespace sf::train {

struct ClipPrompt {
  std::string set;  // "train", "heldout_combo" or "heldout_name"
  int64_t icon;     // its place in the data
  std::string prompt;
  std::vector<data::IconPlace> way;  // in each frame
  Tensor real;                       // such a clip, of the real icon: uint8 [3, F, H, W]
};

// `count` icons of the split "train" drawn by the seed, then as many of each other split that is named, or all where
// there are fewer. ValueError for a split without icons.
std::vector<ClipPrompt> clip_prompts(const data::MovingIcons& clips, int64_t count,
                                     const std::vector<std::string>& splits, uint64_t seed);

struct ClipJudgement {
  int64_t rank = 0;      // 1: nearest
  double distance = 0;   // pixels
  double by_chance = 0;  // of the next clip's trajectory
  double found = 0;      // share of the frames; a frame in which nothing stands out counts as its middle
  double change = 0;
};

struct ClipFigures {
  int64_t clips = 0;
  double top1 = 0, top5 = 0;           // shares
  double distance = 0, by_chance = 0;  // medians
  double found = 0, change = 0;        // means
};
ClipFigures figures_of(const std::vector<ClipJudgement>& judgements);

class ClipJudge {
 public:
  explicit ClipJudge(std::shared_ptr<const data::MovingIcons> clips);

  int64_t rank(const Tensor& cut_out, int64_t icon) const;
  // Clips uint8 [3, F, H, W], each with the prompt it was made from. ValueError where numbers do not agree.
  std::vector<ClipJudgement> judge(const std::vector<ClipPrompt>& prompts, const Tensors& clips) const;
  double chance_of_top5() const;  // the mean over all icons

 private:
  std::vector<float> centred(const Tensor& picture) const;  // its layout without the mean
  std::shared_ptr<const data::MovingIcons> clips_;
  std::vector<std::vector<float>> layout_;
  std::vector<float> mean_;
  std::map<std::string, std::vector<int64_t>> of_style_;
};

}  // namespace sf::train
