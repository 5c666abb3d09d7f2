#include "scaffolding/train/picture_grid.h"

#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::train {

Tensor picture_grid(const Tensors& pictures, int64_t columns) {
  SF_CHECK(!pictures.empty() && columns > 0, "picture_grid: needs pictures and columns, got ", pictures.size(), " and ",
           columns);
  Tensors rows;
  for (size_t i = 0; i < pictures.size(); i += size_t(columns)) {
    Tensors row;
    for (size_t j = i; j < i + size_t(columns); ++j)
      row.push_back(j < pictures.size() ? pictures[j] : full_like(pictures[0], 255));
    rows.push_back(cat(row, 2));
  }
  return cat(rows, 1);
}

}  // namespace sf::train
