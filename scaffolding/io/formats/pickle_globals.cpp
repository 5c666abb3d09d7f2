// What names in pickles mean: torch's, OrderedDict's and NumPy's own ways of storing themselves. Everything else is
// refused or becomes a placeholder that does nothing.
#include <cstring>

#include "scaffolding/io/formats/pickle.h"
#include "scaffolding/io/tensor_bytes.h"

namespace sf::io {

namespace {

struct StorageType {
  std::string_view name;
  DType dtype;
};
constexpr StorageType kStorages[] = {
    {"FloatStorage", kFloat32}, {"HalfStorage", kFloat16}, {"BFloat16Storage", kBFloat16}, {"DoubleStorage", kFloat64},
    {"LongStorage", kInt64},    {"IntStorage", kInt32},    {"ShortStorage", kInt16},       {"CharStorage", kInt8},
    {"ByteStorage", kUInt8},    {"BoolStorage", kBool},    {"UntypedStorage", kUInt8}};

constexpr std::string_view kKnown[] = {"collections.OrderedDict",
                                       "collections.Counter",
                                       "builtins.set",
                                       "builtins.bytearray",
                                       "builtins.bytes",
                                       "builtins.complex",
                                       "_codecs.encode",
                                       "argparse.Namespace",
                                       "torch.Size",
                                       "torch.device",
                                       "torch._utils._rebuild_tensor",
                                       "torch._utils._rebuild_tensor_v2",
                                       "torch._utils._rebuild_tensor_v3",
                                       "torch._utils._rebuild_parameter",
                                       "torch._utils._rebuild_parameter_with_state",
                                       "torch._tensor._rebuild_from_type_v2",
                                       "torch.Tensor",
                                       "torch.nn.parameter.Parameter",
                                       "numpy.dtype",
                                       "numpy.ndarray",
                                       "numpy.core.multiarray.scalar",
                                       "numpy.core.multiarray._reconstruct",
                                       "numpy._core.multiarray.scalar",
                                       "numpy._core.multiarray._reconstruct",
                                       "numpy.core.numeric._frombuffer",
                                       "numpy._core.numeric._frombuffer"};

Object global(std::string_view name) { return Object(name, Object::Global); }

// The arguments of one call, checked one by one.
struct Arguments {
  const std::string& file;
  const std::string& callable;
  std::vector<Object>& items;

  [[noreturn]] void wrong(size_t i, const char* wanted) const {
    fail(file, ": ", callable, " needs ", wanted, " as argument ", i, ", got ",
         i < items.size() ? Object::name(items[i].kind()) : "nothing");
  }
  void count(size_t at_least, size_t at_most) const {
    SF_CHECK(items.size() >= at_least && items.size() <= at_most, file, ": ", callable, " takes ", at_least, " to ",
             at_most, " arguments, got ", items.size());
  }
  const Object& get(size_t i, Object::Kind kind) const {
    if (i >= items.size() || !items[i].is(kind)) wrong(i, Object::name(kind));
    return items[i];
  }
  int64_t integer(size_t i) const { return get(i, Object::Int).as_int(); }
  Shape shape(size_t i) const {
    if (i >= items.size() || !items[i].is_sequence()) wrong(i, "a tuple of ints");
    auto& list = items[i].items();
    SF_CHECK(list.size() <= size_t(kMaxDims), file, ": a tensor has ", list.size(), " dimensions, at most ", kMaxDims,
             " are supported");
    Shape s;
    for (auto& o : list) {
      if (!o.is(Object::Int)) wrong(i, "a tuple of ints");
      s.push_back(o.as_int());
    }
    return s;
  }
};

Object rebuild_tensor(const Arguments& a, const UnpickleOptions& options) {
  SF_CHECK(options.rebuild_tensor, a.file, ": the pickle has tensors but no storages");
  bool v3 = a.callable == "torch._utils._rebuild_tensor_v3";
  a.count(v3 ? 7 : 4, v3 ? 8 : 7);
  const Object& storage = a.get(0, Object::Storage);
  DType t;
  if (v3) t = a.get(6, Object::Type).as_dtype();
  else
    SF_CHECK_AS(NotSupported, dtype_of_storage(storage.text(), t), a.file, ": holds a tensor of ", storage.text(),
                ", a type that Scaffolding cannot hold");
  Tensor tensor = options.rebuild_tensor(storage, a.integer(1), a.shape(2), a.shape(3), t);
  if (a.items.size() > 4 && a.get(4, Object::Bool).as_bool() && is_floating(t)) tensor.requires_grad_();
  return Object(tensor, false, storage.items().at(0).text());
}

// Python attributes of a tensor, or with its slots in a tuple, which tensors have none of.
void set_attributes(const std::string& file, Object& tensor, const Object& state) {
  bool pair = state.is(Object::Tuple) && state.items().size() == 2;
  const Object& attributes = pair ? state.items()[0] : state;
  SF_CHECK(attributes.is(Object::Dict) || attributes.is(Object::None), file, ": a tensor has ",
           Object::name(attributes.kind()), " as its attributes");
  tensor.node()->state = attributes;
}

// ---- NumPy: a dtype is made from its short name and then given its byte order; an array is empty at first.

constexpr std::string_view kNumpyDtype = "numpy.dtype:";  // text of the Global that stands for one, followed by "f4"

DType numpy_dtype(const std::string& file, const Object& o) {
  SF_CHECK(o.is(Object::Global) && o.text().starts_with(kNumpyDtype), file, ": a NumPy value has ",
           Object::name(o.kind()), " as its dtype");
  std::string_view name = std::string_view(o.text()).substr(kNumpyDtype.size());
  constexpr std::pair<std::string_view, DType> types[] = {{"f2", kFloat16}, {"f4", kFloat32}, {"f8", kFloat64},
                                                          {"i1", kInt8},    {"i2", kInt16},   {"i4", kInt32},
                                                          {"i8", kInt64},   {"u1", kUInt8},   {"b1", kBool}};
  for (auto& [n, t] : types)
    if (n == name) return t;
  fail<NotSupported>(file, ": holds a NumPy value of dtype ", std::string(name), ", which Scaffolding cannot hold");
}

Object numpy_scalar(const Arguments& a) {
  a.count(2, 2);
  DType t = numpy_dtype(a.file, a.items[0]);
  const std::string& bytes = a.get(1, Object::Blob).text();
  SF_CHECK(bytes.size() == size_of(t), a.file, ": a NumPy ", t, " has ", bytes.size(), " bytes");
  Tensor one = tensor_of_bytes(Bytes::borrow(bytes.data(), bytes.size(), a.file), {}, t, Copy::Always);
  if (t == kBool) return one.item() != 0;
  return is_floating(t) ? Object(one.item()) : Object(one.item_int());
}

// The positions are those of the arguments: an array is stored in two ways.
Tensor numpy_array(const Arguments& a, size_t shape, size_t dtype, bool fortran, size_t bytes) {
  DType t = numpy_dtype(a.file, a.items[dtype]);
  if (!a.items[bytes].is(Object::ByteArray)) a.get(bytes, Object::Blob);
  const std::string& text = a.items[bytes].text();
  return array_of_bytes(Bytes::borrow(text.data(), text.size(), a.file), a.shape(shape), t, fortran, Copy::Always);
}
Object array_from_buffer(const Arguments& a) {
  a.count(4, 4);
  return Object(numpy_array(a, 2, 1, a.get(3, Object::String).text() == "F", 0));
}
Tensor array_from_state(const std::string& file, const Object& state) {
  std::string callable = "numpy.ndarray";
  Arguments a{file, callable, state.items()};
  a.count(5, 5);
  return numpy_array(a, 1, 2, a.get(3, Object::Bool).as_bool(), 4);
}

// Python 3 writes bytes under protocol 2 as text in which every character stands for a byte.
Object encode_latin1(const Arguments& a) {
  a.count(2, 2);
  const std::string& text = a.get(0, Object::String).text();
  SF_CHECK(a.get(1, Object::String).text() == "latin1", a.file, ": bytes are encoded as '", a.items[1].text(),
           "', not latin1");
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    auto c = uint8_t(text[i]);
    if (c >= 0x80) {
      SF_CHECK((c == 0xc2 || c == 0xc3) && i + 1 < text.size() && (uint8_t(text[i + 1]) & 0xc0) == 0x80, a.file,
               ": latin1 text has a character over 255");
      c = uint8_t((c << 6) | (uint8_t(text[++i]) & 0x3f));
    }
    bytes += char(c);
  }
  return Object(bytes, Object::Blob);
}

}  // namespace

bool dtype_of_storage(std::string_view type, DType& out) {
  for (auto& s : kStorages)
    if (s.name == type) return out = s.dtype, true;
  return false;
}

std::string_view storage_of_dtype(DType t) {
  for (auto& s : kStorages)
    if (s.dtype == t) return s.name;
  return {};
}

Object find_global(const std::string& file, std::string_view module, std::string_view name, bool placeholders) {
  if (module == "__builtin__") module = "builtins";  // Python 2's name, which protocol 2 keeps
  std::string full = std::string(module) + "." + std::string(name);
  if (module == "torch") {
    DType t;
    if (dtype_from_name(name, t)) return t;
  }
  if ((module == "torch" || module == "torch.cuda" || module == "torch.storage") && name.ends_with("Storage"))
    return global(name);
  for (auto known : kKnown)
    if (full == known) return global(full);
  SF_CHECK(placeholders, file, ": refers to ", full,
           ", which is not among the names that checkpoints may use; placeholders=True reads the file with inert "
           "objects in its place");
  return global(full);
}

Object reduce_global(const std::string& file, const Object& callable, const Object& arguments,
                     const UnpickleOptions& options) {
  SF_CHECK(callable.is(Object::Global), file, ": the pickle calls ", Object::name(callable.kind()));
  const std::string& name = callable.text();
  Arguments a{file, name, arguments.items()};
  if (name == "collections.OrderedDict") {
    a.count(0, 1);
    Object dict = Object::container(Object::OrderedDict);
    if (a.items.empty()) return dict;
    for (auto& pair : a.get(0, Object::List).items()) {  // Python 2 passed a list of [key, value]
      SF_CHECK(pair.is_sequence() && pair.items().size() == 2 &&
                   (!pair.items()[0].node() || pair.items()[0].is(Object::String)),
               file, ": OrderedDict takes pairs of key and value");
      dict.items().push_back(pair.items()[0]);
      dict.items().push_back(pair.items()[1]);
    }
    return dict;
  }
  if (name == "collections.Counter") {
    a.count(0, 1);
    return Object::container(Object::Counter, a.items.empty() ? std::vector<Object>() : a.get(0, Object::Dict).items());
  }
  if (name == "builtins.set") {
    a.count(0, 1);
    Object set =
        Object::container(Object::Set, a.items.empty() ? std::vector<Object>() : a.get(0, Object::List).items());
    for (auto& o : set.items())
      SF_CHECK(!o.node() || o.is(Object::String) || o.is(Object::Blob), file, ": a set holds ", Object::name(o.kind()));
    return set;
  }
  if (name == "builtins.complex") {
    a.count(2, 2);
    return Object::container(Object::Complex, {a.get(0, Object::Float), a.get(1, Object::Float)});
  }
  if (name == "builtins.bytearray" || name == "builtins.bytes") {
    a.count(0, 2);
    return Object(a.items.empty() ? "" : a.get(0, Object::Blob).text(),
                  name == "builtins.bytes" ? Object::Blob : Object::ByteArray);
  }
  if (name == "_codecs.encode") return encode_latin1(a);
  if (name == "torch.Size") {
    a.count(0, 1);
    if (!a.items.empty()) a.shape(0);
    return Object::container(Object::Size, a.items.empty() ? std::vector<Object>() : a.items[0].items());
  }
  if (name == "torch.device") {
    a.count(1, 2);
    std::string text = a.get(0, Object::String).text();
    return Object(a.items.size() == 2 ? text + ":" + std::to_string(a.integer(1)) : text, Object::DeviceName);
  }
  if (name.starts_with("torch._utils._rebuild_tensor")) return rebuild_tensor(a, options);
  if (name.starts_with("torch._utils._rebuild_parameter")) {  // ..._with_state: with Python attributes
    a.count(2, 4);
    const Object& data = a.get(0, Object::TensorValue);
    Tensor t = data.tensor().detach();
    if (a.get(1, Object::Bool).as_bool() && is_floating(t.dtype())) t.requires_grad_();
    Object parameter(t, true, data.text());
    if (a.items.size() == 4) set_attributes(file, parameter, a.items[3]);
    return parameter;
  }
  if (name == "torch._tensor._rebuild_from_type_v2") {  // (how to make it, class, arguments, attributes)
    a.count(4, 4);
    SF_CHECK(a.get(0, Object::Global).text().starts_with("torch._utils._rebuild_"), file, ": ", name, " calls ",
             a.items[0].text());
    Object made = reduce_global(file, a.items[0], a.get(2, Object::Tuple), options);
    set_attributes(file, made, a.items[3]);
    return made;
  }
  if (name == "numpy.dtype") {
    a.count(1, 3);
    return global(std::string(kNumpyDtype) + a.get(0, Object::String).text());
  }
  if (name.ends_with("core.numeric._frombuffer")) return array_from_buffer(a);
  if (name.ends_with("core.multiarray.scalar")) return numpy_scalar(a);
  if (name.ends_with("core.multiarray._reconstruct")) return Object(empty({0}, kUInt8));  // filled by build_state
  Object instance = Object::container(Object::Instance, a.items);
  instance.node()->text = name;
  return instance;
}

void build_state(const std::string& file, Object& object, const Object& state) {
  if (object.is(Object::OrderedDict)) {  // attributes, such as a module's _metadata
    SF_CHECK(state.is(Object::Dict), file, ": an OrderedDict has ", Object::name(state.kind()), " as its attributes");
    object.node()->state = state;
  } else if (object.is(Object::Global) && object.text().starts_with(kNumpyDtype)) {
    SF_CHECK(state.is(Object::Tuple) && state.items().size() >= 2 && state.items()[1].is(Object::String), file,
             ": a NumPy dtype has a state of another kind");
    const std::string& order = state.items()[1].text();
    SF_CHECK_AS(NotSupported, order == "<" || order == "|" || order == "=", file,
                ": holds NumPy values of byte order '", order, "'");
  } else if (object.is(Object::TensorValue) && object.tensor().numel() == 0 && state.is(Object::Tuple)) {
    object.node()->tensor = array_from_state(file, state);  // in its node, which the memo may have already
  } else if (object.is(Object::Instance)) {
    object.node()->state = state;
  } else {
    fail(file, ": the pickle gives ", Object::name(object.kind()), " a state");
  }
}

}  // namespace sf::io
