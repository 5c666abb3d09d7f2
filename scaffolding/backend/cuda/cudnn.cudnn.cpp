#include "scaffolding/backend/cuda/cudnn.h"

#include <mutex>
#include <optional>

#include "scaffolding/backend/cuda/device.h"
#include "scaffolding/backend/cuda/queued.h"
#include "scaffolding/backend/cuda/relaxed.h"
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
const Functions& api() {
  SF_CHECK_AS(RuntimeError, functions(), found().missing);
  return *functions();
}

void check(Status status, const char* what) {
  if (status == kSuccess) [[likely]]
    return;
  char detail[1024] = "";
  api().last_error(detail, sizeof detail);
  std::string text = std::string("cuDNN: ") + what + ": " + api().error_string(status);
  if (*detail) text += std::string(" (") + detail + ")";
  if (status / 1000 == 5) text += suspects();  // its execution failed
  throw Failure(status, text);
}

namespace {

struct Started {
  std::once_flag once;
  Handle handle = nullptr;
  std::string missing;
};

constexpr Status kNoDeviceMemory = 4004;

Started& started(int device) {
  static Started all[kMaxDevices];
  Started& s = all[device];
  std::call_once(s.once, [&] {  // again on the next call where it throws
    if (!functions()) {
      s.missing = found().missing;
      return;
    }
    DeviceScope scope(device);
    Relaxed relaxed;
    try {
      check(api().create(&s.handle), "cudnnCreate");
    } catch (const Failure& f) {
      if (f.status == kNoDeviceMemory) throw;
      s.missing = f.what();
    }
  });
  return s;
}

}  // namespace

bool usable(int device, std::string* why) {
  Started& s = started(device);
  if (why) *why = s.missing;
  return s.handle != nullptr;
}

Handle handle(int device) {
  Started& s = started(device);
  SF_CHECK_AS(RuntimeError, s.handle, s.missing);
  return s.handle;
}

std::mutex& execution_lock() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace sf::cuda::cudnn
