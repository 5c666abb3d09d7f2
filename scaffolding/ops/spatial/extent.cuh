// Dense images, volumes and sequences on the device: outer x size[0] x size[1] x size[2] x inner (spatial::Extent).
#pragma once
#include "scaffolding/backend/cuda/pointers.cuh"
#include "scaffolding/backend/cuda/walk.cuh"
#include "scaffolding/ops/spatial/kernel.h"

namespace sf::cuda {

// How a kernel finds the i-th unit (elements side by side along inner) of a part of such images: fewer than 2^31 of
// them, one after the other in memory.
struct Images {
  Divider units, x, y, z;  // of a pixel; of the part's size[2], size[1], size[0]
  uint32_t total = 0;
  uint32_t first_at[3] = {};
  int64_t first_outer = 0, first = 0;  // first: of all units

  struct Place {
    uint32_t unit, at[3];
    int64_t outer;
  };
  __device__ Place place(uint32_t i) const {
    Place p;
    auto split = [&](const Divider& by) {
      uint32_t q = by.quotient(i), r = i - q * by.d;
      i = q;
      return r;
    };
    p.unit = split(units);
    p.at[2] = split(x) + first_at[2];
    p.at[1] = split(y) + first_at[1];
    p.at[0] = split(z) + first_at[0];
    p.outer = first_outer + i;
    return p;
  }
};

// The number of the pixel [outer, d, h, w].
__device__ inline int64_t pixel_in(const spatial::Extent& e, int64_t outer, int64_t d, int64_t h, int64_t w) {
  return ((outer * e.size[0] + d) * e.size[1] + h) * e.size[2] + w;
}

// f(images) for all of e, in as few parts as there can be. units: of a pixel.
template <class F> void for_images(const spatial::Extent& e, int64_t units, const F& f) {
  int64_t size[4] = {e.outer, e.size[0], e.size[1], e.size[2]}, step[4];  // step: units from one to the next
  step[3] = units;
  for (int d = 2; d >= 0; --d) step[d] = step[d + 1] * size[d + 1];
  if (step[0] * size[0] == 0) return;
  int cut = 0;  // this dimension is cut, those before it go one by one, those behind it are whole
  while (step[cut] > INT32_MAX) ++cut;
  int64_t most = INT32_MAX / step[cut], before = 1;
  for (int d = 0; d < cut; ++d) before *= size[d];
  for (int64_t b = 0; b < before; ++b)
    for (int64_t at = 0, n; at < size[cut]; at += n) {
      n = size[cut] - at < most ? size[cut] - at : most;
      Images m;
      int64_t from[4] = {}, rest = b;
      for (int d = cut - 1; d >= 0; --d) from[d] = rest % size[d], rest /= size[d];
      from[cut] = at;
      auto whole = [&](int d) { return Divider(uint32_t(d < cut ? 1 : d == cut ? n : size[d])); };
      m.units = Divider(uint32_t(units)), m.x = whole(3), m.y = whole(2), m.z = whole(1);
      m.first_outer = from[0];
      for (int d = 0; d < 3; ++d) m.first_at[d] = uint32_t(from[d + 1]);
      for (int d = 0; d < 4; ++d) m.first += from[d] * step[d];
      m.total = uint32_t(n * step[cut]);
      f(m);
    }
}

}  // namespace sf::cuda
