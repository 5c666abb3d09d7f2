#include "scaffolding/train/event_file.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/ops/ops.h"

namespace sf::train {

namespace {

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = c & 1 ? 0x82F63B78u ^ (c >> 1) : c >> 1;
    table[i] = c;
  }
  return table;
}();

std::string little_endian(uint64_t v, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += char(v >> (8 * i) & 0xFF);
  return out;
}

// ---- protocol buffers: a field is its number and wire type, then the value
enum Wire : uint8_t { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };

std::string varint(uint64_t v) {
  std::string out;
  for (; v >= 0x80; v >>= 7) out += char(v | 0x80);
  return out + char(v);
}
std::string key(int number, Wire wire) { return varint(uint64_t(number) << 3 | wire); }
std::string field(int number, int64_t v) { return key(number, Varint) + varint(uint64_t(v)); }
std::string field(int number, double v) { return key(number, Fixed64) + little_endian(std::bit_cast<uint64_t>(v), 8); }
std::string field(int number, float v) { return key(number, Fixed32) + little_endian(std::bit_cast<uint32_t>(v), 4); }
std::string field(int number, std::string_view v) { return key(number, Bytes) + varint(v.size()) + std::string(v); }

// Field numbers of event.proto and summary.proto.
namespace event {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace session_log {
constexpr int kStatus = 1;
constexpr int64_t kStart = 1;
}  // namespace session_log
namespace summary {
constexpr int kValue = 1;
}
namespace value {
constexpr int kTag = 1, kSimpleValue = 2, kImage = 4;
}
namespace picture {
constexpr int kHeight = 1, kWidth = 2, kColorspace = 3, kEncoded = 4;
}

std::string new_path(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  SF_CHECK_AS(RuntimeError, !error, folder, ": cannot make the folder: ", error.message());
  static std::atomic<int> count{0};
  char host[256] = "localhost";
  gethostname(host, sizeof host - 1);
  auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return folder + "/events.out.tfevents." + std::to_string(seconds) + "." + host + "." + std::to_string(getpid()) +
         "." + std::to_string(count++);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t c = ~0u;
  for (char b : bytes) c = kCrcTable[(c ^ uint8_t(b)) & 0xFF] ^ (c >> 8);
  return ~c;
}

uint32_t masked_crc32c(std::string_view bytes) {
  uint32_t c = crc32c(bytes);
  return ((c >> 15) | (c << 17)) + 0xa282ead8u;
}

EventFile::EventFile(const std::string& folder, int64_t after_step) : file_(new_path(folder)) {
  add_event(0, field(event::kFileVersion, "brain.Event:2"));
  if (after_step > 0)
    add_event(after_step + 1, field(event::kSessionLog, field(session_log::kStatus, session_log::kStart)));
}

void EventFile::add_event(int64_t step, const std::string& fields) {
  double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::string data = field(event::kWallTime, now) + field(event::kStep, step) + fields;
  std::string length = little_endian(data.size(), 8);
  file_.write(length + little_endian(masked_crc32c(length), 4) + data + little_endian(masked_crc32c(data), 4));
}

void EventFile::add_scalar(const std::string& tag, double value, int64_t step) { add_scalars({{tag, value}}, step); }
void EventFile::add_scalars(const std::map<std::string, double>& values, int64_t step) {
  std::string all;
  for (auto& [tag, v] : values)
    all += field(summary::kValue, field(value::kTag, tag) + field(value::kSimpleValue, float(v)));
  add_event(step, field(event::kSummary, all));
}

void EventFile::add_image(const std::string& tag, const Tensor& image, int64_t step) {
  SF_CHECK(image && (image.ndim() == 2 || (image.ndim() == 3 && image.size(0) >= 1 && image.size(0) <= 4)),
           "add_image: image must be [C, H, W] with 1 to 4 channels, or [H, W], got ", image ? image.shape() : Shape());
  autograd::NoGrad off;
  Tensor bytes = image.detach().cpu();
  if (is_floating(bytes.dtype())) bytes = clamp(bytes.to(kFloat32) * 255.0, 0, 255).to(kUInt8);
  SF_CHECK_AS(TypeError, bytes.dtype() == kUInt8, "add_image: image must be uint8, or floating in [0, 1], got ",
              image.dtype());
  int64_t channels = bytes.ndim() == 2 ? 1 : bytes.size(0);
  std::string png = io::encode_image(bytes, io::ImageFormat::PNG);
  std::string message = field(picture::kHeight, bytes.size(-2)) + field(picture::kWidth, bytes.size(-1)) +
                        field(picture::kColorspace, channels) + field(picture::kEncoded, png);
  add_event(step,
            field(event::kSummary, field(summary::kValue, field(value::kTag, tag) + field(value::kImage, message))));
}

}  // namespace sf::train
