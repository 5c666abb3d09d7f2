// Reading mp4, mov, mkv and webm. Private to libscaffolding_video.so; any thread may call it.
#pragma once
#include "scaffolding/io/video/frame_codecs.h"

namespace sf::io::libav {

std::unique_ptr<FrameSource> decoded_source(const Bytes& file, const FrameLimits& limits);

}  // namespace sf::io::libav
