// Object: what a checkpoint holds besides and around tensors: numbers, text, lists, dicts. The tree that pickles and
// GGUF metadata are read into and that sf.save writes. A handle: copies share a list or dict, as in Python.
// Not locked: distinct trees may be used from distinct threads.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "scaffolding/core/tensor.h"

namespace sf::io {

struct Node;

class Object {
 public:
  enum Kind : uint8_t {
    None,
    Bool,
    Int,
    Float,
    Type,  // a DType
    // with a Node:
    BigInt,       // text: little-endian two's complement, as pickles have it
    Complex,      // items: real, imaginary
    String,       // text
    Blob,         // text: Python's bytes
    ByteArray,    // text
    List,         // items
    Tuple,        // items
    Size,         // items: ints
    Set,          // items
    Dict,         // items: key, value, key, value ...
    OrderedDict,  // as Dict; state: a dict of attributes, or None
    Counter,      // as Dict
    TensorValue,  // tensor, parameter; text: the device that it was saved from; state: attributes, or None
    DeviceName,   // text
    Global,       // text: "module.name" of something that is not known here; never looked up, never called
    Instance,     // text: the class; items: constructor arguments; state
    Storage,      // while reading: text "FloatStorage", items: location
  };

  Object() = default;
  Object(bool v) : kind_(Bool), i_(v) {}
  Object(int64_t v) : kind_(Int), i_(v) {}
  Object(double v) : kind_(Float), d_(v) {}
  Object(DType t) : kind_(Type), i_(int64_t(t)) {}
  Object(std::string_view text, Kind kind = String);
  Object(const char* text) : Object(std::string_view(text)) {}
  Object(const Tensor& t, bool parameter = false, std::string_view location = "cpu");
  static Object container(Kind kind, std::vector<Object> items = {});

  Kind kind() const { return kind_; }
  bool is(Kind k) const { return kind_ == k; }
  bool is_dict() const { return kind_ == Dict || kind_ == OrderedDict || kind_ == Counter; }
  bool is_sequence() const { return kind_ == List || kind_ == Tuple || kind_ == Size; }

  // TypeError when the object is of another kind.
  bool as_bool() const;
  int64_t as_int() const;   // of a Bool too
  double as_float() const;  // of an Int too
  DType as_dtype() const;
  const std::string& text() const;
  const Tensor& tensor() const;
  std::vector<Object>& items() const;
  const Object* find(std::string_view key) const;  // the value of a string key in a dict; null without one
  Node* node() const { return node_.get(); }
  static const char* name(Kind kind);  // "an int", "a dict"

 private:
  Kind kind_ = None;
  union {
    int64_t i_ = 0;
    double d_;
  };
  Ref<Node> node_;
};

struct Node : RefCounted {
  std::string text;
  std::vector<Object> items;
  Object state;
  Tensor tensor;
  bool parameter = false;
  static void destroy(Node* n);
};

// Tensors of a tree with their names: keys joined with dots, list positions as numbers ("model.0.weight"). Each node is
// visited once, however often it occurs.
std::vector<std::pair<std::string, Tensor>> named_tensors(const Object& root);

}  // namespace sf::io
