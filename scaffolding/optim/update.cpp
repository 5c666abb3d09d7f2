#include "scaffolding/optim/update.h"

#include <charconv>
#include <cmath>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/cpu/sealed_pages.h"
#include "scaffolding/ops/copy/copy.h"

namespace sf::optim {

void check_update(const char* rule, const Update& u) {
  check_floating(rule, "param", u.param);
  SF_CHECK_AS(TypeError, !is_float8(u.param.dtype()), rule, ": a param of ", u.param.dtype(),
              " cannot be trained; train a wider one and convert it");
  check_floating(rule, "grad", u.grad);
  check_shape(rule, "grad", u.grad, u.param.shape());
  check_same_device(rule, u.param, u.grad);
}

DType state_dtype(const Tensor& param) { return param.dtype() == kFloat64 ? kFloat64 : kFloat32; }

bool is_dense(const Tensor& t) {
  const TensorImpl& i = *t.impl();
  if (i.contiguous || i.numel < 2) return true;
  Shape sizes, strides;  // those that matter, by growing stride
  for (int64_t d = 0; d < i.sizes.size(); ++d) {
    if (i.sizes[d] == 1) continue;
    int64_t at = 0;
    while (at < strides.size() && strides[at] < i.strides[d]) ++at;
    sizes.insert(at, i.sizes[d]);
    strides.insert(at, i.strides[d]);
  }
  int64_t want = 1;
  for (int64_t d = 0; d < sizes.size(); ++d) {
    if (strides[d] != want) return false;
    want *= sizes[d];
  }
  return true;
}

bool same_layout(const Tensor& a, const Tensor& b) {
  const TensorImpl &x = *a.impl(), &y = *b.impl();
  if (x.contiguous && y.contiguous) return true;
  for (int64_t d = 0; d < x.sizes.size(); ++d)
    if (x.sizes[d] != 1 && x.strides[d] != y.strides[d]) return false;
  return true;
}

Tensor laid_out_as(const Tensor& t, const Tensor& param) {
  if (same_layout(t, param)) return t;
  Tensor y = empty_strided(param.shape(), param.strides(), t.dtype(), t.device());
  copy_bytes(y, t);
  return y;
}

void prepare_slot(const char* rule, const char* name, Tensor& slot, const Tensor& param, DType dtype) {
  if (!slot) {
    slot = zeros_like(param, dtype);
    return;
  }
  check_shape(rule, name, slot, param.shape());
  if (slot.device() != param.device()) slot = to_device(slot, param.device());
  if (slot.dtype() != dtype) slot = to_dtype(slot, dtype);
  if (!same_layout(slot, param)) slot = laid_out_as(slot, param);
}

void prepare_master(const char* rule, Tensor& slot, const Tensor& param) {
  if (!slot) slot = to_dtype(param.detach(), kFloat32);
  prepare_slot(rule, "master", slot, param, kFloat32);
}

void prepare_step(Tensor& slot) {
  if (slot && slot.dtype() == kFloat32 && slot.numel() == 1 && slot.device().is_cpu()) return;
  double count = slot ? slot.item() : 0;
  slot = zeros({}, kFloat32, Device());
  slot.fill_(count);
}

double advance_step(Tensor& slot) {
  float& count = *static_cast<float*>(slot.data_ptr());
  autograd::bump_version(slot);
  return count += 1;
}

void with_dense_params(std::span<Update> updates, void (*f)(void*, std::span<Update>), void* context) {
  std::vector<std::pair<size_t, Tensor>> views;
  for (size_t i = 0; i < updates.size(); ++i)
    if (!is_dense(updates[i].param)) {
      views.push_back({i, updates[i].param});
      updates[i].param = contiguous(updates[i].param.detach());
    }
  for (const Update& u : updates) {
    cpu::will_write(u.param);
    for (const Tensor& slot : u.slots) cpu::will_write(slot);
  }
  f(context, updates);
  for (auto& [i, view] : views) {
    view.detach().copy_(updates[i].param);
    updates[i].param = view;
  }
}

std::string python_number(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char text[64];
  auto end = std::to_chars(text, text + sizeof text, v).ptr;
  std::string s(text, end);
  return s.find_first_of(".e") == s.npos ? s + ".0" : s;
}

}  // namespace sf::optim
