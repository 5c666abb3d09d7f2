#include "scaffolding/ops/conv/conv_columns.h"

#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/walk.cuh"

namespace sf::cuda {
namespace {

struct alignas(16) Sixteen {
  uint64_t v[2];
};

// Channels are counted in units of up to 16 bytes, which lie side by side in the image and in the matrix.
struct Units {
  const void* image;
  void* col;
  uint32_t total;
  Divider units, taps[3], rows, out[3];
  int64_t size[3], stride[3], padding[3], dilation[3], pixel_units, group_units, first_picture;
  uint32_t first;  // row, counted from first_picture's
  bool backwards;
};

template <class U> __global__ void __launch_bounds__(kThreads) write_units(Units c) {
  uint32_t i = blockIdx.x * uint32_t(kThreads) + threadIdx.x;
  if (i >= c.total) return;
  auto split = [](uint32_t& rest, const Divider& by) {
    uint32_t q = by.quotient(rest), r = rest - q * by.d;
    rest = q;
    return int64_t(r);
  };
  uint32_t rest = i;
  int64_t unit = split(rest, c.units), tap[3];
  for (int d = 2; d >= 0; --d) tap[d] = split(rest, c.taps[d]);
  uint32_t row = c.first + uint32_t(split(rest, c.rows));
  int64_t group = rest, out[3];
  for (int d = 2; d >= 0; --d) out[d] = split(row, c.out[d]);
  bool inside = true;
  int64_t from = c.first_picture + row;
  for (int d = 0; d < 3; ++d) {
    int64_t at = c.backwards ? out[d] + c.padding[d] - tap[d] * c.dilation[d]
                             : out[d] * c.stride[d] - c.padding[d] + tap[d] * c.dilation[d];
    if (c.backwards && c.stride[d] > 1) {
      inside = inside && at % c.stride[d] == 0;
      at = at < 0 ? -1 : at / c.stride[d];
    }
    inside = inside && at >= 0 && at < c.size[d];
    from = from * c.size[d] + at;
  }
  static_cast<U*>(c.col)[i] =
      inside ? static_cast<const U*>(c.image)[from * c.pixel_units + group * c.group_units + unit] : U{};
}

}  // namespace

void write_columns(const ConvColumns& c) {
  int64_t bytes = c.channels * int64_t(size_of(c.dtype)), unit = 16;
  while (bytes % unit != 0 || reinterpret_cast<uintptr_t>(c.image) % uintptr_t(unit) != 0 ||
         reinterpret_cast<uintptr_t>(c.col) % uintptr_t(unit) != 0)
    unit /= 2;
  Units u{};
  u.image = c.image, u.col = c.col;
  u.group_units = bytes / unit, u.pixel_units = u.group_units * c.groups;
  u.total = uint32_t(c.groups * c.rows * c.kernel[0] * c.kernel[1] * c.kernel[2] * u.group_units);
  if (u.total == 0) return;
  u.units = Divider(uint32_t(u.group_units)), u.rows = Divider(uint32_t(c.rows));
  for (int d = 0; d < 3; ++d) {
    u.taps[d] = Divider(uint32_t(c.kernel[d])), u.out[d] = Divider(uint32_t(c.out[d]));
    u.size[d] = c.size[d], u.stride[d] = c.stride[d], u.padding[d] = c.padding[d], u.dilation[d] = c.dilation[d];
  }
  int64_t pixels = c.out[0] * c.out[1] * c.out[2];
  SF_CHECK_AS(NotSupported, pixels + c.rows <= INT32_MAX, "conv: an output of ", pixels,
              " pixels a picture is too large for CUDA without cuDNN");
  u.first_picture = c.first / pixels, u.first = uint32_t(c.first % pixels), u.backwards = c.backwards;
  unsigned blocks = blocks_for(u.total, 1);
  switch (unit) {
    case 16: return launch("conv", c.device, blocks, write_units<Sixteen>, u);
    case 8: return launch("conv", c.device, blocks, write_units<uint64_t>, u);
    case 4: return launch("conv", c.device, blocks, write_units<uint32_t>, u);
    case 2: return launch("conv", c.device, blocks, write_units<uint16_t>, u);
    default: return launch("conv", c.device, blocks, write_units<uint8_t>, u);
  }
}

}  // namespace sf::cuda
