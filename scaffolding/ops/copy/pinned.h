// Pinned host memory and copies that do not wait: pages that the GPU reads and writes by itself while the program goes
// on.
// What is copied without waiting to the host is there after a wait for the stream (or an event behind the copy);
// whoever writes into pinned memory that a copy still reads must wait before. Everything here is as torch's arguments
// pin_memory and non_blocking.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

Tensor empty_pinned(const Shape& size, std::optional<DType> dtype = {});  // RuntimeError without a GPU
Tensor pin_memory(const Tensor& input);  // itself where it is pinned; ValueError unless on the CPU
bool is_pinned(const Tensor& input);     // starts no GPU: false where none was used yet

// As without non_blocking, but between pinned memory and a GPU the call only queues the copy on the current stream, and
// a result on the CPU is pinned.
Tensor to_device(const Tensor& input, Device device, bool non_blocking);
Tensor& copy_into(Tensor& self, const Tensor& src, bool non_blocking);
void copy_bytes(const Tensor& dst, const Tensor& src, bool non_blocking);

}  // namespace sf
