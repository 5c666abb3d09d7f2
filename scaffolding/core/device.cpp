#include "scaffolding/core/device.h"

#include <charconv>

#include "scaffolding/core/error.h"

namespace sf {

static constexpr std::string_view kNames[kNumDeviceTypes] = {"cpu", "cuda", "mps", "meta"};

Device::Device(std::string_view text) {
  auto colon = text.find(':');
  auto kind = text.substr(0, colon);
  for (int i = 0; i < kNumDeviceTypes; ++i) {
    if (kind != kNames[i]) continue;
    type = DeviceType(i);
    if (colon == text.npos) return;
    auto digits = text.substr(colon + 1);
    int value = -1;
    auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    SF_CHECK(ec == std::errc() && end == digits.data() + digits.size() && value >= 0 && value < 128 &&
                 (type == CUDA || value == 0),
             "device: '", text, "' has no such index");
    index = int8_t(value);
    return;
  }
  fail("device: must be cpu, cuda, cuda:N, mps or meta, got '", text, "'");
}

std::string Device::str() const {
  std::string s(kNames[int(type)]);
  return type == CUDA ? s + ":" + std::to_string(index) : s;
}

}  // namespace sf
