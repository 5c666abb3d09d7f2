// Sound in mp4, mov, mkv and webm files. Private to libscaffolding_video.so.
#pragma once
#include "scaffolding/io/audio/audio.h"
#include "scaffolding/io/video/libav.h"
#include "scaffolding/io/video/video_writer.h"

namespace sf::io::libav {

// A stream of sound beside a video's in a file that is written: AAC, in webm Opus, or Vorbis at rates that Opus lacks.
class SoundStream {
 public:
  // Before the file's head is written. ValueError where the encoder has no such sampling rate.
  SoundStream(const std::string& path, VideoFormat format, const VideoOptions& options, AVFormatContext* file);
  // Whether an encoder is there and takes the rate; the sound itself is not looked at.
  static void check(VideoFormat format, const VideoOptions& options);
  void write_until(double seconds);  // what is heard until then, so that the file has picture and sound side by side
  void finish();                     // the rest

 private:
  void check(int result, const char* what) const;
  void encode(int64_t first, int64_t count);  // count 0: nothing follows
  std::string path_;
  AVFormatContext* file_;
  AVStream* stream_ = nullptr;
  Tensor samples_;  // [channels, n]
  int64_t rate_, at_ = 0;
  Owned<AVCodecContext> codec_;
  Owned<AVFrame> frame_;
  Owned<AVPacket> packet_;
};

// The first stream of sound in a whole file. ValueError where there is none or it is damaged.
Audio decoded_sound(const Bytes& file);

}  // namespace sf::io::libav
