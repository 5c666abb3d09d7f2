// VideoReader: the frames of a video file by their numbers, exactly. The kind of file is told by its content: mp4, mov,
// mkv and webm through libscaffolding_video.so, GIF, animated WebP and folders of pictures without it.
// A file that is damaged, cut short or larger than allowed is a ValueError with its name; one that cannot be opened a
// RuntimeError; what needs a library that is not there NotSupported. Files are mapped, and must not be truncated while
// a reader lives. Used from one thread.
#pragma once
#include <memory>
#include <optional>

#include "scaffolding/core/tensor.h"
#include "scaffolding/io/file.h"
#include "scaffolding/io/video/video_format.h"

namespace sf::io {

class FrameSource;

struct VideoInfo {
  int64_t width = 0, height = 0;  // as shown: turned upright where the file says so
  // Frames a second: what the file says, else the mean of its times; 0 where nothing says it (a folder that no
  // VideoWriter wrote, one frame).
  double fps = 0;
  std::vector<double> times;  // when each frame is shown, in seconds from the first; empty where fps is 0
  std::string format, codec;  // "mp4", "h264"
  VideoText metadata;         // keys in lower case
};

struct VideoReadOptions {
  std::optional<int64_t> max_pixels;  // of a frame; SF_VIDEO_MAX_PIXELS where not given
  int64_t max_frames = 1 << 20;
  int num_threads = 1;  // that decode
};

class VideoReader {
 public:
  explicit VideoReader(const std::string& path, const VideoReadOptions& options = {});
  explicit VideoReader(const Bytes& file, const VideoReadOptions& options = {});
  ~VideoReader();
  VideoReader(VideoReader&&) noexcept;
  VideoReader& operator=(VideoReader&&) noexcept;

  const VideoInfo& info() const;
  int64_t size() const;                                // frames
  Tensor frame(int64_t index);                         // uint8 [H, W, 3]; IndexError outside
  Tensor frames(const std::vector<int64_t>& indices);  // uint8 [n, H, W, 3]; in any order, again too
  const std::string& name() const { return name_; }    // the path, or what the bytes were called

 private:
  void check_index(int64_t index) const;
  std::string name_;
  std::unique_ptr<FrameSource> source_;
};

}  // namespace sf::io
