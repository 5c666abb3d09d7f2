#include "scaffolding/io/video/video_reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "scaffolding/core/env.h"
#include "scaffolding/io/video/frame_codecs.h"
#include "scaffolding/io/video/video_container.h"

namespace sf::io {

void check_frame_size(const std::string& name, int64_t width, int64_t height, const FrameLimits& limits) {
  SF_CHECK(width > 0 && height > 0 && width <= 65535 && height <= 65535, name, ": has frames of an impossible size, ",
           width, " x ", height);
  SF_CHECK(width * height <= limits.max_pixels, name, ": has frames of ", width, " x ", height,
           " pixels, more than the ", limits.max_pixels, " that are allowed (max_pixels, SF_VIDEO_MAX_PIXELS)");
}

void check_frame_count(const std::string& name, int64_t frames, const FrameLimits& limits) {
  SF_CHECK(frames <= limits.max_frames, name, ": has more than the ", limits.max_frames,
           " frames that are allowed (max_frames)");
}

void set_times(VideoInfo& info, const std::vector<int64_t>& milliseconds) {
  double at = 0;
  for (int64_t m : milliseconds) {
    info.times.push_back(at / 1000);
    at += double(m);
  }
  info.fps = at > 0 ? 1000 * double(milliseconds.size()) / at : 0;
}

static FrameLimits limits_of(const VideoReadOptions& options) {
  static const int64_t allowed = env::integer("SF_VIDEO_MAX_PIXELS");
  FrameLimits limits{options.max_pixels.value_or(allowed), options.max_frames, options.num_threads};
  SF_CHECK(limits.max_pixels > 0, "VideoReader: max_pixels must be positive, got ", limits.max_pixels);
  SF_CHECK(limits.max_frames > 0, "VideoReader: max_frames must be positive, got ", limits.max_frames);
  SF_CHECK(limits.num_threads >= 1 && limits.num_threads <= 64, "VideoReader: num_threads must be 1 to 64, got ",
           limits.num_threads);
  return limits;
}

static std::unique_ptr<FrameSource> opened(const Bytes& file, const FrameLimits& limits) {
  if (is_gif(file)) return gif_source(file, limits);
  if (is_webp(file)) return webp_source(file, limits);
  const VideoContainer container = video_container(file);
  SF_CHECK(container != VideoContainer::None, file.name,
           ": is no video that can be read: mp4, mov, mkv, webm, GIF, WebP or a folder of pictures");
  check_whole(file, container);
  std::string why;
  const VideoLibrary* library = video_library(&why);
  SF_CHECK_AS(NotSupported, library, file.name, ": ", why);
  return library->source(file, limits);
}

VideoReader::VideoReader(const std::string& path, const VideoReadOptions& options) : name_(path) {
  const FrameLimits limits = limits_of(options);
  std::error_code none;
  const bool pattern = std::filesystem::path(path).filename().string().find('%') != std::string::npos &&
                       !std::filesystem::exists(path, none);
  source_ = pattern || std::filesystem::is_directory(path, none) ? folder_source(path, limits)
                                                                 : opened(Bytes::map(path), limits);
}

VideoReader::VideoReader(const Bytes& file, const VideoReadOptions& options)
    : name_(file.name), source_(opened(file, limits_of(options))) {}

VideoReader::~VideoReader() = default;
VideoReader::VideoReader(VideoReader&&) noexcept = default;
VideoReader& VideoReader::operator=(VideoReader&&) noexcept = default;

const VideoInfo& VideoReader::info() const { return source_->info; }
int64_t VideoReader::size() const { return source_->size(); }

void VideoReader::check_index(int64_t index) const {
  SF_CHECK_AS(IndexError, index >= 0 && index < size(), name_, ": a frame's number must be 0 to ", size() - 1, ", got ",
              index);
}

Tensor VideoReader::frame(int64_t index) {
  check_index(index);
  Tensor rgb = empty({info().height, info().width, 3}, kUInt8);
  source_->read(index, rgb.data<uint8_t>());
  return rgb;
}

Tensor VideoReader::frames(const std::vector<int64_t>& indices) {
  for (int64_t i : indices) check_index(i);
  Tensor rgb = empty({int64_t(indices.size()), info().height, info().width, 3}, kUInt8);
  const size_t bytes = size_t(info().height * info().width * 3);
  auto* to = rgb.data<uint8_t>();
  // In their order in the file, each once.
  std::vector<size_t> order(indices.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return indices[a] < indices[b]; });
  for (size_t k = 0; k < order.size(); ++k)
    if (k > 0 && indices[order[k]] == indices[order[k - 1]])
      std::memcpy(to + order[k] * bytes, to + order[k - 1] * bytes, bytes);
    else source_->read(indices[order[k]], to + order[k] * bytes);
  return rgb;
}

}  // namespace sf::io
