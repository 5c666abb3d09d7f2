// CaptionDrawer: how a text encoder learns what the icons of its captions look like before there is a transformer:
// small heads on its tokens draw them. In minutes it then knows what the denoiser's loss would teach it in hours.
#pragma once
#include "scaffolding/models/text_encoders/t5.h"
#include "scaffolding/nn/linear.h"
#include "scaffolding/train/text_to_video/clips.h"

namespace sf::train {

// The icons of clips with the captions of such clips. image: float32 [4, kSide, kSide] in [-1, 1], colours times
// opacity, then opacity. target: float32 [6] in [-1, 1], the ground's colours at the top and at the bottom. The
// constructor makes all drawings. Thread-safe, as every Dataset.
class DrawnIcons final : public data::Dataset {
 public:
  static constexpr int64_t kSide = 24;
  // ValueError where the clips are a folder's, and for a damaged picture.
  explicit DrawnIcons(std::shared_ptr<const TrainingClips> clips);
  int64_t size() const override { return clips_->size(); }
  data::Sample get(int64_t index, data::SampleRandom& random) const override;
  std::string sample_name(int64_t index) const override { return clips_->name(index); }

 private:
  std::shared_ptr<const TrainingClips> clips_;
  Tensors drawings_;
};

// Draws an icon twice, in patches and as a whole, so that the transformer finds both what is there and where.
struct CaptionDrawer : nn::Module {
  static constexpr int64_t kPatches = 4, kTokens = kPatches * kPatches;  // on a side; each of one token, row by row
  std::shared_ptr<models::T5EncoderModel> text_encoder;
  nn::Linear patches, whole_hidden, whole;
  SF_MODULE(CaptionDrawer, text_encoder, patches, whole_hidden, whole)
  explicit CaptionDrawer(std::shared_ptr<models::T5EncoderModel> text);

  struct Drawing {
    Tensor patches, whole;  // [B, 4, kSide, kSide]: of the first kTokens tokens, of all tokens' mean
    Tensor grounds;         // [B, 6]
  };
  Drawing draw(const Tensor& ids) const;  // [B, M], of kTokens or more
  // Mean squares of what differs from DrawnIcons' pictures[B, 4, kSide, kSide] and grounds[B, 6].
  Tensor forward(const Tensor& ids, const Tensor& pictures, const Tensor& grounds) const;
};

}  // namespace sf::train
