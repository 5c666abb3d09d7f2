// Hooks on gradients, and on tensors saved for backward.
#include "bind_autograd.h"
#include "py_callable.h"
#include "scaffolding/autograd/hooks.h"
#include "scaffolding/autograd/tape.h"

namespace sf::py {

namespace {

Tensor call_gradient_hook(const Held& hook, const Tensor& g) {
  nb::gil_scoped_acquire gil;
  Held keep = hook;  // it may remove itself
  nb::object result = keep.get()(steal(wrap(g)));
  if (result.is_none()) return {};
  SF_CHECK_AS(TypeError, is_tensor(result.ptr()), "hook: must return a tensor or None, got ", Py_TYPE(result.ptr())->tp_name);
  return tensor_of(result.ptr());
}

Held callable(const char* op, nb::handle function) {
  SF_CHECK_AS(TypeError, PyCallable_Check(function.ptr()), op, ": hook must be callable");
  return Held(function);
}

autograd::HookHandle register_hook(const Tensor& t, nb::handle function) {
  return autograd::register_hook(t, [hook = callable("register_hook", function)](const Tensor& g) { return call_gradient_hook(hook, g); });
}

autograd::HookHandle register_post_accumulate_grad_hook(const Tensor& t, nb::handle function) {
  return autograd::register_post_accumulate_grad_hook(t, [hook = callable("register_post_accumulate_grad_hook", function)](const Tensor& leaf) {
    nb::gil_scoped_acquire gil;
    Held keep = hook;
    keep.get()(steal(wrap(leaf)));
  });
}

// saved_tensors_hooks(pack, unpack): pack(tensor) gives any object, unpack(object) a tensor again.
class SavedHooks {
 public:
  SavedHooks(const SavedHooks&) = delete;
  SavedHooks(nb::handle pack, nb::handle unpack) : pack_(pack), unpack_(unpack) {}
  void enter() {
    entered_.push_back(std::make_unique<autograd::SavedTensorHooks>([pack = pack_, unpack = unpack_](const Tensor& t) -> std::function<Tensor()> {
      nb::gil_scoped_acquire gil;
      Held packed(pack.get()(steal(wrap(t))));
      return [packed, unpack]() -> Tensor {
        nb::gil_scoped_acquire gil;
        nb::object o = unpack.get()(packed.get());
        SF_CHECK_AS(TypeError, is_tensor(o.ptr()), "saved_tensors_hooks: unpack must return a tensor, got ", Py_TYPE(o.ptr())->tp_name);
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

void bind_hooks(nb::module_& m) {
  auto handle = nb::class_<autograd::HookHandle>(m, "RemovableHandle");
  handle.def("remove", &autograd::HookHandle::remove, "Takes the hook off.")
      .def_prop_ro("id", &autograd::HookHandle::id)
      .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__exit__", [](autograd::HookHandle& self, nb::args) { self.remove(); });
  handle.attr("__module__") = "scaffolding.utils.hooks";
  tensor_method("register_hook", &register_hook, nb::arg("hook"),
                "Calls hook(grad) when this tensor's gradient is known; what it returns replaces the gradient.");
  tensor_method("register_post_accumulate_grad_hook", &register_post_accumulate_grad_hook, nb::arg("hook"),
                "Calls hook(leaf) after its gradient was added to .grad.");
  auto saved = nb::class_<SavedHooks>(m, "_SavedHooks");
  saved.def(nb::init<nb::handle, nb::handle>()).def("enter", &SavedHooks::enter).def("exit", &SavedHooks::exit);
}

}  // namespace sf::py
