// autograd.Function: ops whose forward and backward are Python code. The class itself is in autograd/function.py; here are
// the node that calls its backward and the tensors it saved.
#include <nanobind/stl/string.h>

#include <set>

#include "bind_autograd.h"
#include "py_callable.h"
#include "scaffolding/autograd/tape.h"

namespace sf::py {

namespace {

using autograd::Edge;
using autograd::Node;

// What ctx.save_for_backward kept. Outputs are kept as aliases off the tape: the node owns this, they must not own the node.
struct SavedTensors {
  struct Item {
    autograd::Saved saved;
    Tensor output;            // set instead of `saved` for outputs of the function
    uint32_t version = 0, nr = 0;
  };
  std::vector<Item> items;
  Node* owner = nullptr;      // null when the node is gone
  bool released = false;

  Tensors get() const {
    SF_CHECK_AS(RuntimeError, !released, "saved_tensors: freed by the first backward; pass retain_graph=True to it");
    Tensors out;
    for (auto& item : items) {
      if (!item.output) {
        out.push_back(item.saved ? item.saved.get() : Tensor());
        continue;
      }
      SF_CHECK_AS(RuntimeError, item.output.version() == item.version, "saved_tensors: an output of shape ", item.output.shape(),
                  " was modified in place after it was saved; clone it before");
      Tensor y = item.output.detach();
      if (owner && autograd::grad_enabled()) {
        y.impl()->grad_fn = Ref<Node>(owner);
        y.impl()->output_nr = item.nr;
      }
      out.push_back(y);
    }
    return out;
  }
};
struct SavedHandle {
  std::shared_ptr<SavedTensors> state;
};

class PythonNode final : public Node {
 public:
  PythonNode(const char* name, nb::handle function, nb::handle context) : Node(name), function_(function), context_(context), saved_(std::make_shared<SavedTensors>()) {
    saved_->owner = this;
  }
  ~PythonNode() override { saved_->owner = nullptr; }

  Tensors apply(Tensors& dys) override {
    nb::gil_scoped_acquire gil;
    bool materialize = nb::cast<bool>(context_.get().attr("_materialize_grads"));
    nb::list args;
    args.append(context_.get());
    for (size_t i = 0; i < outputs.size(); ++i) {
      Tensor dy = i < dys.size() ? dys[i] : Tensor();
      if (!dy && materialize) dy = zeros(outputs[i].shape, outputs[i].dtype, outputs[i].device);
      args.append(steal(wrap(dy)));
    }
    nb::object result = steal(PyObject_Call(function_.get().attr("backward").ptr(), nb::tuple(args).ptr(), nullptr));
    if (!PyTuple_Check(result.ptr()) && !PyList_Check(result.ptr())) result = nb::make_tuple(result);
    size_t count = nb::len(result);
    for (size_t i = edges.size(); i < count; ++i)
      SF_CHECK_AS(RuntimeError, nb::object(result[i]).is_none(), name(), ": backward returned ", int64_t(count), " gradients for ", int64_t(edges.size()), " inputs");
    SF_CHECK_AS(RuntimeError, count >= edges.size(), name(), ": backward returned ", int64_t(count), " gradients for ", int64_t(edges.size()), " inputs");
    Tensors dxs(edges.size());
    for (size_t i = 0; i < edges.size(); ++i) {
      nb::object g = result[i];
      if (g.is_none()) continue;
      SF_CHECK_AS(TypeError, is_tensor(g.ptr()), name(), ": backward must return tensors or None, got ", Py_TYPE(g.ptr())->tp_name, " for input ", int64_t(i));
      dxs[i] = tensor_of(g.ptr());
    }
    return dxs;
  }
  void release_saved() override {
    saved_->items.clear();
    saved_->released = true;
  }

  std::shared_ptr<SavedTensors> saved() const { return saved_; }

 private:
  Held function_, context_;
  std::shared_ptr<SavedTensors> saved_;
};

const char* lasting(const std::string& name) {   // nodes keep the pointer
  static std::set<std::string> names;
  return names.insert(name).first->c_str();
}

// After forward ran without recording: puts its outputs on the tape. Returns them, aliases where they were inputs.
nb::object attach(nb::handle function, nb::handle context, nb::tuple args, nb::tuple outputs, nb::tuple to_save, nb::tuple non_differentiable, nb::tuple dirty) {
  auto contains = [](nb::tuple items, PyObject* o) {
    for (nb::handle h : items)
      if (h.ptr() == o) return true;
    return false;
  };
  bool recording = false;
  Tensors inputs;
  for (nb::handle a : args) {
    inputs.push_back(is_tensor(a.ptr()) ? tensor_of(a.ptr()) : Tensor());
    recording = recording || inputs.back().requires_grad();
  }
  recording = recording && autograd::grad_enabled();
  std::string name = nb::cast<std::string>(nb::str(function.attr("__name__"))) + "Backward";
  auto* node = new PythonNode(lasting(name), function, context);
  Ref<Node> hold(node);
  for (auto& x : inputs) {
    SF_CHECK_AS(RuntimeError, !recording || !x || !x.impl()->inference, name, ": a tensor made in inference_mode cannot be recorded; clone it outside first");
    node->add_edge(x && recording ? autograd::edge_of(x) : Edge());
  }
  nb::list results;
  uint32_t nr = 0;
  for (nb::handle o : outputs) {
    if (!is_tensor(o.ptr())) {
      results.append(o);
      continue;
    }
    Tensor y = tensor_of(o.ptr());
    bool in_place = contains(dirty, o.ptr());
    bool is_input = std::any_of(inputs.begin(), inputs.end(), [&](const Tensor& x) { return x && x.is_same(y); });
    bool wanted = recording && is_floating(y.dtype()) && !contains(non_differentiable, o.ptr());
    if (is_input && !in_place) y = y.detach();
    if (in_place && wanted) autograd::check_inplace(lasting(name), y);
    node->outputs.push_back({y.shape(), y.dtype(), y.device()});
    if (wanted) {
      y.impl()->grad_fn = hold;
      y.impl()->output_nr = nr;
      y.impl()->base = {};
    }
    results.append(steal(wrap(y)));
    ++nr;
  }
  if (recording)
    for (nb::handle s : to_save) {
      SavedTensors::Item item;
      if (is_tensor(s.ptr())) {
        const Tensor& t = tensor_of(s.ptr());
        if (t.impl()->grad_fn == hold) {
          item.output = t.detach();
          item.version = t.version();
          item.nr = t.impl()->output_nr;
        } else {
          item.saved = autograd::save(t);
        }
      } else {
        SF_CHECK_AS(TypeError, s.is_none(), "save_for_backward: takes tensors and None, got ", Py_TYPE(s.ptr())->tp_name);
      }
      node->saved()->items.push_back(std::move(item));
    }
  context.attr("_saved") = nb::cast(SavedHandle{node->saved()});
  return nb::tuple(results);
}

}  // namespace

void bind_function(nb::module_& m) {
  nb::class_<SavedHandle>(m, "_SavedTensors").def("get", [](const SavedHandle& h) { return h.state->get(); });
  m.def("_attach_function", &attach);
}

}  // namespace sf::py
