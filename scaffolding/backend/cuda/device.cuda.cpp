#include "scaffolding/backend/cuda/device.h"

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cuda/arch.h"
#include "scaffolding/backend/cuda/driver.h"
#include "scaffolding/backend/cuda/queued.h"
#include "scaffolding/backend/dependent_launches.h"
#include "scaffolding/core/error.h"

namespace sf::cuda {

// What a kernel left behind, and every call says from then on.
static bool is_of_a_kernel(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure: return true;
    default: return false;
  }
}

void check(cudaError_t status, const char* op) {
  if (status == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();  // errors of one call are forgotten; a broken context stays broken
  fail<RuntimeError>(op, ": CUDA error: ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ")",
                     is_of_a_kernel(status) ? suspects() : "");
}

namespace {

thread_local int scoped_device = -1;  // of the innermost DeviceScope

std::string version_text(int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); }

int capability_of(int device) {
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cuda");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cuda");
  return major * 10 + minor;
}

[[noreturn]] void fail_no_code(int device, int capability) {
  fail<RuntimeError>("GPU ", device, " has compute capability ", capability / 10, ".", capability % 10,
                     "; this build has kernels for ", SF_CUDA_ARCHS, ". Rebuild with -DSF_CUDA_ARCHS=", capability);
}

// The compute capability of every GPU. Asking for it makes no context, so that GPUs nobody uses stay untouched.
std::vector<int> read_capabilities() {
  require_driver();
  int count = 0, version = 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorNoDevice) return {};
  if (status == cudaErrorInsufficientDriver && cudaDriverGetVersion(&version) == cudaSuccess)
    fail<RuntimeError>("the NVIDIA driver is too old: it supports CUDA ", version_text(version), ", this build needs ",
                       version_text(CUDART_VERSION));
  check(status, "cuda");
  std::vector<int> capabilities;
  bool usable = false;
  for (int i = 0; i < count && i < kMaxDevices; ++i) {
    capabilities.push_back(capability_of(i));
    usable = usable || runs_on(SF_CUDA_ARCHS, capabilities.back());
  }
  if (!usable && !capabilities.empty()) fail_no_code(0, capabilities[0]);
  return capabilities;
}

const std::vector<int>& capabilities() {
  static const std::vector<int> v = read_capabilities();  // throws again on the next call when it throws
  return v;
}

}  // namespace

int device_count() { return int(capabilities().size()); }

static void check_exists(int device) {
  SF_CHECK_AS(RuntimeError, device >= 0 && device < device_count(), "cuda:", device,
              ": not available: this machine has ", device_count(), " such device(s)");
}

const DeviceProperties& properties(int device) {
  struct Known {
    std::once_flag once;
    DeviceProperties properties;
  };
  static auto* const all = new Known[kMaxDevices];
  check_exists(device);
  Known& known = all[device];
  std::call_once(known.once, [&] {  // again on the next call where it throws
    cudaDeviceProp p;
    check(cudaGetDeviceProperties(&p, device), "cuda");
    known.properties = {p.name,  p.totalGlobalMem,      p.major,
                        p.minor, p.multiProcessorCount, p.maxThreadsPerMultiProcessor};
  });
  return known.properties;
}

void check_usable(int device) {
  check_exists(device);
  if (!runs_on(SF_CUDA_ARCHS, capabilities()[size_t(device)])) fail_no_code(device, capabilities()[size_t(device)]);
}

bool starts_early(int device) {
  if (!dependent_launches()) [[likely]]
    return false;
  static const int version = [] {
    int v = 0;
    check(cudaDriverGetVersion(&v), "cuda");
    return v;
  }();
  return version >= 12030 && capabilities()[size_t(device)] >= 90;
}

void allow_shared(const void* kernel, int bytes, int device, const char* op) {
  static thread_local std::map<std::pair<const void*, int>, int> allowed;
  int& most = allowed[{kernel, device}];
  if (most >= bytes) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), op);
  most = bytes;
}

DeviceScope::DeviceScope(int device) : outer_(scoped_device) {
  if (outer_ == device) return;
  if (device > 0 || device_count() > 1) {
    int previous = 0;
    check(cudaGetDevice(&previous), "cuda");
    previous_ = previous;
    changed_ = previous != device;
    if (changed_) check(cudaSetDevice(device), "cuda");
  }
  scoped_device = device;
}

// The current device of before, unless nobody has used it: cudaSetDevice would give it a context, half a gigabyte of
// its memory.
DeviceScope::~DeviceScope() {
  scoped_device = outer_;
  if (changed_ && has_context(previous_)) cudaSetDevice(previous_);
}

}  // namespace sf::cuda
