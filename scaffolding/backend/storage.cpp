#include "scaffolding/core/storage.h"

#include "scaffolding/backend/backend.h"
#include "scaffolding/backend/cpu/packed_weights.h"

namespace sf {

Ref<Storage> Storage::allocate(size_t bytes, Device device) {
  auto s = Ref<Storage>::fresh(new Storage);
  s->device = device;
  if (device.type == Device::CPU && bytes <= kInline && bytes > 0) s->data = s->small;
  else s->data = device.type == Device::CPU ? cpu::allocate(bytes) : backend(device).allocate(bytes, device.index);
  s->bytes = bytes;
  return s;
}

Ref<Storage> Storage::borrow(void* data, size_t bytes, Device device, std::function<void()> give_back) {
  auto s = Ref<Storage>::fresh(new Storage);
  s->device = device;
  s->data = data;
  s->bytes = bytes;
  s->lender = new std::function<void()>(std::move(give_back));
  return s;
}

void Storage::destroy(Storage* s) {
  if (s->packed) cpu::forget_packed(s->data, s->bytes);
  if (s->lender) {
    (*s->lender)();
    delete s->lender;
  } else if (s->device.type == Device::CPU) {
    if (s->data != s->small) cpu::release(s->data, s->bytes);
  } else if (s->data || s->device.is_meta()) {  // null when the backend had none to give, or is missing altogether
    backend(s->device).release(s->data, s->bytes, s->device.index);
  }
  delete s;
}

}  // namespace sf
