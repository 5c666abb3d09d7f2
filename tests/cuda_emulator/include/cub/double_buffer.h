// cub::DoubleBuffer of CUB, for the stand-ins of its sorts.
#pragma once

namespace cub {

// Two buffers that passes go back and forth between; selector says which one holds what counts.
template <class T> struct DoubleBuffer {
  T* d_buffers[2];
  int selector = 0;
  DoubleBuffer(T* current, T* alternate) : d_buffers{current, alternate} {}
  T* Current() const { return d_buffers[selector]; }
  T* Alternate() const { return d_buffers[selector ^ 1]; }
};

}  // namespace cub
