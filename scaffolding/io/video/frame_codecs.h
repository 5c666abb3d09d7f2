// What VideoWriter and VideoReader ask of each kind of file, and what libscaffolding_video.so offers them. Not public.
// Each object is used from one thread; the functions may be called from any.
#pragma once
#include "scaffolding/io/audio/audio.h"
#include "scaffolding/io/video/video_reader.h"
#include "scaffolding/io/video/video_writer.h"

namespace sf::io {

// Frames of one size into a file beside its place. Without finish(), nothing remains.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  virtual void add(const Tensor& frame) = 0;  // uint8 [height, width, 3], contiguous, on the CPU
  virtual void finish() = 0;
  virtual const char* encoder() const = 0;
};

class FrameSource {
 public:
  virtual ~FrameSource() = default;
  virtual int64_t size() const = 0;
  // 0 <= frame < size(); rgb: [height, width, 3]. Frames that follow each other are read fastest.
  virtual void read(int64_t frame, uint8_t* rgb) = 0;
  VideoInfo info;
};

struct FrameLimits {
  int64_t max_pixels, max_frames;
  int num_threads;
};
// Before memory for pixels is taken.
void check_frame_size(const std::string& name, int64_t width, int64_t height, const FrameLimits& limits);
void check_frame_count(const std::string& name, int64_t frames, const FrameLimits& limits);
// fps and times of frames that are shown for so many milliseconds each.
void set_times(VideoInfo& info, const std::vector<int64_t>& milliseconds);

std::unique_ptr<FrameSink> animation_sink(const std::string& path, VideoFormat format, int64_t height, int64_t width,
                                          const VideoOptions& options);
std::unique_ptr<FrameSink> folder_sink(const std::string& path, const VideoOptions& options);
void check_folder_sink(const std::string& path);  // ValueError where folder_sink would refuse it

bool is_gif(const Bytes& file);
bool is_webp(const Bytes& file);
std::unique_ptr<FrameSource> gif_source(const Bytes& file, const FrameLimits& limits);
std::unique_ptr<FrameSource> webp_source(const Bytes& file, const FrameLimits& limits);
std::unique_ptr<FrameSource> folder_source(const std::string& path, const FrameLimits& limits);

// libscaffolding_video.so: what needs libav.
struct VideoLibrary {
  const char* version;  // of Scaffolding: a library of another one is refused
  std::unique_ptr<FrameSink> (*sink)(const std::string& path, VideoFormat format, int64_t height, int64_t width,
                                     const VideoOptions& options);
  // ValueError naming the option where sink() would refuse it for frames of any size, NotSupported without an encoder.
  void (*check)(VideoFormat format, const VideoOptions& options);
  std::unique_ptr<FrameSource> (*source)(const Bytes& file, const FrameLimits& limits);
  Audio (*sound)(const Bytes& file);
  Tensor (*still)(const Tensor& picture, int crf);  // compressed_still
};
// Opened when it is first asked for and never closed; null where it cannot be, and `why_not` then says what to install.
const VideoLibrary* video_library(std::string* why_not = nullptr);

}  // namespace sf::io

extern "C" const sf::io::VideoLibrary* scaffolding_video_library();
