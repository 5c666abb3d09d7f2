// Where a tensor's bytes are. "mps" is the CPU with Apple's Accelerate preferred; "meta" has shapes but no bytes.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace sf {

enum class DeviceType : uint8_t { CPU, CUDA, MPS, Meta };
inline constexpr int kNumDeviceTypes = 4;

struct Device {
  DeviceType type = DeviceType::CPU;
  int8_t index = 0;

  static constexpr DeviceType CPU = DeviceType::CPU, CUDA = DeviceType::CUDA, MPS = DeviceType::MPS,
                              Meta = DeviceType::Meta;
  constexpr Device() = default;
  constexpr Device(DeviceType t, int i = 0) : type(t), index(int8_t(i)) {}
  explicit Device(std::string_view text);  // "cpu", "cuda", "cuda:1", "mps", "meta"; ValueError otherwise
  std::string str() const;
  constexpr bool is_cpu() const { return type == CPU || type == MPS; }  // bytes in host memory
  constexpr bool is_cuda() const { return type == CUDA; }
  constexpr bool is_meta() const { return type == Meta; }
  friend constexpr bool operator==(const Device&, const Device&) = default;
};

}  // namespace sf
