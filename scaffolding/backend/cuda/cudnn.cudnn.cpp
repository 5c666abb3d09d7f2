#include "scaffolding/backend/cuda/cudnn.h"

#include <optional>

#include "scaffolding/backend/cuda/device.h"
#include "scaffolding/backend/library.h"

namespace sf::cuda::cudnn {

namespace {

struct Found {
  std::optional<Functions> functions;
  std::string missing;
};

Found look() {
  Found found;
  try {
    Library lib("libcudnn.so.9", reinterpret_cast<const void*>(&functions), "nvidia-cudnn-cu13");
    Functions f{};
    lib.find(f.version, "cudnnGetVersion");
    lib.find(f.error_string, "cudnnGetErrorString");
    lib.find(f.last_error, "cudnnGetLastErrorString");
    lib.find(f.create, "cudnnCreate");
    lib.find(f.destroy, "cudnnDestroy");
    lib.find(f.set_stream, "cudnnSetStream");
    lib.find(f.create_descriptor, "cudnnBackendCreateDescriptor");
    lib.find(f.destroy_descriptor, "cudnnBackendDestroyDescriptor");
    lib.find(f.finalize, "cudnnBackendFinalize");
    lib.find(f.set, "cudnnBackendSetAttribute");
    lib.find(f.get, "cudnnBackendGetAttribute");
    lib.find(f.execute, "cudnnBackendExecute");
    found.functions = f;
  } catch (const Error& e) {
    found.missing = e.what();
  }
  return found;
}

const Found& found() {
  static const Found f = look();
  return f;
}

}  // namespace

const Functions* functions() { return found().functions ? &*found().functions : nullptr; }
const std::string& missing() { return found().missing; }
const Functions& api() {
  SF_CHECK_AS(RuntimeError, functions(), missing());
  return *functions();
}

void check(Status status, const char* what) {
  if (status == kSuccess) [[likely]]
    return;
  char detail[1024] = "";
  api().last_error(detail, sizeof detail);
  std::string text = std::string("cuDNN: ") + what + ": " + api().error_string(status);
  if (*detail) text += std::string(" (") + detail + ")";
  throw Failure(status, text);
}

Handle handle(int device) {
  static std::mutex mutex;
  static Handle handles[kMaxDevices] = {};
  std::lock_guard lock(mutex);
  if (!handles[device]) {
    DeviceScope scope(device);
    OutsideCaptures outside;
    check(api().create(&handles[device]), "cudnnCreate");
  }
  return handles[device];
}

std::mutex& execution_lock() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace sf::cuda::cudnn
