// Large pictures and videos [..., H, W] in overlapping tiles with blended seams, as diffusers' autoencoders have them.
#pragma once
#include <algorithm>

#include "scaffolding/core/error.h"
#include "scaffolding/core/stopping.h"
#include "scaffolding/models/parts/seamless.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

// Writes into the first `extent` entries of b along dim a passage from the last ones of a, which lies before it.
// Returns b.
Tensor blend(const Tensor& a, Tensor b, int64_t dim, int64_t extent);

// Along height, or along width.
struct Tiling {
  int64_t size, step;    // of tiles in the input, and from one to the next
  int64_t extent, kept;  // of the result's tiles: rows (columns) that are blended, and those that are kept
};
// ValueError naming `who` for tiles that are no larger than their overlap.
void check_tiling(const char* who, const Tiling& t);

// take(f of a row of overlapping tiles of x, put together, the share of rows that are done), from the top down. Each
// tile is blended with the one above and the one on its left, as those are after their own blending. Stopped before a
// tile where that is asked for.
template <class F, class Take>
void in_rows_of_tiles(const char* who, const Tensor& x, const Tiling& down, const Tiling& across, const F& f,
                      const Take& take) {
  check_tiling(who, down);
  check_tiling(who, across);
  const int64_t h = x.ndim() - 2, w = x.ndim() - 1;
  Tensors above;  // of each tile the rows that are blended into the next one
  for (int64_t i = 0; i < x.size(h); i += down.step) {
    Tensors row, kept;
    for (int64_t j = 0; j < x.size(w); j += across.step) {
      stop_here(who);
      Tensor tile = f(x.slice(h, i, i + down.size).slice(w, j, j + across.size));
      size_t column = row.size();
      if (i > 0) tile = blend(above[column], tile, h, down.extent);
      if (j > 0) tile = blend(row.back(), tile, w, across.extent);
      kept.push_back(tile.slice(h, 0, down.kept).slice(w, 0, across.kept));
      row.push_back(std::move(tile));
    }
    const Tensor together = cat(kept, w);
    kept.clear();
    above.clear();
    for (Tensor& tile : row) {
      const int64_t blended = std::clamp<int64_t>(down.extent, 0, tile.size(h));
      above.push_back(tile.narrow(h, tile.size(h) - blended, blended).clone());
      tile = {};
    }
    take(together, std::min(1.0, double(i + down.step) / double(x.size(h))));
  }
}

// f of overlapping tiles of x, put together.
template <class F>
Tensor in_tiles(const char* who, const Tensor& x, const Tiling& down, const Tiling& across, const F& f) {
  Tensors rows;
  in_rows_of_tiles(who, x, down, across, f, [&](const Tensor& row, double) { rows.push_back(row); });
  return cat(rows, x.ndim() - 2);
}

// tiles(x) of a picture [B, C, H, W] whose sides meet along `axes`, of tiles of that size that overlap so far: where it
// has several, x goes on beyond its right and lower border by an overlap, and what comes of that is blended into the
// other side, as tiles are into each other.
template <class Tiles>
Tensor joined_at_borders(const Tensor& x, int64_t size, int64_t overlap, SeamlessAxes axes, const Tiles& tiles) {
  const int64_t right = axes.x && x.size(3) > size ? overlap : 0, below = axes.y && x.size(2) > size ? overlap : 0;
  if (right + below == 0) return tiles(x);
  const Tensor wide = pad(x, {0, right, 0, below}, "circular");
  Tensor out = tiles(wide);
  for (auto [dim, beyond] : {std::pair{int64_t(3), right}, {int64_t(2), below}}) {
    const int64_t extent = beyond * out.size(dim) / wide.size(dim);
    out = blend(out, out.narrow(dim, 0, out.size(dim) - extent), dim, extent);
  }
  return out.contiguous();
}

// f of one sample of the batch at a time, where that is on.
template <class F> Tensor in_slices(const Tensor& x, bool slicing, const F& f) {
  if (!slicing || x.size(0) < 2) return f(x);
  Tensors parts;
  for (int64_t i = 0; i < x.size(0); ++i) {
    if (i > 0) stop_here("autoencoder");
    parts.push_back(f(x.narrow(0, i, 1)));
  }
  return cat(parts);
}

}  // namespace sf::models
