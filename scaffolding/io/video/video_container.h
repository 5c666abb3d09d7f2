// The containers that libav takes apart, told by their content, and whether they are whole. Not public; any thread.
#pragma once
#include "scaffolding/io/file.h"

namespace sf::io {

enum class VideoContainer : uint8_t { None, MP4, Matroska };  // MP4: .mov too; Matroska: .webm too
VideoContainer video_container(const Bytes& file);
// ValueError for one that was cut short, which libav would read as a shorter video.
void check_whole(const Bytes& file, VideoContainer container);

}  // namespace sf::io
