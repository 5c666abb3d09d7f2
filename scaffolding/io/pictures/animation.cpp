#include "scaffolding/io/pictures/animation.h"

#include <cmath>
#include <filesystem>

#include "scaffolding/core/error.h"
#include "scaffolding/io/file.h"
#include "scaffolding/io/pictures/animation_codecs.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/view/view.h"

namespace sf::io {

AnimationFormat animation_format(const std::string& path) {
  std::string s = std::filesystem::path(path).extension().string();
  for (char& c : s) c = c >= 'A' && c <= 'Z' ? char(c + 32) : c;
  if (s == ".gif") return AnimationFormat::GIF;
  if (s == ".webp") return AnimationFormat::WebP;
  fail("save_animation: the path must end in .gif or .webp, got '", path, "'");
}

int64_t longest_side(AnimationFormat format) { return format == AnimationFormat::GIF ? 65535 : 16383; }

void check_fps(AnimationFormat format, const char* op, double fps) {
  const double most = format == AnimationFormat::GIF ? 100 : 1000;
  SF_CHECK(fps > 0 && fps <= most, op, ": fps must be above 0, to ", most, " in this format, got ", fps);
}

int64_t milliseconds_of(AnimationFormat format, double fps, int64_t index) {
  const double tick = format == AnimationFormat::GIF ? 10 : 1;
  return int64_t(tick *
                 (std::round(1000 / tick * double(index + 1) / fps) - std::round(1000 / tick * double(index) / fps)));
}

static std::vector<int64_t> durations_of(size_t frames, AnimationFormat format, const AnimationOptions& o) {
  if (o.durations.empty()) {
    check_fps(format, "save_animation", o.fps);
    std::vector<int64_t> all;
    for (size_t i = 0; i < frames; ++i) all.push_back(milliseconds_of(format, o.fps, int64_t(i)));
    return all;
  }
  SF_CHECK(o.durations.size() == frames, "save_animation: needs a duration for each of ", frames, " frames, got ",
           o.durations.size());
  for (int64_t d : o.durations)
    SF_CHECK(d > 0 && d <= 655350, "save_animation: durations must be 1 to 655350 milliseconds, got ", d);
  return o.durations;
}

std::string encode_animation(const Tensors& frames, AnimationFormat format, const AnimationOptions& options) {
  SF_CHECK(!frames.empty() && frames.size() <= 65536, "save_animation: needs 1 to 65536 frames, got ", frames.size());
  SF_CHECK(options.loop >= 0 && options.loop <= 65535, "save_animation: loop must be 0 (for ever) to 65535, got ",
           options.loop);
  SF_CHECK(options.quality >= 1 && options.quality <= 100, "save_animation: quality must be 1 to 100, got ",
           options.quality);
  const std::vector<int64_t> durations = durations_of(frames.size(), format, options);
  const int64_t limit = longest_side(format);
  for (auto& frame : frames) {
    check_defined("save_animation", "frames", frame);
    SF_CHECK_AS(TypeError, frame.dtype() == kUInt8 && frame.device().is_cpu(),
                "save_animation: frames must be uint8 on the CPU, got ", frame.dtype(), " on ", frame.device());
    SF_CHECK(frame.ndim() == 3 && (frame.size(0) == 1 || frame.size(0) == 3) && frame.size(1) > 0 &&
                 frame.size(2) > 0 && frame.size(1) <= limit && frame.size(2) <= limit,
             "save_animation: frames must be [C, H, W] with C = 1 or 3 and sides to ", limit, ", got ", frame.shape());
    SF_CHECK(frame.shape() == frames[0].shape(), "save_animation: frames must have one size, got ", frames[0].shape(),
             " and ", frame.shape());
  }
  const int64_t height = frames[0].size(1), width = frames[0].size(2);
  auto encoder =
      format == AnimationFormat::GIF ? gif_encoder(height, width, options) : webp_encoder(height, width, options);
  for (size_t i = 0; i < frames.size(); ++i)
    encoder->add(convert_image(frames[i], ImageMode::RGB).permute({1, 2, 0}).contiguous(), durations[i]);
  return encoder->finish();
}

void save_animation(const std::string& path, const Tensors& frames, const AnimationOptions& options) {
  std::string bytes = encode_animation(frames, animation_format(path), options);
  ReplacingFile file(path);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

bool can_write(AnimationFormat format) {
#ifdef SF_WITH_GIF
  if (format == AnimationFormat::GIF) return true;
#endif
#ifdef SF_WITH_WEBP_ANIMATION
  if (format == AnimationFormat::WebP) return true;
#endif
  return false;
}

}  // namespace sf::io
