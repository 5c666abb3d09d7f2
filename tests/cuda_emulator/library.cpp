// cudaLibraryLoadData and its like: kernels from the binaries that nvrtc.cpp makes.
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <module.h>
#include "cuda_runtime.h"
#include "streams.h"

struct EmulatedKernel {
  const cuda_emulator::ModuleKernel* module = nullptr;
};
struct EmulatedLibrary {
  std::map<std::string, EmulatedKernel> kernels;
};

namespace {

constexpr Elf64_Half kCudaMachine = 190;  // EM_CUDA

// A binary comes without its length: its sections' table is the last thing in it.
size_t bytes_of(const Elf64_Ehdr& h) { return size_t(h.e_shoff) + size_t(h.e_shentsize) * h.e_shnum; }

}  // namespace

cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption*, void**, unsigned jit_options,
                                cudaLibraryOption*, void**, unsigned options) {
  if (cudaError_t status = cuda_emulator::enter()) return status;
  if (!library || !code || jit_options > 0 || options > 0) return cuda_emulator::failed(cudaErrorInvalidValue);
  Elf64_Ehdr header;
  std::memcpy(&header, code, sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return cuda_emulator::failed(cudaErrorInvalidKernelImage);
  if (header.e_machine == kCudaMachine) {
    std::fprintf(stderr,
                 "CUDA emulator: this binary is for a GPU; let SF_CUDA_LIBRARY_PATH name the folder of the emulator's "
                 "libnvrtc.so.13\n");
    return cuda_emulator::failed(cudaErrorInvalidKernelImage);
  }
  int fd = memfd_create("kernels", MFD_CLOEXEC);
  if (fd < 0 || write(fd, code, bytes_of(header)) != ssize_t(bytes_of(header)))
    return cuda_emulator::failed(cudaErrorMemoryAllocation);
  // The file stays open: the loader takes an equal name for an equal library.
  // for as long as the process
  void* opened = dlopen(("/proc/self/fd/" + std::to_string(fd)).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!opened) std::fprintf(stderr, "CUDA emulator: %s\n", dlerror());
  auto* arch = opened ? static_cast<const int*>(dlsym(opened, "sf_emulated_arch")) : nullptr;
  auto* kernel =
      opened ? static_cast<const cuda_emulator::ModuleKernel*>(dlsym(opened, "sf_emulated_kernels")) : nullptr;
  if (!arch || !kernel) return cuda_emulator::failed(cudaErrorInvalidKernelImage);
  // A cubin runs on GPUs of its major version from its minor one on.
  int device = 0, major = 0, minor = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (*arch / 10 != major || *arch % 10 > minor) return cuda_emulator::failed(cudaErrorNoKernelImageForDevice);
  auto made = std::make_unique<EmulatedLibrary>();
  for (; kernel->name; ++kernel) made->kernels[kernel->name].module = kernel;
  *library = made.release();
  return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  if (cudaError_t status = cuda_emulator::enter()) return status;
  auto at = library->kernels.find(name);
  if (at == library->kernels.end()) return cuda_emulator::failed(cudaErrorSymbolNotFound);
  *kernel = &at->second;
  return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  if (cudaError_t status = cuda_emulator::enter()) return status;
  const auto& module = *static_cast<const EmulatedKernel*>(function)->module;
  // The driver copies as many bytes of each argument as the binary says, when it is called.
  struct Copies {
    std::vector<std::vector<char>> bytes;
    std::vector<const void*> values;
  };
  auto copies = std::make_shared<Copies>();
  for (unsigned i = 0; i < module.parameters; ++i) {
    const char* from = static_cast<const char*>(arguments[i]);
    copies->bytes.emplace_back(from, from + module.parameter_bytes[i]);
  }
  for (auto& b : copies->bytes) copies->values.push_back(b.data());
  return cuda_emulator::launch(*config, function, [copies, call = module.call] { call(copies->values.data()); });
}
