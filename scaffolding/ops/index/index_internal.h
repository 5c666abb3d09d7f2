// Shared by ops that take positions (index, embedding, one_hot, pad).
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::indexing {

// index as int64; TypeError for other than integers.
Tensor as_positions(const char* op, const char* name, const Tensor& index, const Device& device);
// IndexError unless every value of index (int64) is in [low, high). `dim` is named in the message, op a literal. On a
// GPU it is raised by the next call that waits for it: kernels that take such positions must leave out wrong ones.
void check_range(const char* op, const Tensor& index, int64_t low, int64_t high, int64_t dim);
// Whether all of ok, a bool tensor, is true, which waits for the device. In a captured graph nothing can wait:
// there a false is an IndexError of the next call that waits.
bool all_hold(const char* op, const Tensor& ok);

// x's slices of dim at positions (int64, 1-D, already checked); off the tape.
Tensor take_slices(const char* op, const Tensor& x, int64_t dim, const Tensor& position);

// Writes slices: out[..., offset[p], ...] = (or +=) src[..., p, ...], where out and src agree except in dim.
// position (int64, 1-D, already checked) numbers entries of out's dim; negative ones are left out.
void put_slices(const char* op, const Tensor& out, int64_t dim, const Tensor& position, const Tensor& src,
                bool accumulate);

}  // namespace sf::indexing
