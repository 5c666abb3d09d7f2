#include "scaffolding/io/upload_ring.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/core/env.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/io/file.h"
#include "scaffolding/ops/copy/copy.h"

namespace sf::io {

std::shared_ptr<UploadRing> UploadRing::of(Device device) {
  if (!device.is_cuda()) return nullptr;
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<UploadRing>> rings;
  std::lock_guard lock(mutex);
  auto& known = rings[device.index];
  auto ring = known.lock();
  if (!ring) known = ring = std::make_shared<UploadRing>(device);
  return ring;
}

std::shared_ptr<UploadRing> UploadRing::of(Device device, size_t bytes) {
  if (!device.is_cuda() || bytes == 0 || cuda::CudaGraph::recording()) return nullptr;
  auto ring = of(device);
  return bytes < ring->buffer_bytes_ ? nullptr : ring;
}

UploadRing::UploadRing(Device device) : device_(device), gpu_(accelerator(device)) {
  int64_t megabytes = env::integer("SF_UPLOAD_BUFFER_MB"), count = env::integer("SF_UPLOAD_BUFFERS");
  SF_CHECK(megabytes >= 1 && megabytes <= 4096, "SF_UPLOAD_BUFFER_MB must lie between 1 and 4096, got ", megabytes);
  SF_CHECK(count >= 2 && count <= 64, "SF_UPLOAD_BUFFERS must lie between 2 and 64, got ", count);
  buffer_bytes_ = size_t(megabytes) << 20;
  buffers_.resize(size_t(count));
}

UploadRing::~UploadRing() {
  try {
    finish();
    for (Buffer& b : buffers_) {
      if (b.copied) gpu_.destroy_event(device_.index, b.copied);
      gpu_.release_pinned(b.data);
    }
    gpu_.empty_pinned_cache();
  } catch (const Error&) {
    // A broken context: nothing of it can be given back.
  }
}

void UploadRing::mark() {
  Buffer& b = buffers_[current_];
  if (!b.copied) b.copied = gpu_.make_event(device_.index, false);
  gpu_.record_event(device_.index, b.copied, stream_);
  b.in_flight = true;
}

void UploadRing::next_buffer() {
  if (buffers_[current_].data) current_ = (current_ + 1) % buffers_.size();
  Buffer& b = buffers_[current_];
  if (!b.data) b.data = static_cast<char*>(gpu_.allocate_pinned(buffer_bytes_));
  if (b.in_flight) gpu_.synchronize_event(device_.index, b.copied);
  b.in_flight = false;
  filled_ = 0;
}

void UploadRing::push(char* dst, const char* src, size_t bytes) {
  constexpr int64_t kPiece = 1 << 20;  // bytes that are worth a thread: reading a mapped page waits for the disk
  if (bytes == 0) return;
  std::lock_guard lock(mutex_);
  StreamHandle stream = gpu_.current_stream(device_.index);
  if (stream != stream_ && filled_ > 0) next_buffer();  // a buffer's event covers one stream
  stream_ = stream;
  while (bytes > 0) {
    if (!buffers_[current_].data || filled_ == buffer_bytes_) next_buffer();
    char* at = buffers_[current_].data + filled_;
    size_t n = std::min(bytes, buffer_bytes_ - filled_);
    parallel_for(int64_t(n), kPiece,
                 [&](int64_t begin, int64_t end) { std::memcpy(at + begin, src + begin, size_t(end - begin)); });
    gpu_.copy_async(dst, device_, at, Device(), n);
    mark();
    release_mapped(src, n);
    filled_ = std::min(buffer_bytes_, (filled_ + n + 255) / 256 * 256);
    dst += n, src += n, bytes -= n;
  }
}

Tensor UploadRing::upload(const Tensor& from, std::optional<DType> dtype) {
  SF_CHECK_AS(RuntimeError, !cuda::CudaGraph::recording(),
              "load: not allowed while a CUDA graph is captured, since a replay reads no file; load before");
  Tensor dense = packed(from.detach()), to = empty_strided(from.shape(), dense.strides(), from.dtype(), device_);
  push(static_cast<char*>(to.data_ptr()), static_cast<const char*>(dense.data_ptr()), dense.nbytes());
  return dtype && is_floating(to.dtype()) ? to_dtype(to, *dtype) : to;
}

void UploadRing::finish() {
  std::lock_guard lock(mutex_);
  for (Buffer& b : buffers_)
    if (b.in_flight) gpu_.synchronize_event(device_.index, b.copied);
}

Tensor placed(const Tensor& from_file, Device device, UploadRing* ring, std::optional<DType> dtype) {
  if (ring && from_file.device().is_cpu()) return ring->upload(from_file, dtype);
  Tensor t = to_device(from_file, device);
  return dtype && is_floating(t.dtype()) ? to_dtype(t, *dtype) : t;
}

}  // namespace sf::io
