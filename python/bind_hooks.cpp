// Hooks on gradients, and on tensors saved for backward.
#include <unordered_set>

#include "bind_autograd.h"
#include "py_callable.h"
#include "scaffolding/autograd/tape.h"

namespace sf::py {

namespace {

// A hook may be removed while it runs, and its list is being walked: it is emptied then and erased when the next one is added.
struct Hook {
  Held function;
};
struct HookHandle {
  uint64_t id = 0;
  std::shared_ptr<Hook> hook;
};

uint64_t next_id() {
  static uint64_t id = 0;
  return ++id;
}
std::unordered_set<uint64_t>& removed_ids() {
  static std::unordered_set<uint64_t> ids;
  return ids;
}
template <class List> void purge(List& list) {
  std::erase_if(list, [](const auto& entry) { return removed_ids().erase(entry.first) != 0; });
}

Tensor call_gradient_hook(const Hook& hook, const Tensor& g) {
  nb::gil_scoped_acquire gil;
  Held function = hook.function;
  if (!function) return {};
  nb::object result = function.get()(steal(wrap(g)));
  if (result.is_none()) return {};
  SF_CHECK_AS(TypeError, is_tensor(result.ptr()), "hook: must return a tensor or None, got ", Py_TYPE(result.ptr())->tp_name);
  return tensor_of(result.ptr());
}

HookHandle register_hook(const Tensor& t, nb::handle function) {
  SF_CHECK_AS(RuntimeError, t.requires_grad(), "register_hook: the tensor does not require a gradient");
  SF_CHECK_AS(TypeError, PyCallable_Check(function.ptr()), "register_hook: hook must be callable");
  HookHandle handle{next_id(), std::make_shared<Hook>(Hook{Held(function)})};
  auto call = [hook = handle.hook](const Tensor& g) { return call_gradient_hook(*hook, g); };
  autograd::Edge e = autograd::edge_of(t);
  if (e.leaf) {
    auto& hooks = autograd::meta_of(t).hooks;
    purge(hooks);
    hooks.push_back({handle.id, call});
  } else {
    if (!e.node->hooks) e.node->hooks = std::make_unique<autograd::Node::Hooks>();
    auto& hooks = e.node->hooks->tensor_hooks;
    purge(hooks);
    hooks.push_back({handle.id, {e.nr, call}});
  }
  return handle;
}

HookHandle register_post_accumulate_grad_hook(const Tensor& t, nb::handle function) {
  SF_CHECK_AS(RuntimeError, t.requires_grad() && t.is_leaf(), "register_post_accumulate_grad_hook: needs a leaf that requires a gradient");
  SF_CHECK_AS(TypeError, PyCallable_Check(function.ptr()), "register_post_accumulate_grad_hook: hook must be callable");
  HookHandle handle{next_id(), std::make_shared<Hook>(Hook{Held(function)})};
  auto& hooks = autograd::meta_of(t).post_accumulate;
  purge(hooks);
  hooks.push_back({handle.id, [hook = handle.hook](const Tensor& leaf) {
                     nb::gil_scoped_acquire gil;
                     Held function = hook->function;
                     if (function) function.get()(steal(wrap(leaf)));
                   }});
  return handle;
}

void remove(HookHandle& handle) {
  if (!handle.hook || !handle.hook->function) return;
  handle.hook->function = {};
  removed_ids().insert(handle.id);
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
  auto handle = nb::class_<HookHandle>(m, "RemovableHandle");
  handle.def("remove", &remove, "Takes the hook off.")
      .def_ro("id", &HookHandle::id)
      .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__exit__", [](HookHandle& self, nb::args) { remove(self); });
  handle.attr("__module__") = "scaffolding.utils.hooks";
  tensor_method("register_hook", &register_hook, nb::arg("hook"), "Calls hook(grad) when this tensor's gradient is known; what it returns replaces the gradient.");
  tensor_method("register_post_accumulate_grad_hook", &register_post_accumulate_grad_hook, nb::arg("hook"),
                "Calls hook(leaf) after its gradient was added to .grad.");
  auto saved = nb::class_<SavedHooks>(m, "_SavedHooks");
  saved.def(nb::init<nb::handle, nb::handle>()).def("enter", &SavedHooks::enter).def("exit", &SavedHooks::exit);
}

}  // namespace sf::py
