#include "scaffolding/server/jobs/clip_files.h"

#include <algorithm>
#include <filesystem>

#include "scaffolding/core/error.h"
#include "scaffolding/io/formats/zip.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/io/video/video_writer.h"

namespace sf::server {

namespace {

std::string zip_of_frames(const Tensors& frames, const io::VideoText& text) {
  io::MemorySink sink;
  io::ZipWriter zip(sink);
  io::ImageWriteOptions writing;
  writing.text = text;
  for (size_t i = 0; i < frames.size(); ++i) {
    const std::string n = std::to_string(i);
    const std::string png = io::encode_image(frames[i].permute({2, 0, 1}), io::ImageFormat::PNG, writing);
    zip.add(std::string(n.size() < 4 ? 4 - n.size() : 0, '0') + n + ".png", png.data(), png.size(), 1);
  }
  zip.finish();
  return std::move(sink.bytes);
}

}  // namespace

const std::vector<std::string>& clip_formats() {
  static const std::vector<std::string> all{"webp", "gif", "png", "mp4", "webm"};
  return all;
}

const char* clip_suffix(const std::string& format) {
  if (format == "png") return ".zip";
  if (format == "gif") return ".gif";
  if (format == "mp4") return ".mp4";
  return format == "webm" ? ".webm" : ".webp";
}

void check_clip_format(const std::string& format, double fps) {
  const double most = format == "gif" ? 100 : 1000;
  SF_CHECK(fps >= 0.01 && fps <= most, "fps: must be from 0.01 to ", most, " of ", format, ", got ", fps);
  if (format == "png") return;
  std::string why_not;
  SF_CHECK_AS(NotSupported, io::can_write(io::video_format("a" + std::string(clip_suffix(format))), &why_not),
              "format: ", why_not);
}

std::string clip_bytes(const Tensors& frames, const std::string& format, double fps, const io::VideoText& text,
                       const std::string& scratch, const diffusion::Sound& sound) {
  io::VideoText printable = text;  // a file's texts hold no zero bytes
  for (auto& [key, value] : printable) std::erase(value, '\0');
  if (format == "png") {
    printable["fps"] = std::to_string(fps);
    return zip_of_frames(frames, printable);
  }
  const std::string path = scratch + clip_suffix(format);
  io::VideoOptions options{.fps = fps};
  if (sound.values && io::holds_sound(io::video_format(path)))
    options.audio = sound.values[0].cpu(), options.audio_sample_rate = sound.sampling_rate;
  if (io::holds_metadata(io::video_format(path))) options.metadata = printable;
  struct Removed {
    const std::string& path;
    ~Removed() {
      std::error_code error;
      std::filesystem::remove(path, error);
    }
  } removed{path};
  io::save_video(path, frames, options);
  const io::Bytes bytes = io::Bytes::read(path);
  return {bytes.chars(), bytes.size};
}

const char* media_type(const std::string& file) {
  const std::string suffix = std::filesystem::path(file).extension().string();
  if (suffix == ".webp") return "image/webp";
  if (suffix == ".gif") return "image/gif";
  if (suffix == ".zip") return "application/zip";
  if (suffix == ".mp4") return "video/mp4";
  return suffix == ".webm" ? "video/webm" : "image/png";
}

}  // namespace sf::server
