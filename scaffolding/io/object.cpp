#include "scaffolding/io/object.h"

#include <unordered_set>

namespace sf::io {

// Iterative: a list in a list in a list, a million deep, must not end the stack.
void Node::destroy(Node* n) {
  thread_local std::vector<Node*>* pending = nullptr;
  if (pending) return pending->push_back(n);
  std::vector<Node*> mine{n};
  pending = &mine;
  while (!mine.empty()) {
    Node* next = mine.back();
    mine.pop_back();
    delete next;
  }
  pending = nullptr;
}

Object::Object(std::string_view text, Kind kind) : kind_(kind), node_(Ref<Node>::fresh(new Node)) {
  node_->text = text;
}

Object::Object(const Tensor& t, bool parameter, std::string_view location) : Object(location, TensorValue) {
  node_->tensor = t;
  node_->parameter = parameter;
}

Object Object::container(Kind kind, std::vector<Object> items) {
  Object o({}, kind);
  o.node_->items = std::move(items);
  return o;
}

const char* Object::name(Kind kind) {
  constexpr const char* names[] = {"None",           "a bool",           "an int",   "a float",       "a dtype",
                                   "an int",         "a complex number", "a string", "bytes",         "a bytearray",
                                   "a list",         "a tuple",          "a Size",   "a set",         "a dict",
                                   "an OrderedDict", "a Counter",        "a tensor", "a device name", "a class",
                                   "an object",      "a storage"};
  return names[kind];
}

[[noreturn]] static void wrong(const char* wanted, Object::Kind got) {
  fail<TypeError>("checkpoint: needs ", wanted, ", got ", Object::name(got));
}

bool Object::as_bool() const { return kind_ == Bool ? i_ != 0 : (wrong("a bool", kind_), false); }
int64_t Object::as_int() const { return kind_ == Int || kind_ == Bool ? i_ : (wrong("an int", kind_), 0); }
double Object::as_float() const {
  return kind_ == Float ? d_ : kind_ == Int || kind_ == Bool ? double(i_) : (wrong("a number", kind_), 0.0);
}
DType Object::as_dtype() const { return kind_ == Type ? DType(i_) : (wrong("a dtype", kind_), kFloat32); }
const std::string& Object::text() const {
  if (!node_) wrong("text", kind_);
  return node_->text;
}
const Tensor& Object::tensor() const {
  if (kind_ != TensorValue) wrong("a tensor", kind_);
  return node_->tensor;
}
std::vector<Object>& Object::items() const {
  if (!node_) wrong("a container", kind_);
  return node_->items;
}

const Object* Object::find(std::string_view key) const {
  if (!is_dict()) return nullptr;
  for (size_t i = node_->items.size(); i >= 2; i -= 2)  // the last one counts, as in Python
    if (const Object& k = node_->items[i - 2]; k.is(String) && k.text() == key) return &node_->items[i - 1];
  return nullptr;
}

// Nested dicts can use one long key at every level: names would be longer than the file.
constexpr size_t kMaxName = 1 << 14;

std::vector<std::pair<std::string, Tensor>> named_tensors(const Object& root) {
  std::vector<std::pair<std::string, Tensor>> out;
  std::unordered_set<const Node*> seen;
  std::vector<std::pair<std::string, Object>> todo{{"", root}};
  while (!todo.empty()) {
    auto [path, o] = std::move(todo.back());
    todo.pop_back();
    if (o.is(Object::TensorValue)) {
      out.push_back({path, o.tensor()});
      continue;
    }
    if (!o.node() || !(o.is_dict() || o.is_sequence()) || !seen.insert(o.node()).second) continue;
    auto& items = o.items();
    size_t step = o.is_dict() ? 2 : 1;
    for (size_t i = items.size(); i >= step; i -= step) {  // backwards, so that the first is taken from the stack first
      const Object& key = items[i - step];
      std::string name = step == 1                ? std::to_string(i - 1)
                         : key.is(Object::String) ? key.text()
                         : key.is(Object::Int)    ? std::to_string(key.as_int())
                                                  : "";
      if (name.empty() && step == 2 && !key.is(Object::String)) continue;  // a key that has no spelling
      SF_CHECK(path.size() + name.size() < kMaxName, "checkpoint: the keys that lead to a tensor have more than ",
               kMaxName, " characters");
      todo.push_back({path.empty() ? name : path + "." + name, items[i - 1]});
    }
  }
  return out;
}

}  // namespace sf::io
