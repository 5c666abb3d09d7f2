#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/io/video/video_reader.h"

// mp4 and webm go to libav where libscaffolding_video.so is, and are refused elsewhere.
SF_FUZZ_TARGET(video) {
  sf::io::VideoReader video(sf::io::Bytes::borrow(data, size, "fuzz"), {.max_pixels = 1 << 16, .max_frames = 64});
  for (int64_t i : {video.size() - 1, int64_t(0), video.size() / 2}) video.frame(i);
}
