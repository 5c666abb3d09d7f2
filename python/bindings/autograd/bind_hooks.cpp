// Hooks on gradients, and on tensors saved for backward.
#include "python/bindings/autograd/bind_autograd.h"
#include "python/bindings/autograd/python_hooks.h"
#include "scaffolding/autograd/callback.h"
#include "scaffolding/autograd/hooks.h"
#include "scaffolding/autograd/tape.h"

namespace sf::py {

Tensor GradientHook::operator()(const Tensor& g) const {
  nb::gil_scoped_acquire gil;
  Held keep = function;  // it may remove itself
  nb::object result = keep.get()(steal(wrap(g)));
  if (result.is_none()) return {};
  SF_CHECK_AS(TypeError, is_tensor(result.ptr()), "hook: must return a tensor or None, got ", type_name(result.ptr()));
  return tensor_of(result.ptr());
}

void PostAccumulateHook::operator()(const Tensor& leaf) const {
  nb::gil_scoped_acquire gil;
  Held keep = function;
  keep.get()(steal(wrap(leaf)));
}

namespace {

// Calls f with every list of hooks that only this tensor owns.
template <class F> int each_list(const Tensor& t, const F& f) {
  TensorImpl* impl = t.impl();
  if (!impl || impl->refs.load() != 1) return 0;
  if (impl->meta && impl->meta->hooks)
    if (int stop = f(*impl->meta->hooks)) return stop;
  if (impl->meta && impl->meta->post_accumulate)
    if (int stop = f(*impl->meta->post_accumulate)) return stop;
  autograd::Node* node = impl->grad_fn.get();
  if (node && node->refs.load() == 1 && node->hooks && node->hooks->on_outputs) return f(*node->hooks->on_outputs);
  return 0;
}

const Held* callable_of(const autograd::HookEntry& e) {
  auto* hook = e.call.target<GradientHook>();
  return hook ? &hook->function : nullptr;
}
const Held* callable_of(const std::pair<uint64_t, std::function<void(const Tensor&)>>& e) {
  auto* hook = e.second.target<PostAccumulateHook>();
  return hook ? &hook->function : nullptr;
}

Held callable(const char* op, nb::handle function) {
  SF_CHECK_AS(TypeError, PyCallable_Check(function.ptr()), op, ": hook must be callable");
  return Held(function);
}

// From now on a cycle may pass through the tensor.
void track(nb::handle tensor) {
  if (!PyObject_GC_IsTracked(tensor.ptr())) PyObject_GC_Track(tensor.ptr());
}

autograd::HookHandle register_hook(nb::handle tensor, nb::handle function) {
  auto handle = autograd::register_hook(tensor_of(tensor.ptr()), GradientHook{callable("register_hook", function)});
  track(tensor);
  return handle;
}

autograd::HookHandle register_post_accumulate_grad_hook(nb::handle tensor, nb::handle function) {
  Held hook = callable("register_post_accumulate_grad_hook", function);
  auto handle = autograd::register_post_accumulate_grad_hook(tensor_of(tensor.ptr()), PostAccumulateHook{hook});
  track(tensor);
  return handle;
}

// saved_tensors_hooks(pack, unpack): pack(tensor) gives any object, unpack(object) a tensor again.
class SavedHooks {
 public:
  SavedHooks(const SavedHooks&) = delete;
  SavedHooks(nb::handle pack, nb::handle unpack) : pack_(pack), unpack_(unpack) {}
  void enter() {
    entered_.push_back(std::make_unique<autograd::SavedTensorHooks>(
        [pack = pack_, unpack = unpack_](const Tensor& t) -> std::function<Tensor()> {
          nb::gil_scoped_acquire gil;
          Held packed(pack.get()(steal(wrap(t))));
          return [packed, unpack]() -> Tensor {
            nb::gil_scoped_acquire gil;
            nb::object o = unpack.get()(packed.get());
            SF_CHECK_AS(TypeError, is_tensor(o.ptr()), "saved_tensors_hooks: unpack must return a tensor, got ",
                        type_name(o.ptr()));
            return tensor_of(o.ptr());
          };
        }));
  }
  void exit() { entered_.pop_back(); }

 private:
  Held pack_, unpack_;
  std::vector<std::unique_ptr<autograd::SavedTensorHooks>> entered_;
};

}  // namespace

int visit_hooks(const Tensor& t, visitproc visit, void* arg) {
  return each_list(t, [&](auto& list) {
    for (auto& entry : list)
      if (const Held* held = callable_of(entry); held && held->is_only_owner()) Py_VISIT(held->get().ptr());
    return 0;
  });
}

void clear_hooks(const Tensor& t) {
  each_list(t, [](auto& list) {
    auto gone = std::exchange(list, {});  // first empty, then destroyed: destroying runs Python code
    return 0;
  });
}

void bind_hooks(nb::module_& m) {
  auto handle = nb::class_<autograd::HookHandle>(m, "RemovableHandle", "A registered hook, until remove().");
  handle.def("remove", &autograd::HookHandle::remove, "Takes the hook off.")
      .def_prop_ro("id", &autograd::HookHandle::id)
      .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__exit__", [](autograd::HookHandle& self, nb::args) { self.remove(); });
  handle.attr("__module__") = "scaffolding.utils.hooks";
  tensor_method("register_hook", &register_hook, nb::arg("hook"),
                "Calls hook(grad) when this tensor's gradient is known; what it returns replaces the gradient.");
  tensor_method("register_post_accumulate_grad_hook", &register_post_accumulate_grad_hook, nb::arg("hook"),
                "Calls hook(leaf) after its gradient was added to .grad.");
  m.def(
      "_queue_callback",
      [](nb::handle function) {
        autograd::queue_callback([f = callable("queue_callback", function)] {
          nb::gil_scoped_acquire gil;
          f.get()();
        });
      },
      "Calls function once, when the outermost backward pass of this thread has done everything else.");
  auto saved = nb::class_<SavedHooks>(m, "_SavedHooks");
  saved.def(nb::init<nb::handle, nb::handle>()).def("enter", &SavedHooks::enter).def("exit", &SavedHooks::exit);
}

}  // namespace sf::py
