// Finds libscaffolding_video.so, and explains why it is missing.
#include <dlfcn.h>

#include <filesystem>
#include <mutex>

#include "scaffolding/core/env.h"
#include "scaffolding/core/version.h"
#include "scaffolding/io/video/frame_codecs.h"

namespace sf::io {

namespace {

constexpr const char* kFile = "libscaffolding_video.so";

struct Loaded {
  const VideoLibrary* library = nullptr;
  std::string why;
};

std::string beside_this_library() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&video_library), &info) && info.dli_fname)
    return (std::filesystem::path(info.dli_fname).parent_path() / kFile).string();
  return kFile;
}

Loaded load() {
  std::string path = env::text("SF_VIDEO_LIBRARY");
  if (path.empty()) path = beside_this_library();
  std::error_code none;
  if (!std::filesystem::exists(path, none))
    return {nullptr, std::string(kFile) + " is not at " + path +
                         "; build Scaffolding where libav's headers are (apt install libavcodec-dev libavformat-dev "
                         "libavutil-dev libswscale-dev), or set SF_VIDEO_LIBRARY"};
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    return {nullptr, std::string(dlerror()) + "; install the libav that it was built with (Debian 12: apt install " +
                         "libavformat59 libswscale6), or build Scaffolding again"};
  auto* entry = reinterpret_cast<decltype(&scaffolding_video_library)>(dlsym(handle, "scaffolding_video_library"));
  const VideoLibrary* library = entry ? entry() : nullptr;
  if (!library || std::string_view(library->version) != version())
    return {nullptr, path + " is of another version than this library, " + version() + "; build both together"};
  return {library, ""};
}

}  // namespace

const VideoLibrary* video_library(std::string* why_not) {
  static const Loaded loaded = load();
  if (!loaded.library && why_not) *why_not = loaded.why;
  return loaded.library;
}

}  // namespace sf::io
