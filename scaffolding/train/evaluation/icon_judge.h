// IconJudge: how well pictures made from the prompts of captioned icons show what they should. It knows every real icon
// of the set, on white, and judges by fixed formulas (picture_features.h):
//   retrieval   a picture is compared with all real icons of the style it was asked for, of every split; its rank is
//               the place of the icon whose caption it was made from, nearest first (cosine of layout_features without
//               their mean)
//   style       the real icons with the same caption in every style: whether the nearest is of the style that was asked
//               for. Counted where there is a choice
//   texture     the style by a StyleClassifier fitted on icons of the split "train" alone, whatever the picture shows;
//               on these as the model's autoencoder gives them back, where one is named, since it leaves traces of its
//               own that hide those of a style
//   background  the named colour that the border is nearest to (CIE Lab)
//   Frechet     the distance between Gaussians of made and real pictures in the 64 directions in which the coarse
//               features of real ones differ most, divided by the real ones' variance there: 0 is alike, and above 1 is
//               farther than one icon is from another
// Immutable after construction: any thread may use it.
#pragma once
#include <functional>
#include <map>
#include <memory>

#include "scaffolding/data/icon_dataset.h"
#include "scaffolding/train/evaluation/style_classifier.h"

namespace sf::train {

struct EvaluationPrompt {
  std::string set;         // "train", "heldout_combo", "heldout_name", or "backgrounds"
  int64_t icon;            // its place in the data
  std::string prompt;      // as icon_prompt makes it
  std::string background;  // the colour's name; empty: none is named, and white is meant
};

// `count` icons of the split "train" drawn by the seed, then all icons of the other splits that are named, then five
// icons of "train" for each colour of background (where there are as many). ValueError for a split without icons.
std::vector<EvaluationPrompt> evaluation_prompts(const data::IconDataset& icons, int64_t count,
                                                 const std::vector<std::string>& splits, uint64_t seed);

// What one picture was taken for.
struct Judgement {
  int64_t rank = 0;
  std::optional<std::string> style;  // none: there is no choice
  std::string texture, background;
};

struct RetrievalFigures {
  int64_t pictures = 0;
  double top1 = 0, top5 = 0, style = 0, texture = 0;  // shares
};

class IconJudge {
 public:
  // Reads every picture. progress(done, all) may be null; pictures are uint8 [3, H, W] everywhere. ValueError for fewer
  // than two styles. round_trip: a picture as the model's autoencoder gives it back.
  using RoundTrip = std::function<Tensor(const Tensor& picture)>;
  explicit IconJudge(std::shared_ptr<const data::IconDataset> icons, const RoundTrip& round_trip = {},
                     const std::function<void(int64_t, int64_t)>& progress = {});

  int64_t rank(const Tensor& picture, int64_t icon) const;  // 1: nearest
  // The style of the nearest real icon that has the caption of this one;
  // none where all with that caption are of one style.
  std::optional<std::string> style(const Tensor& picture, int64_t icon) const;
  std::string texture_style(const Tensor& picture) const;
  static std::string background(const Tensor& picture);
  double frechet(const Tensors& pictures) const;  // at least two
  // The same for as many real icons, drawn by the seed, against all others:
  // what the figure is for pictures that are right.
  double frechet_of_real(int64_t count, uint64_t seed) const;

  // Pictures, each with the prompt it was made from.
  std::vector<Judgement> judge(const std::vector<EvaluationPrompt>& prompts, const Tensors& pictures) const;
  RetrievalFigures retrieval(const std::vector<EvaluationPrompt>& prompts, const Tensors& pictures) const;
  const data::IconDataset& icons() const { return *icons_; }
  Tensor picture(int64_t icon, const std::string& background = {}) const;  // a real one

 private:
  std::vector<float> centred(const Tensor& picture) const;              // its layout without the mean
  double cosine(const std::vector<float>& x, int64_t other) const;      // up to x's own length
  Matrix coarse(const std::vector<std::vector<float>>& layouts) const;  // their directions
  std::shared_ptr<const data::IconDataset> icons_;
  std::vector<std::vector<float>> layout_;  // of each icon, as picture_features has it
  std::vector<float> mean_;
  std::map<std::string, std::vector<int64_t>> of_style_, of_caption_;
  std::unique_ptr<StyleClassifier> classifier_;
  Matrix directions_;
};

// What the judge makes of real icons that were changed a little, which says what its figures are worth: each row is a
// change with what was found.
struct SelfCheckRow {
  std::string change;
  RetrievalFigures figures;
};
// `count` icons drawn by the seed: as they are, moved by two pixels, softened, with noise, and as `round_trip` gives
// them back (null: left out).
std::vector<SelfCheckRow> self_check(const IconJudge& judge, int64_t count, uint64_t seed,
                                     const std::function<Tensor(const Tensor& picture)>& round_trip);
// The share of real icons on coloured grounds whose colour is recognised.
double background_check(const IconJudge& judge, int64_t count, uint64_t seed);

}  // namespace sf::train
