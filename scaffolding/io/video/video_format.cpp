#include "scaffolding/io/video/video_format.h"

#include <algorithm>
#include <filesystem>

#include "scaffolding/core/error.h"
#include "scaffolding/io/pictures/animation.h"
#include "scaffolding/io/video/frame_codecs.h"

namespace sf::io {

const char* name(VideoFormat format) {
  constexpr const char* names[] = {"mp4", "mov", "mkv", "webm", "gif", "webp", "pictures"};
  return names[size_t(format)];
}

VideoFormat video_format(const std::string& path) {
  const std::filesystem::path p(path);
  std::string s = p.extension().string();
  std::transform(s.begin(), s.end(), s.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  const bool is_pattern = p.filename().string().find('%') != std::string::npos;
  if (!path.empty() && (s.empty() || path.ends_with('/') || (s == ".png" && is_pattern))) return VideoFormat::Pictures;
  if (s == ".mp4" || s == ".m4v") return VideoFormat::MP4;
  if (s == ".mov") return VideoFormat::MOV;
  if (s == ".mkv") return VideoFormat::MKV;
  if (s == ".webm") return VideoFormat::WebM;
  if (s == ".gif") return VideoFormat::GIF;
  if (s == ".webp") return VideoFormat::WebP;
  fail(
      "save_video: the path must end in .mp4, .mov, .mkv, .webm, .gif or .webp, be a folder, or name its pictures "
      "(frames/%04d.png), got '",
      path, "'");
}

bool can_write(VideoFormat format, std::string* why_not) {
  switch (format) {
    case VideoFormat::Pictures: return true;
    case VideoFormat::GIF:
    case VideoFormat::WebP: {
      const bool gif = format == VideoFormat::GIF;
      const bool can = can_write(gif ? AnimationFormat::GIF : AnimationFormat::WebP);
      if (!can && why_not)
        *why_not = gif ? "this build writes no GIF; rebuild with giflib (apt install libgif-dev), or write .webp"
                       : "this build writes no animated WebP; rebuild with libwebpmux (apt install libwebp-dev), or "
                         "write .gif";
      return can;
    }
    default: {
      const VideoLibrary* library = video_library(why_not);
      if (library) try {
          library->check(format, {});
        } catch (const NotSupported& e) {
          if (why_not) *why_not = e.what();
          return false;
        }
      return library != nullptr;
    }
  }
}

bool holds_sound(VideoFormat format) { return format <= VideoFormat::WebM; }

bool holds_metadata(VideoFormat format) { return format != VideoFormat::GIF && format != VideoFormat::WebP; }

}  // namespace sf::io
