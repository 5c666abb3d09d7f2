#include "scaffolding/backend/cuda/tables.h"

#include <map>
#include <mutex>
#include <string>

#include "scaffolding/backend/cuda/capture.h"

namespace sf::cuda {

namespace {

constexpr size_t kMostBytes = size_t(64) << 20;  // of all tables of a device

struct Tables {
  std::mutex mutex;
  std::map<std::string, DeviceTable, std::less<>> by_content;
  size_t bytes = 0;
};

}  // namespace

DeviceTable device_table(Device device, const void* bytes, size_t size) {
  static auto* const all = new Tables[kMaxDevices];  // never destroyed, as the allocator
  Tables& tables = all[device.index];
  std::string_view content(static_cast<const char*>(bytes), size);
  std::lock_guard lock(tables.mutex);
  CudaGraph* graph = CudaGraph::recording();
  if (auto at = tables.by_content.find(content); at != tables.by_content.end()) {
    if (graph) graph->keep_alive(at->second);  // its replays read the table
    return at->second;
  }
  if (graph) refuse_while_capturing("copy", "making a small table (sizes, filters) of this call for the first time");
  if (tables.bytes + size > kMostBytes) {
    DeviceScope scope(device.index);
    check(cudaDeviceSynchronize(), "copy");  // kernels that read them have ended; whose handle lives keeps its table
    tables.by_content.clear();
    tables.bytes = 0;
  }
  auto table = std::make_shared<const Scratch>(device, size);
  if (size > 0) {
    DeviceScope scope(device.index);
    Stream stream = Stream::current(device.index);
    check(cudaMemcpyAsync(table->as<void>(), bytes, size, cudaMemcpyHostToDevice, stream.handle), "copy");
    stream.synchronize();  // the bytes are the caller's, and other streams may read the table from now on
  }
  tables.by_content.emplace(content, table);
  tables.bytes += size;
  return table;
}

}  // namespace sf::cuda
