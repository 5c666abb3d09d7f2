#include <bit>
#include <unordered_map>
#include <unordered_set>

#include "scaffolding/io/formats/pickle.h"

namespace sf::io {

namespace {

class Writer {
 public:
  explicit Writer(const std::function<PickledStorage(const Object&)>& persistent_id) : persistent_id_(persistent_id) {}

  std::string run(const Object& root) {
    out_ = "\x80\x02";
    write(root, 0);
    return std::move(out_) + ".";
  }

 private:
  template <class T> void raw(T v) { out_.append(reinterpret_cast<const char*>(&v), sizeof v); }
  void get(uint32_t index) {
    out_ += index < 256 ? 'h' : 'j';
    if (index < 256) raw(uint8_t(index));
    else raw(index);
  }
  uint32_t put() {
    uint32_t index = next_++;
    out_ += index < 256 ? 'q' : 'r';
    if (index < 256) raw(uint8_t(index));
    else raw(index);
    return index;
  }

  void global(const std::string& module_and_name) {  // "torch._utils _rebuild_tensor_v2"
    auto [it, fresh] = globals_.try_emplace(module_and_name, 0);
    if (!fresh) return get(it->second);
    out_ += 'c' + module_and_name + '\n';
    out_[out_.find(' ', out_.size() - module_and_name.size() - 1)] = '\n';
    it->second = put();
  }
  void text(std::string_view s) {
    SF_CHECK(s.size() <= UINT32_MAX, "save: a text of ", s.size(), " bytes is too long");
    out_ += 'X';
    raw(uint32_t(s.size()));
    out_ += s;
  }
  void integer(int64_t v) {
    if (v >= 0 && v < 256) {
      out_ += 'K';
      raw(uint8_t(v));
    } else if (v >= 0 && v < 65536) {
      out_ += 'M';
      raw(uint16_t(v));
    } else if (v >= INT32_MIN && v <= INT32_MAX) {
      out_ += 'J';
      raw(int32_t(v));
    } else {
      out_ += "\x8a\x08";
      raw(v);
    }
  }
  void number(double v) {
    out_ += 'G';
    raw(__builtin_bswap64(std::bit_cast<uint64_t>(v)));
  }
  void boolean(bool v) { out_ += v ? '\x88' : '\x89'; }
  void shape(const Shape& s) {
    out_ += '(';
    for (auto v : s) integer(v);
    out_ += 't';
  }
  void blob(std::string_view bytes) {  // as Python 3 does under protocol 2: text in which every character is a byte
    std::string utf8;
    for (char c : bytes) {
      auto b = uint8_t(c);
      if (b >= 0x80) utf8 += char(0xc0 | b >> 6);
      utf8 += b >= 0x80 ? char(0x80 | (b & 0x3f)) : c;
    }
    global("_codecs encode");
    text(utf8);
    text("latin1");
    out_ += "\x86R";
  }
  void empty_ordered_dict() {
    global("collections OrderedDict");
    out_ += ")R";
  }

  void tensor(const Object& o) {
    SF_CHECK(persistent_id_, "pickle: a tensor needs a place for its bytes");
    const Tensor& t = o.tensor();
    PickledStorage s = persistent_id_(o);
    bool untyped = s.type == "UntypedStorage", parameter = o.node()->parameter;
    if (parameter) {
      global("torch._utils _rebuild_parameter");
      out_ += '(';
    }
    global(untyped ? "torch._utils _rebuild_tensor_v3" : "torch._utils _rebuild_tensor_v2");
    out_ += "((";
    text("storage");
    global(untyped ? "torch.storage UntypedStorage" : "torch " + s.type);
    text(s.key);
    text(s.location);
    integer(s.numel);
    out_ += "tQ";
    integer(t.storage_offset());
    shape(t.shape());
    shape(t.strides());
    boolean(t.requires_grad() && !parameter);
    empty_ordered_dict();
    if (untyped) dtype(t.dtype());
    out_ += "tR";
    if (parameter) {
      boolean(t.requires_grad());
      empty_ordered_dict();
      out_ += "tR";
    }
  }
  void dtype(DType t) { global("torch " + std::string(name(t))); }

  void items(const std::vector<Object>& list, char one_or_more, int depth) {
    if (list.empty()) return;
    out_ += '(';
    for (auto& o : list) write(o, depth + 1);
    out_ += one_or_more;
  }

  // While it is written, a container is open: one that is met again then contains itself.
  struct Opened {
    std::unordered_set<const Node*>& open;
    const Node* node;
    Opened(std::unordered_set<const Node*>& o, const Node* n) : open(o), node(n) {
      if (node) open.insert(node);
    }
    ~Opened() {
      if (node) open.erase(node);
    }
  };

  void write(const Object& o, int depth) {
    SF_CHECK(depth <= kMaxPickleDepth, "save: the object is nested more than ", kMaxPickleDepth, " deep");
    if (o.node()) {
      SF_CHECK(!open_.count(o.node()), "save: ", Object::name(o.kind()), " contains itself");
      auto it = memo_.find(o.node());
      if (it != memo_.end()) return get(it->second);
    }
    Opened guard(open_, o.node());
    switch (o.kind()) {
      case Object::None: out_ += 'N'; return;
      case Object::Bool: return boolean(o.as_bool());
      case Object::Int: return integer(o.as_int());
      case Object::Float: return number(o.as_float());
      case Object::Type: return dtype(o.as_dtype());
      case Object::BigInt:
        SF_CHECK(o.text().size() <= INT32_MAX, "save: an int of ", o.text().size(), " bytes is too long");
        out_ += o.text().size() < 256 ? '\x8a' : '\x8b';
        if (o.text().size() < 256) raw(uint8_t(o.text().size()));
        else raw(uint32_t(o.text().size()));
        out_ += o.text();
        return;
      case Object::Complex:
        global("__builtin__ complex");
        number(o.items().at(0).as_float());
        number(o.items().at(1).as_float());
        out_ += "\x86R";
        return;
      case Object::String: text(o.text()); break;
      case Object::Blob: blob(o.text()); break;
      case Object::ByteArray:
        global("__builtin__ bytearray");
        blob(o.text());
        out_ += "\x85R";
        break;
      case Object::DeviceName:
        global("torch device");
        text(o.text());
        out_ += "\x85R";
        break;
      case Object::Size:
        global("torch Size");
        out_ += '(';
        for (auto& i : o.items()) integer(i.as_int());
        out_ += "t\x85R";
        break;
      case Object::Tuple:
        if (o.items().empty()) {
          out_ += ')';
          return;
        }
        items(o.items(), 't', depth);
        break;
      case Object::Set:
        global("__builtin__ set");
        out_ += ']';
        items(o.items(), 'e', depth);
        out_ += "\x85R";
        break;
      case Object::List:
        out_ += ']';
        remember(o);
        return items(o.items(), 'e', depth);
      case Object::Dict:
        out_ += '}';
        remember(o);
        return items(o.items(), 'u', depth);
      case Object::Counter:
        global("collections Counter");
        out_ += '}';
        items(o.items(), 'u', depth);
        out_ += "\x85R";
        break;
      case Object::OrderedDict:
        empty_ordered_dict();
        remember(o);
        items(o.items(), 'u', depth);
        if (!o.node()->state.is(Object::None)) {
          write(o.node()->state, depth + 1);
          out_ += 'b';
        }
        return;
      case Object::TensorValue: tensor(o); break;
      case Object::Global:
      case Object::Instance:
      case Object::Storage:
        fail<TypeError>("save: ", Object::name(o.kind()), " ('", o.text(),
                        "') cannot be saved: it stands for something that is not known here");
    }
    remember(o);
  }
  void remember(const Object& o) {
    if (o.node()->refs.load(std::memory_order_relaxed) > 1) memo_[o.node()] = put();
  }

  const std::function<PickledStorage(const Object&)>& persistent_id_;
  std::string out_;
  uint32_t next_ = 0;
  std::unordered_map<std::string, uint32_t> globals_;
  std::unordered_map<const Node*, uint32_t> memo_;
  std::unordered_set<const Node*> open_;
};

}  // namespace

std::string pickle(const Object& object, const std::function<PickledStorage(const Object&)>& persistent_id) {
  return Writer(persistent_id).run(object);
}

}  // namespace sf::io
