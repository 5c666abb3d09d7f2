// IconDataset: captioned icons with transparency, as training pairs of a text-to-image model. Each time a sample is
// drawn it stands on another background, and its prompt says so: "red apple, fluent 3d, on a blue background". A prompt
// may lose its style, or be a few keywords instead of the caption, so that free prompts work too.
// Data: a tar of pictures with a metadata.jsonl whose rows have file_name, caption, keywords, style, group and split.
// Thread-safe, as every Dataset.
#pragma once
#include <array>
#include <optional>

#include "scaffolding/data/image_dataset.h"

namespace sf::data {

struct NamedColour {
  const char* name;
  std::array<uint8_t, 3> rgb;
};
// The backgrounds that prompts can name; white, the first, is also what a prompt without one means.
const std::vector<NamedColour>& background_colours();

// What an icon stands on, and how its caption names that.
struct IconGround {
  std::array<uint8_t, 3> top{255, 255, 255}, bottom{255, 255, 255};  // alike where it is plain
  std::string name;                                                  // "blue", "blue to pink"; empty for white
};
// A named colour with probability `plain`, one that goes to another with `gradient`, else white that is not named.
IconGround random_ground(double plain, double gradient, SampleRandom& random);
std::string two_colours(const std::string& top, const std::string& bottom);  // "blue to pink"

struct IconOptions {
  std::vector<std::string> splits;           // empty: all
  std::vector<std::string> left_out_groups;  // "Symbols", "Flags"
  std::vector<std::string> styles;           // empty: all
  int64_t size = 128;                        // pictures are resized to size x size where they are not
  double background_probability = 0.5;       // that the background is named, and of any colour; else it is white
  double keyword_probability = 0.15;         // that keywords stand for the caption
  double style_dropout = 0.1;                // that the style is not named
  int64_t kept_bytes = int64_t(512) << 20;   // of drawings that are decoded once and then kept
};

struct Icon {
  std::string caption, style, group, split;
  std::vector<std::string> keywords;
  int64_t index;  // in the tar
};

// What stands before a picture's background in a prompt, and the whole prompt. background: a name, or empty for white.
std::string icon_prompt(const std::string& caption, const std::string& style, const std::string& background = {});

class IconDataset : public Dataset {
 public:
  // ValueError for a tar without metadata.jsonl, rows without a caption or style, and when nothing is left.
  explicit IconDataset(const std::string& tar_path, IconOptions options = {});
  ~IconDataset() override;

  int64_t size() const override { return int64_t(icons_.size()); }
  // image: float32 [3, size, size] in [-1, 1]; caption: the prompt.
  Sample get(int64_t index, SampleRandom& random) const override;
  std::string sample_name(int64_t index) const override;

  const Icon& icon(int64_t index) const;
  // With its transparency, in the file's size: uint8 [4, H, W]. Shared with later calls: not to be written to.
  Tensor drawing(int64_t index) const;
  Tensor picture(int64_t index, const std::array<uint8_t, 3>& background) const;  // float32 [3, size, size] in [-1, 1]
  std::string subject(int64_t index, SampleRandom& random) const;  // its caption, or some of its keywords
  std::string prompt(int64_t index, const std::string& background, SampleRandom& random) const;
  std::vector<std::string> texts() const;  // every prompt part once: what a tokenizer is trained on
  const IconOptions& options() const { return options_; }

 private:
  WebDataset pictures_;
  IconOptions options_;
  std::vector<Icon> icons_;
  struct Drawings;
  std::unique_ptr<Drawings> kept_;
};

}  // namespace sf::data
