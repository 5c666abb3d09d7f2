// Moving and converting elements: clone, contiguous, to(dtype), to(device), copy_.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

Tensor to_dtype(const Tensor& input, DType dtype);     // the tensor itself when nothing changes
Tensor to_device(const Tensor& input, Device device);  // same layout where dense
Tensor clone(const Tensor& input);                     // own storage, same layout where dense
Tensor contiguous(const Tensor& input);                // the tensor itself when already row-major
Tensor to_channels_last(const Tensor& input);          // NHWC memory behind [N, C, ...] sizes

// Off the tape: the tensor itself where its elements fill a block of memory, in whatever order of dimensions;
// else a copy that does.
Tensor packed(const Tensor& input);

// Off the tape: dst's bytes become src's values (broadcast, converted, moved). Callers check shapes and versions.
void copy_bytes(const Tensor& dst, const Tensor& src);

}  // namespace sf
