// Finds and loads backends, and explains why one is missing.
#include <dlfcn.h>

#include <cstring>
#include <filesystem>
#include <mutex>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/backend/meta_memory.h"
#include "scaffolding/core/env.h"
#include "scaffolding/core/error.h"

namespace sf {

namespace {

class CpuBackend final : public Backend {
 public:
  void* allocate(size_t bytes, int) override { return cpu::allocate(bytes); }
  void release(void* data, size_t bytes, int) override { cpu::release(data, bytes); }
  void copy(void* dst, Device, const void* src, Device, size_t bytes) override { std::memcpy(dst, src, bytes); }
  void synchronize(int) override {}
  int device_count() override { return 1; }
};

// Meta tensors have shapes and no bytes.
class MetaBackend final : public Backend {
 public:
  void* allocate(size_t bytes, int) override {
    MetaMemory::count(int64_t(bytes));
    return nullptr;
  }
  void release(void*, size_t bytes, int) override { MetaMemory::count(-int64_t(bytes)); }
  void copy(void*, Device, const void*, Device, size_t) override {}
  void synchronize(int) override {}
  int device_count() override { return 1; }
};

CpuBackend g_cpu;
MetaBackend g_meta;
Backend* g_backends[kNumDeviceTypes] = {&g_cpu, nullptr, nullptr, &g_meta};
std::string g_why[kNumDeviceTypes];
std::once_flag g_cuda_once;

std::string beside_this_library() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&register_backend), &info) && info.dli_fname)
    return (std::filesystem::path(info.dli_fname).parent_path() / "libscaffolding_cuda.so").string();
  return "libscaffolding_cuda.so";
}

void load_cuda() {
  std::string path = env::text("SF_CUDA_LIBRARY");
  if (path.empty()) path = beside_this_library();
  if (!std::filesystem::exists(path)) {
    g_why[int(Device::CUDA)] = "libscaffolding_cuda.so is not at " + path + "; build with nvcc or set SF_CUDA_LIBRARY";
    return;
  }
  if (!dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) {
    g_why[int(Device::CUDA)] = dlerror();
    return;
  }
  Backend* b = g_backends[int(Device::CUDA)];
  if (!b) {
    g_why[int(Device::CUDA)] = path + " loaded but registered no backend";
    return;
  }
  try {
    if (b->device_count() == 0) g_why[int(Device::CUDA)] = "the driver reports no GPU";
  } catch (const Error& e) {
    g_why[int(Device::CUDA)] = e.what();
  }
  if (!g_why[int(Device::CUDA)].empty()) g_backends[int(Device::CUDA)] = nullptr;
}

}  // namespace

void register_backend(DeviceType type, Backend& b) { g_backends[int(type)] = &b; }

bool backend_available(DeviceType type, std::string* why_not) {
  if (type == Device::CUDA) std::call_once(g_cuda_once, load_cuda);
#if defined(__APPLE__)
  if (type == Device::MPS) return true;
#else
  if (type == Device::MPS) {
    if (why_not) *why_not = "Accelerate exists on macOS only; use device 'cpu' here";
    return false;
  }
#endif
  if (!g_backends[int(type)] && why_not) *why_not = g_why[int(type)];
  return g_backends[int(type)] != nullptr;
}

Accelerator* loaded_accelerator() { return static_cast<Accelerator*>(g_backends[int(Device::CUDA)]); }

Backend& backend(Device device) {
  if (device.type == Device::CPU) return g_cpu;
  if (device.type == Device::Meta) return g_meta;
  std::string why;
  SF_CHECK_AS(RuntimeError, backend_available(device.type, &why), device, ": not available: ", why);
  if (device.type == Device::MPS) return g_cpu;
  Backend& b = *g_backends[int(device.type)];
  SF_CHECK_AS(RuntimeError, device.index < b.device_count(), device, ": not available: this machine has ",
              b.device_count(), " such device(s)");
  return b;
}

}  // namespace sf
