#include "scaffolding/io/video/video_writer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "scaffolding/io/pictures/animation_codecs.h"
#include "scaffolding/io/video/frame_codecs.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/view/view.h"

namespace sf::io {

namespace {

namespace fs = std::filesystem;

// What the lists of tags of mp4 and of mov both have a place for.
const std::vector<std::string> kMp4Keys{"title", "comment", "artist", "album", "date", "copyright", "genre"};

void check_options(const std::string& path, VideoFormat format, const VideoOptions& o) {
  SF_CHECK(o.fps >= 0.01 && o.fps <= 1000, "save_video: fps must be 0.01 to 1000, got ", o.fps);
  if (format == VideoFormat::GIF) check_fps(AnimationFormat::GIF, "save_video", o.fps);
  SF_CHECK(o.quality >= 1 && o.quality <= 100, "save_video: quality must be 1 to 100, got ", o.quality);
  SF_CHECK(o.loop >= 0 && o.loop <= 65535, "save_video: loop must be 0 (for ever) to 65535, got ", o.loop);
  const bool by_libav = holds_sound(format);
  SF_CHECK(by_libav || o.encoder.empty(), "save_video: encoder is for mp4, mov, mkv and webm, got '", o.encoder,
           "' for ", path);
  SF_CHECK(by_libav || !o.audio, "save_video: ", name(format), " holds no sound, got audio for ", path,
           "; write .mp4, .mov, .mkv or .webm, or the sound into a .wav beside it with save_wav");
  if (o.audio) {
    SF_CHECK(o.audio_sample_rate != 0, "save_video: audio needs an audio_sample_rate");
    check_sampling_rate("save_video", o.audio_sample_rate);
    audio_channels("save_video", o.audio);
  }
  SF_CHECK(o.metadata.empty() || holds_metadata(format), "save_video: ", name(format), " holds no metadata, got '",
           o.metadata.begin()->first, "' for ", path, "; leave it out, or write another format");
  for (auto& [key, value] : o.metadata) {
    SF_CHECK(!key.empty() && key.find('\0') == std::string::npos && value.find('\0') == std::string::npos,
             "save_video: a key of metadata must be a text, and no value may hold a NUL, got '", key, "'");
    if (format > VideoFormat::MOV || std::find(kMp4Keys.begin(), kMp4Keys.end(), key) != kMp4Keys.end()) continue;
    std::string all;
    for (auto& k : kMp4Keys) all += (all.empty() ? "" : ", ") + k;
    fail("save_video: ", name(format), " holds metadata under ", all, ", got '", key,
         "'; put it into comment, or write .mkv or .webm");
  }
  fs::path folder = fs::path(path).parent_path();
  if (format == VideoFormat::Pictures) return check_folder_sink(path);
  std::error_code none;
  SF_CHECK_AS(RuntimeError, folder.empty() || fs::is_directory(folder, none), "save_video: there is no folder '",
              folder.string(), "'");
  SF_CHECK_AS(RuntimeError, !fs::is_directory(path, none), "save_video: ", path, " is a folder");
}

// GIF and WebP.
class AnimationSink final : public FrameSink {
 public:
  AnimationSink(const std::string& path, VideoFormat format, int64_t height, int64_t width, const VideoOptions& o)
      : file_(path), format_(format == VideoFormat::GIF ? AnimationFormat::GIF : AnimationFormat::WebP), fps_(o.fps) {
    AnimationOptions options;
    options.loop = o.loop;
    options.quality = o.quality;
    encoder_ = format_ == AnimationFormat::GIF ? gif_encoder(height, width, options)
                                               : webp_encoder(height, width, options, true);
  }
  void add(const Tensor& frame) override { encoder_->add(frame, milliseconds_of(format_, fps_, count_++)); }
  void finish() override {
    std::string bytes = encoder_->finish();
    file_.write(bytes.data(), bytes.size());
    file_.commit();
  }
  const char* encoder() const override { return format_ == AnimationFormat::GIF ? "giflib" : "libwebp"; }

 private:
  ReplacingFile file_;
  AnimationFormat format_;
  double fps_;
  int64_t count_ = 0;
  std::unique_ptr<AnimationEncoder> encoder_;
};

// [H, W, 3] of a frame in either layout, not yet converted.
Tensor rows_of(const Tensor& frame) {
  check_defined("save_video", "frame", frame);
  const bool last = frame.ndim() == 3 && frame.size(2) == 3, first = frame.ndim() == 3 && frame.size(0) == 3;
  SF_CHECK((last || first) && frame.numel() > 0, "save_video: a frame must be [H, W, 3] or [3, H, W], got ",
           frame.shape());
  SF_CHECK_AS(TypeError, frame.dtype() == kUInt8 || frame.is_floating_point(),
              "save_video: a frame must be uint8, or floating in [0, 1], got ", frame.dtype());
  return last ? frame.detach() : frame.detach().permute({1, 2, 0});
}

Tensor bytes_of(const Tensor& rows) {
  Tensor x = rows.cpu();
  if (x.dtype() == kUInt8) return x.contiguous();
  x = x.to(kFloat32).contiguous();
  Tensor y = empty(x.shape(), kUInt8);
  const auto* from = x.data<float>();
  auto* to = y.data<uint8_t>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float v = from[i] * 255;
    to[i] = !(v > 0) ? 0 : v >= 255 ? 255 : uint8_t(std::nearbyint(v));
  }
  return y;
}

}  // namespace

const std::vector<std::string>& mp4_keys() { return kMp4Keys; }

std::unique_ptr<FrameSink> animation_sink(const std::string& path, VideoFormat format, int64_t height, int64_t width,
                                          const VideoOptions& options) {
  const int64_t most = longest_side(format == VideoFormat::GIF ? AnimationFormat::GIF : AnimationFormat::WebP);
  SF_CHECK(height <= most && width <= most, "save_video: ", name(format), " holds sides to ", most, ", got ", width,
           " x ", height);
  return std::make_unique<AnimationSink>(path, format, height, width, options);
}

VideoWriter::VideoWriter(const std::string& path, VideoOptions options)
    : path_(path), format_(video_format(path)), options_(std::move(options)) {
  check_options(path_, format_, options_);
  std::string why;
  SF_CHECK_AS(NotSupported, can_write(format_, &why), "save_video: ", path_, ": ", why);
  if (format_ <= VideoFormat::WebM) video_library()->check(format_, options_);
}

VideoWriter::~VideoWriter() = default;

void VideoWriter::append(const Tensor& frame) {
  SF_CHECK_AS(RuntimeError, !closed_, "save_video: ", path_, " is closed");
  const Tensor rows = rows_of(frame);
  SF_CHECK(!sink_ || (rows.size(0) == height_ && rows.size(1) == width_), "save_video: frames must have one size, got ",
           rows.size(1), " x ", rows.size(0), " after ", width_, " x ", height_);
  const Tensor pixels = bytes_of(rows);
  if (!sink_) {
    height_ = rows.size(0), width_ = rows.size(1);
    sink_ = format_ == VideoFormat::Pictures ? folder_sink(path_, options_)
                                             : (format_ <= VideoFormat::WebM ? video_library()->sink : animation_sink)(
                                                   path_, format_, height_, width_, options_);
    encoder_ = sink_->encoder();
  }
  try {
    sink_->add(pixels);
  } catch (...) {
    sink_.reset();
    closed_ = true;
    throw;
  }
  ++size_;
}

void VideoWriter::close() {
  if (std::exchange(closed_, true)) return;
  SF_CHECK(sink_, "save_video: ", path_, " needs at least one frame");
  auto sink = std::move(sink_);
  sink->finish();
}

void save_video(const std::string& path, const Tensors& frames, const VideoOptions& options) {
  VideoWriter writer(path, options);
  for (auto& frame : frames) writer.append(frame);
  writer.close();
}

void save_video(const std::string& path, const Tensor& video, const VideoOptions& options) {
  check_defined("save_video", "video", video);
  SF_CHECK(video.ndim() == 4, "save_video: a video must be [T, H, W, 3] or [T, 3, H, W], got ", video.shape());
  VideoWriter writer(path, options);
  for (int64_t i = 0; i < video.size(0); ++i) writer.append(video.select(0, i));
  writer.close();
}

}  // namespace sf::io
