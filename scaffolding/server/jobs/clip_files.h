// Files of clips that jobs ask for, by the names of their formats. Functions only; any thread.
#pragma once
#include <string>
#include <vector>

#include "scaffolding/diffusion/pipelines/run.h"
#include "scaffolding/io/video/video_format.h"

namespace sf::server {

inline constexpr const char* kUsualClipFormat = "webp";
inline constexpr double kUsualFps = 8;

// "webp", "gif", "png" (a zip of a PNG for each frame), "mp4", "webm".
const std::vector<std::string>& clip_formats();
// ValueError for frames a second that the format has not, NotSupported where this build cannot write it.
void check_clip_format(const std::string& format, double fps);
const char* clip_suffix(const std::string& format);  // ".webp"; ".zip" of png

// frames: uint8 [H, W, 3] on the CPU. text: what it shows and how it was made, where the format can say so. scratch: a
// path without suffix, of a file that is there meanwhile. sound: of one clip; formats that hold none leave it out.
std::string clip_bytes(const Tensors& frames, const std::string& format, double fps, const io::VideoText& text,
                       const std::string& scratch, const diffusion::Sound& sound = {});

const char* media_type(const std::string& file);  // "image/png", by the suffix

}  // namespace sf::server
