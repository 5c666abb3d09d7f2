// tall: a batch of products as one, for libraries that have no batch stride of 0.
#pragma once
#include "scaffolding/ops/matmul/kernel.h"

namespace sf::cuda {

// One tall product where b is shared by the batch and rows of a, c and pre follow on from entry to entry.
inline Gemm tall(Gemm g) {
  int64_t batch = g.c.sizes[0], m = g.c.sizes[1];
  auto follows_on = [&](const TensorView& t) {
    return t.strides[0] == m * t.strides[1] && (t.strides[2] == 1 || t.sizes[2] == 1);
  };
  if (batch == 1 || g.b.strides[0] != 0 || !follows_on(g.a) || !follows_on(g.c) || (g.pre && !follows_on(g.pre)))
    return g;
  for (TensorView* t : {&g.a, &g.c, &g.pre}) t->sizes[1] = batch * m, t->sizes[0] = 1;
  g.b.sizes[0] = 1;
  return g;
}

}  // namespace sf::cuda
