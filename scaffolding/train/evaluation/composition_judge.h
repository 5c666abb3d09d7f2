// CompositionJudge: whether pictures show what was put together in their prompts: a thing in a named colour, two
// things, several of one. It knows every real icon, on white, and judges by fixed formulas that nothing was trained
// for:
//   colour   the name that most of what stands out from the border has, by limits in OKLCH
//   thing    the asked icon is among the nearest five of its style by its outlines alone, since it has another colour
//   found    the picture is cut into as many parts as things were asked for, at columns where nothing stands; each
//            part, at one size in the middle of a small frame, has an asked icon of its own among the nearest five of
//            its style, by colours and outlines; mirrored or not, as a thing too
//   distance of two pictures, 1 - cosine of layout_features without the icons' mean: 0 is alike
// What these are worth is measured on real icons that were composed for it (composition_check).
// Immutable after construction: any thread may use it.
#pragma once
#include <functional>

#include "scaffolding/data/composed_icons.h"
#include "scaffolding/train/evaluation/picture_features.h"

namespace sf::train {

struct CompositionPrompt {
  std::string set;  // "colours", "pairs", "counts", "seeds"
  std::string prompt;
  std::vector<data::IconPart> parts;  // from left to right; colours where they are named
};

// As many of each set as there are, `count` at most, drawn by the seed from icons of the split "train":
//   colours  "blue cat, noto": a thing and a colour that its icon does not have; not white, which is the ground
//   pairs    "cat and apple, noto"
//   counts   "two cats, noto", "three apples, noto"
//   seeds    a fourth as many captions, each four times in succession: pictures of one prompt from different seeds
std::vector<CompositionPrompt> composition_prompts(const data::IconDataset& icons, int64_t count, uint64_t seed);
constexpr int64_t kSeedsOfEach = 4;

struct CompositionJudgement {
  std::string colour;             // of what stands out
  bool right_colour = false;      // of "colours"
  bool thing = false;             // of "colours"
  int64_t found = 0, things = 0;  // of "pairs" and "counts"
};

struct CompositionFigures {
  int64_t colours = 0, pairs = 0, counts = 0, seeds = 0;   // pictures, prompts of "seeds"
  double right_colour = 0, thing = 0, coloured_thing = 0;  // shares; the last: both
  double both_found = 0, one_found = 0, all_found = 0;     // of "pairs" at least; the last of "counts"
  double seed_distance = 0;                                // mean of pairs of pictures of one prompt
};

class CompositionJudge {
 public:
  explicit CompositionJudge(std::shared_ptr<const data::ComposedIcons> composed);

  static std::string colour(const Tensor& picture);
  bool is_thing(const Tensor& picture, int64_t icon) const;
  // How many of the icons are found, at most one in each part.
  int64_t found(const Tensor& picture, const std::vector<int64_t>& icons) const;
  double distance(const Tensor& a, const Tensor& b) const;

  std::vector<CompositionJudgement> judge(const std::vector<CompositionPrompt>& prompts, const Tensors& pictures) const;
  CompositionFigures figures(const std::vector<CompositionPrompt>& prompts, const Tensors& pictures) const;
  const data::ComposedIcons& composed() const { return *composed_; }

 private:
  using Features = std::vector<float>;
  bool is_near(const std::vector<Features>& known, const Features& x, int64_t icon) const;
  std::shared_ptr<const data::ComposedIcons> composed_;
  std::vector<Features> outline_, part_;  // of each icon, without the mean, of length 1
  Features mean_layout_, mean_outline_, mean_part_;
  std::map<std::string, std::vector<int64_t>> of_style_;
};

// The judge's figures of real icons that were composed for the prompts: as they are and as `round_trip` gives them back
// (null: left out); and of prompts that each have the picture of another one, which is chance.
struct CompositionCheckRow {
  std::string change;
  CompositionFigures figures;
};
std::vector<CompositionCheckRow> composition_check(const CompositionJudge& judge,
                                                   const std::vector<CompositionPrompt>& prompts, uint64_t seed,
                                                   const std::function<Tensor(const Tensor& picture)>& round_trip);
// Of icons whose captions begin with a colour, the share that the judge calls by it: names that people gave, none of
// which were made by recolouring. Zero pictures where there are none.
struct NamedColours {
  int64_t pictures = 0;
  double right = 0;
};
NamedColours named_colours_check(const data::IconDataset& icons);
// The mean distance of icons of one style that are drawn by the seed.
double distance_of_others(const CompositionJudge& judge, int64_t count, uint64_t seed);

}  // namespace sf::train
