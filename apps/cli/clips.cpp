#include "apps/cli/clips.h"

#include <filesystem>

#include "apps/cli/output_file.h"
#include "scaffolding/core/error.h"
#include "scaffolding/io/video/video_writer.h"

namespace sf::cli {

void check_clip_output(const char* option, const std::string& path, double fps) {
  SF_CHECK(fps >= 0.01 && fps <= 1000, "--fps: must be from 0.01 to 1000, got ", fps);
  std::string why_not;
  const io::VideoFormat format = io::video_format(path);
  SF_CHECK_AS(NotSupported, io::can_write(format, &why_not), option, ": ", why_not);
  check_output(option, path);
}

bool is_frame_folder(const std::string& path) { return io::video_format(path) == io::VideoFormat::Pictures; }

std::string sound_path(const std::string& path) {
  if (io::holds_sound(io::video_format(path))) return {};
  std::filesystem::path at = path;
  if (is_frame_folder(path) && at.has_extension()) at = at.parent_path();  // frames/%04d.png
  return at.replace_extension(".wav").string();
}

void write_clip(const std::string& path, const Tensors& frames, const diffusion::Sound& sound, double fps,
                const std::string& title, const std::string& settings) {
  io::VideoOptions options{.fps = fps};
  if (sound.values && io::holds_sound(io::video_format(path)))
    options.audio = sound.values, options.audio_sample_rate = sound.sampling_rate;
  if (io::holds_metadata(io::video_format(path))) options.metadata = {{"title", title}, {"comment", settings}};
  io::save_video(path, frames, options);
}

}  // namespace sf::cli
