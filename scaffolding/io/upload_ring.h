// UploadRing: tensors on their way to a GPU, of a file or of a model in memory. Mapped pages are copied into a ring of
// pinned buffers (SF_UPLOAD_BUFFERS of SF_UPLOAD_BUFFER_MB), from there the GPU takes them while the next buffer is
// filled, and the pages are released as they are read: the host holds the ring and one buffer's worth of pages,
// however large the file is.
// Owns its buffers, which go back to the system with it. Thread-safe.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/core/tensor.h"

namespace sf::io {

class UploadRing {
 public:
  // The one of that device that somebody loads with now, or a new one. Null for devices that share the host's memory.
  static std::shared_ptr<UploadRing> of(Device device);
  // The same for tensors in memory, of that many bytes together: null as well where a buffer would not fill,
  // or while a CUDA graph is captured.
  static std::shared_ptr<UploadRing> of(Device device, size_t bytes);
  explicit UploadRing(Device device);
  ~UploadRing();  // waits for what is under way
  UploadRing(const UploadRing&) = delete;
  UploadRing& operator=(const UploadRing&) = delete;

  // The tensor on the device in the layout it has, converted there where a floating one is wanted in another dtype.
  // Queued on the current stream, not waited for; `from` has been read when this returns.
  Tensor upload(const Tensor& from, std::optional<DType> dtype = {});
  void finish();  // waits until all that was uploaded is on the device

 private:
  struct Buffer {
    char* data = nullptr;
    EventHandle copied = nullptr;
    bool in_flight = false;
  };
  void push(char* dst, const char* src, size_t bytes);
  void next_buffer();
  void mark();  // the current buffer may be filled anew when what the stream has by now is done

  Device device_;
  Accelerator& gpu_;
  size_t buffer_bytes_;
  std::mutex mutex_;
  std::vector<Buffer> buffers_;
  size_t current_ = 0, filled_ = 0;  // bytes of the current buffer
  StreamHandle stream_ = nullptr;
};

// A tensor of a file where it is wanted: as to_device and to_dtype, but by the ring where there is one.
Tensor placed(const Tensor& from_file, Device device, UploadRing* ring, std::optional<DType> dtype = {});

}  // namespace sf::io
