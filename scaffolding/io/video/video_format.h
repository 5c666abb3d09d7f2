// The kinds of video files, by their paths. Functions only; any thread.
#pragma once
#include <map>
#include <string>

namespace sf::io {

// Pictures: a folder of PNG files, one for each frame.
enum class VideoFormat : uint8_t { MP4, MOV, MKV, WebM, GIF, WebP, Pictures };
const char* name(VideoFormat format);  // "mp4"

// What a path to be written says by its end: .mp4, .m4v, .mov, .mkv, .webm, .gif, .webp; a folder (no suffix, or a
// slash last), or the pattern of its pictures (frames/%04d.png), is Pictures. ValueError for another.
VideoFormat video_format(const std::string& path);
// Whether it can be written here; else `why_not` says what to install. Looks for libscaffolding_video.so where the
// format needs it (SF_VIDEO_LIBRARY, or beside this library).
bool can_write(VideoFormat format, std::string* why_not = nullptr);
bool holds_metadata(VideoFormat format);  // all but GIF and WebP
bool holds_sound(VideoFormat format);     // mp4, mov, mkv and webm

using VideoText = std::map<std::string, std::string>;  // key -> UTF-8

}  // namespace sf::io
