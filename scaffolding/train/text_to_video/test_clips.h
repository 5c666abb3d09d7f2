// TestClips: the fixture of tests that need clips of icons: blue squares on the right of transparent pictures.
#pragma once
#include "scaffolding/data/test_tar.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/train/text_to_video/clips.h"

namespace sf::train {

class TestClips : public io::TestFolder {
 protected:
  // Captions "bar, noto" with grounds by these probabilities. damaged: the picture cannot be read.
  std::shared_ptr<const TrainingClips> clips(double plain, double gradient, bool damaged = false) {
    Tensor t = zeros({4, 32, 32}, kUInt8, Device::CPU);
    for (int64_t channel : {2, 3}) t.select(0, channel).narrow(0, 8, 16).narrow(1, 16, 16).fill_(255);
    const std::string picture = damaged ? "none" : io::encode_image(t, io::ImageFormat::PNG);
    ClipData d;
    d.path = write("icons.tar",
                   data::tar_entry("metadata.jsonl", R"({"file_name": "a.png", "caption": "bar", "style": "noto"})") +
                       data::tar_entry("a.png", picture) + data::kTarEnd);
    d.has_icons = true;
    d.icons.background_probability = plain;
    d.icons.keyword_probability = d.icons.style_dropout = 0;
    d.moving.gradient_probability = gradient;
    return std::make_shared<TrainingClips>(d);
  }
};

}  // namespace sf::train
