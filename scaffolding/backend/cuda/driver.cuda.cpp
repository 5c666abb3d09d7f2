#include "scaffolding/backend/cuda/driver.h"

#include <dlfcn.h>

#include <atomic>

#include "scaffolding/backend/cuda/device.h"
#include "scaffolding/core/error.h"

namespace sf::cuda {

void require_driver() {
  // Asked of the loader: the runtime reports a missing driver as a driver that is too old.
  if (dlopen("libcuda.so.1", RTLD_LAZY)) return;
  const char* why = dlerror();
  fail<RuntimeError>("the NVIDIA driver is missing: ", why ? why : "libcuda.so.1 cannot be opened");
}

void* driver_function(const char* name) {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY);
  return driver ? dlsym(driver, name) : nullptr;
}

// As the driver's header declares it, which need not be there.
using PrimaryContextState = int (*)(int device, unsigned* flags, int* active);

bool has_context(int device) {
  static std::atomic<bool> known[kMaxDevices];  // nobody resets one
  if (known[device]) return true;
  static const auto state = reinterpret_cast<PrimaryContextState>(driver_function("cuDevicePrimaryCtxGetState"));
  unsigned flags = 0;
  int active = 0;
  if (!state || state(device, &flags, &active) != 0) return true;  // as where nobody can ask
  if (active) known[device] = true;
  return active != 0;
}

}  // namespace sf::cuda
