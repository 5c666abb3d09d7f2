// ComposedIcons: pictures made of captioned icons, as training pairs of a text-to-image model that is to follow more
// than it has icons for: icons in colours that their captions name, two side by side, several of one, and the same icon
// in many places, sizes and turns. Everything is made when it is asked for.
// Thread-safe, as every Dataset.
#pragma once
#include <map>
#include <memory>
#include <optional>

#include "scaffolding/data/icon_dataset.h"

namespace sf::data {

// Shares are of all samples where nothing else is said, from 0 to 1.
struct CompositionOptions {
  double pair_probability = 0.15;        // two icons of one style, side by side: "cat and apple, noto"
  double count_probability = 0.1;        // two or three of one icon: "two cats, noto"
  double recolour_probability = 0.3;     // of icons that can be: put into a named colour, "blue cat, noto"
  double name_colour_probability = 0.1;  // of the others: called by the colour that they have, where that is plain
  double detail_dropout = 0.1;           // of captions: they leave something out, "grinning face" with big eyes
  // Single icons that are turned by up to `rotation` degrees, made as small as `smallest` of what fits, moved and
  // turned in hue by up to `hue_jitter` degrees (half of those that no colour names). The others stand as they are.
  double variation_probability = 0.5;
  double rotation = 6, smallest = 0.88, hue_jitter = 12;
  // How far icons of a row leave the middles of equal parts and one size for random places and sizes: 0 is not at all,
  // which is far easier to learn.
  double row_freedom = 1;
  double mirror_probability = 0.1;     // of what is the same thing mirrored, varied or in a row
  double gradient_probability = 0.05;  // that the background goes from a colour to another; besides the icons' own
  int64_t background_jitter = 8;       // levels of 255 by which a named background with a hue may differ from it
  void check(const std::string& who) const;  // ValueError
};

// An icon in a composition, in a colour of colour_names() or, where that is empty, as it is.
struct IconPart {
  int64_t icon;
  std::string colour = {};
  double hue_turn = 0;  // degrees, of one without a colour
  bool operator==(const IconPart&) const = default;
};

class ComposedIcons final : public Dataset {
 public:
  // ValueError for options that cannot be.
  explicit ComposedIcons(std::shared_ptr<const IconDataset> icons, CompositionOptions options = {});

  int64_t size() const override { return icons_->size(); }
  // image: float32 [3, size, size] in [-1, 1]; caption: the prompt.
  Sample get(int64_t index, SampleRandom& random) const override;
  std::string sample_name(int64_t index) const override { return icons_->sample_name(index); }

  // Icons side by side, from left to right, apart from each other, as `row_freedom` has it: uint8 [3, size, size].
  // Absent where a part cannot be put into its colour. 1 to 4 parts.
  std::optional<Tensor> row(const std::vector<IconPart>& parts, const IconGround& ground, SampleRandom& random) const;
  // One icon, varied or as in the data: uint8 [3, size, size]. Absent where it cannot be put into its colour.
  std::optional<Tensor> single(const IconPart& part, const IconGround& ground, bool varied, SampleRandom& random) const;

  // One icon as get() shows it for its caption alone, now varied, now not.
  Tensor as_drawn(int64_t index, const IconGround& ground, SampleRandom& random) const;

  std::vector<std::string> texts() const;  // every prompt part once: what a tokenizer is trained on
  const IconDataset& icons() const { return *icons_; }
  const CompositionOptions& options() const { return options_; }

 private:
  struct Made {
    Tensor image;
    std::string subject;
  };
  std::optional<Made> made_pair(int64_t index, const IconGround& ground, SampleRandom& random) const;
  std::optional<Made> made_count(int64_t index, const IconGround& ground, SampleRandom& random) const;
  Made made_single(int64_t index, const IconGround& ground, SampleRandom& random) const;
  IconGround ground(SampleRandom& random) const;
  std::string any_colour(const IconGround& ground, SampleRandom& random) const;  // that can be seen on it

  std::shared_ptr<const IconDataset> icons_;
  CompositionOptions options_;
  std::map<std::string, std::vector<int64_t>> paired_;  // of each style, the icons that can be with another
};

}  // namespace sf::data
