// VideoWriter: frames, one after the other, to a file of any VideoFormat. The file (or the folder of pictures) appears
// whole on close(), or not at all. Used from one thread.
//   io::VideoWriter video("boat.mp4", {.fps = 8, .metadata = {{"title", prompt}}});
//   for (const Tensor& frame : frames) video.append(frame);
//   video.close();
#pragma once
#include <memory>

#include "scaffolding/core/tensor.h"
#include "scaffolding/io/video/video_format.h"

namespace sf::io {

class FrameSink;

struct VideoOptions {
  double fps = 8;      // frames a second, 0.01 to 1000, to 100 with GIF
  int quality = 80;    // 1 to 100; GIF and pictures have none
  VideoText metadata;  // title, comment, ...: mp4 and mov take the keys of mp4_keys(), mkv, webm and pictures any
  int64_t loop = 0;    // GIF, WebP: how often it plays, 0 for ever
  // libav's name of it; empty: the first that is there of libx264, libopenh264 and mpeg4, of libvpx-vp9 for webm
  std::string encoder;
  // The sound of mp4, mov, mkv and webm, from the first frame on: as audio_channels() takes it. It may be longer than
  // the frames, or shorter.
  Tensor audio;
  int64_t audio_sample_rate = 0;  // of mp4, mov and mkv one that AAC has, of webm any
};

const std::vector<std::string>& mp4_keys();  // "title", "comment", ...

class VideoWriter {
 public:
  // ValueError for a path or options that cannot work, NotSupported where the format cannot be written here.
  explicit VideoWriter(const std::string& path, VideoOptions options = {});
  ~VideoWriter();  // without close(), nothing remains
  VideoWriter(const VideoWriter&) = delete;
  VideoWriter& operator=(const VideoWriter&) = delete;

  // frame: [H, W, 3] or [3, H, W] (a last dimension of 3 counts as the first kind), uint8, or floating in [0, 1], which
  // is rounded and clamped; on any device. All have the size of the first. H.264 and MPEG-4 take even sizes only.
  // A refused frame changes nothing; where encoding itself fails, the file is given up.
  void append(const Tensor& frame);
  void close();  // ValueError without frames. Again: does nothing.

  int64_t size() const { return size_; }  // frames so far
  VideoFormat format() const { return format_; }
  const std::string& encoder() const { return encoder_; }  // "libx264", "giflib", ...; empty before the first frame

 private:
  std::string path_;
  VideoFormat format_;
  VideoOptions options_;
  std::unique_ptr<FrameSink> sink_;
  int64_t height_ = 0, width_ = 0, size_ = 0;
  bool closed_ = false;
  std::string encoder_;
};

// video: [T, H, W, 3] or [T, 3, H, W], as VideoWriter::append takes its frames.
void save_video(const std::string& path, const Tensor& video, const VideoOptions& options = {});
void save_video(const std::string& path, const Tensors& frames, const VideoOptions& options = {});

}  // namespace sf::io
