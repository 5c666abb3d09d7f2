#include "scaffolding/io/formats/pickle.h"

#include <bit>
#include <unordered_map>

namespace sf::io {

namespace {

// The opcodes of protocols 2 to 5 (CPython's pickletools.py).
// Text opcodes of protocols 0 and 1 are left out but for GLOBAL.
enum Op : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kNone = 'N',
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kBinFloat = 'G',
  kBinUnicode = 'X',
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinString = 'T',
  kShortBinString = 'U',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kBinBytes8 = 0x8e,
  kByteArray8 = 0x96,
  kEmptyList = ']',
  kAppend = 'a',
  kAppends = 'e',
  kList = 'l',
  kEmptyTuple = ')',
  kTuple = 't',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kEmptyDict = '}',
  kDict = 'd',
  kSetItem = 's',
  kSetItems = 'u',
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kMemoize = 0x94,
  kGlobal = 'c',
  kStackGlobal = 0x93,
  kReduce = 'R',
  kBuild = 'b',
  kNewObj = 0x81,
  kNewObjEx = 0x92,
  kBinPersId = 'Q',
  kProto = 0x80,
  kFrame = 0x95,
};

class Machine {
 public:
  Machine(ByteReader& in, const UnpickleOptions& options)
      : in_(in), options_(options), budget_((uint64_t(16) << 20) + 8 * in.left()) {}
  // Lists may contain each other in a ring, which counting references never frees.
  ~Machine() {
    if (!finished_)
      for (auto& o : containers_) empty(o);
  }
  Machine(const Machine&) = delete;

  Object run() {
    for (uint64_t count = 0;; ++count) {
      SF_CHECK(count < kMaxPickleOperations, in_.name(), ": the pickle has more than ", kMaxPickleOperations,
               " operations");
      auto op = in_.get<uint8_t>();
      if (op == kStop) break;
      step(Op(op));
    }
    Object result = pop();
    check_nesting(result);
    finished_ = true;
    return result;
  }

 private:
  template <class... P> [[noreturn]] void refuse(const P&... why) const {
    fail(in_.name(), ": the pickle is damaged before byte ", in_.at(), ": ", why...);
  }

  void push(Object o) { stack_.push_back(std::move(o)); }
  void push_container(Object::Kind kind, std::vector<Object> items = {}) {
    push(Object::container(kind, std::move(items)));
    containers_.push_back(stack_.back());
  }
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Object pop() {
    if (stack_.size() <= floor()) refuse("it takes more from its stack than there is");
    Object o = std::move(stack_.back());
    stack_.pop_back();
    return o;
  }
  Object& top() {
    if (stack_.size() <= floor()) refuse("its stack is empty");
    return stack_.back();
  }
  std::vector<Object> pop_mark() {
    if (marks_.empty()) refuse("it takes away a mark that it did not set");
    std::vector<Object> items(std::make_move_iterator(stack_.begin() + int64_t(marks_.back())),
                              std::make_move_iterator(stack_.end()));
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }
  void push_tuple(size_t n) {
    std::vector<Object> items(n);
    while (n > 0) items[--n] = pop();
    push_container(Object::Tuple, std::move(items));
  }
  std::string_view sized_text(uint64_t n) { return in_.text(n); }

  void append(std::vector<Object> items) {
    Object& list = top();
    if (!list.is(Object::List)) refuse("it appends to ", Object::name(list.kind()));
    list.items().insert(list.items().end(), std::make_move_iterator(items.begin()),
                        std::make_move_iterator(items.end()));
  }
  void set_items(std::vector<Object> items) {
    Object& dict = top();
    if (!dict.is_dict()) refuse("it sets items of ", Object::name(dict.kind()));
    if (items.size() % 2) refuse("a key has no value");
    for (size_t i = 0; i < items.size(); i += 2) check_key(items[i], 0);
    dict.items().insert(dict.items().end(), std::make_move_iterator(items.begin()),
                        std::make_move_iterator(items.end()));
  }
  void check_key(const Object& key, int depth) const {
    switch (key.kind()) {
      case Object::List:
      case Object::Dict:
      case Object::OrderedDict:
      case Object::Counter:
      case Object::Set:
      case Object::ByteArray:
      case Object::TensorValue:
      case Object::Storage: refuse(Object::name(key.kind()), " is a key or in a set");
      case Object::Tuple:
        if (depth == 8) refuse("a key is nested too deep");
        for (auto& o : key.items()) check_key(o, depth + 1);
        break;
      default: break;
    }
  }

  void put(uint64_t index) { memo_[index] = top(); }
  const Object& get(uint64_t index) const {
    auto it = memo_.find(index);
    if (it == memo_.end()) refuse("it takes memo ", (unsigned long)(index), ", which it did not fill");
    return it->second;
  }

  static Object long_of(std::string_view bytes) {
    if (bytes.size() > 8) return Object(bytes, Object::BigInt);
    uint64_t v = bytes.empty() || uint8_t(bytes.back()) < 128 ? 0 : ~uint64_t(0);
    for (size_t i = bytes.size(); i-- > 0;) v = v << 8 | uint8_t(bytes[i]);
    return int64_t(v);
  }

  void call(const Object& callable, const Object& arguments) {
    if (!arguments.is(Object::Tuple)) refuse("arguments of a call are ", Object::name(arguments.kind()));
    push(reduce_global(in_.name(), callable, arguments, options_));
    if (!stack_.back().node()) return;
    containers_.push_back(stack_.back());
    spend(stack_.back());
  }
  // A call copies its arguments, and the memo can give it the same ones a million times:
  // a small file would fill the memory.
  void spend(const Object& made) {
    const Node& node = *made.node();
    const bool copied =
        made.is(Object::TensorValue) && !node.tensor.device().is_meta() && !node.tensor.storage()->lender;
    spent_ += node.text.size() + node.items.size() * sizeof(Object) + (copied ? node.tensor.nbytes() : 0);
    SF_CHECK(spent_ <= budget_, in_.name(), ": the pickle makes objects of more than ", budget_, " bytes by calls");
  }

  void step(Op op) {
    switch (op) {
      case kProto: {
        auto version = in_.get<uint8_t>();
        SF_CHECK(version >= 2 && version <= 5, in_.name(), ": is a pickle of protocol ", int(version),
                 "; protocols 2 to 5 are read");
        return;
      }
      case kFrame: return void(in_.get<uint64_t>());
      case kMark: return marks_.push_back(stack_.size());
      case kPop:
        if (!marks_.empty() && marks_.back() == stack_.size()) return marks_.pop_back();
        return void(pop());
      case kPopMark: return void(pop_mark());
      case kDup: return push(Object(top()));
      case kNone: return push({});
      case kNewTrue: return push(true);
      case kNewFalse: return push(false);
      case kBinInt: return push(int64_t(in_.get<int32_t>()));
      case kBinInt1: return push(int64_t(in_.get<uint8_t>()));
      case kBinInt2: return push(int64_t(in_.get<uint16_t>()));
      case kLong1: return push(long_of(sized_text(in_.get<uint8_t>())));
      case kLong4: return push(long_of(sized_text(in_.get<uint32_t>())));
      case kBinFloat: return push(std::bit_cast<double>(__builtin_bswap64(in_.get<uint64_t>())));
      case kBinUnicode: return push(sized_text(in_.get<uint32_t>()));
      case kShortBinUnicode: return push(sized_text(in_.get<uint8_t>()));
      case kBinUnicode8: return push(sized_text(in_.get<uint64_t>()));
      case kBinString: return push(sized_text(in_.get<uint32_t>()));  // Python 2's str: text, where checkpoints have it
      case kShortBinString: return push(sized_text(in_.get<uint8_t>()));
      case kBinBytes: return push(Object(sized_text(in_.get<uint32_t>()), Object::Blob));
      case kShortBinBytes: return push(Object(sized_text(in_.get<uint8_t>()), Object::Blob));
      case kBinBytes8: return push(Object(sized_text(in_.get<uint64_t>()), Object::Blob));
      case kByteArray8: return push(Object(sized_text(in_.get<uint64_t>()), Object::ByteArray));
      case kEmptyList: return push_container(Object::List);
      case kAppend: {
        Object item = pop();
        return append({std::move(item)});
      }
      case kAppends: return append(pop_mark());
      case kList: return push_container(Object::List, pop_mark());
      case kEmptyTuple: return push_container(Object::Tuple);
      case kTuple: return push_container(Object::Tuple, pop_mark());
      case kTuple1: return push_tuple(1);
      case kTuple2: return push_tuple(2);
      case kTuple3: return push_tuple(3);
      case kEmptyDict: return push_container(Object::Dict);
      case kDict: {
        auto items = pop_mark();
        push_container(Object::Dict);
        return set_items(std::move(items));
      }
      case kSetItem: {
        Object value = pop(), key = pop();
        return set_items({std::move(key), std::move(value)});
      }
      case kSetItems: return set_items(pop_mark());
      case kEmptySet: return push_container(Object::Set);
      case kAddItems: {
        auto items = pop_mark();
        if (!top().is(Object::Set)) refuse("it adds to ", Object::name(top().kind()));
        for (auto& o : items) check_key(o, 0);
        auto& set = top().items();
        return void(set.insert(set.end(), items.begin(), items.end()));
      }
      case kBinGet: return push(get(in_.get<uint8_t>()));
      case kLongBinGet: return push(get(in_.get<uint32_t>()));
      case kBinPut: return put(in_.get<uint8_t>());
      case kLongBinPut: return put(in_.get<uint32_t>());
      case kMemoize: return put(memo_.size());
      case kGlobal: {
        std::string_view module = in_.line(1024), name = in_.line(1024);
        return push(find_global(in_.name(), module, name, options_.placeholders));
      }
      case kStackGlobal: {
        Object name = pop(), module = pop();
        if (!name.is(Object::String) || !module.is(Object::String))
          refuse("the name of a global is ", Object::name(name.kind()));
        return push(find_global(in_.name(), module.text(), name.text(), options_.placeholders));
      }
      case kReduce:
      case kNewObj: {
        Object arguments = pop(), callable = pop();
        return call(callable, arguments);
      }
      case kNewObjEx: {
        Object keywords = pop(), arguments = pop(), callable = pop();
        if (!keywords.is(Object::Dict) || !keywords.items().empty()) refuse("an object is made with keyword arguments");
        return call(callable, arguments);
      }
      case kBuild: {
        Object state = pop();
        build_state(in_.name(), top(), state);
        if (top().is(Object::TensorValue)) spend(top());
        return;
      }
      case kStop: break;
      case kBinPersId: {
        Object id = pop();
        SF_CHECK(options_.persistent_load, in_.name(), ": the pickle refers to storages outside of it");
        return push(options_.persistent_load(id));
      }
    }
    char hex[8];
    std::snprintf(hex, sizeof hex, "0x%02x", unsigned(op));
    refuse(hex, " is no operation of protocols 2 to 5");
  }

  static void empty(Object& o) {
    if (!o.node()) return;
    o.node()->items.clear();
    o.node()->state = {};
  }

  // Refuses rings and depth, and empties what the result does not reach: rings among it would never be freed.
  void check_nesting(const Object& root) {
    enum { kOpen = -1 };
    std::unordered_map<const Node*, int> depth;  // of what is below; kOpen while it is being looked at
    std::vector<std::pair<const Node*, size_t>> path;
    auto enter = [&](const Object& o) {
      if (!o.node()) return 0;
      auto [it, fresh] = depth.try_emplace(o.node(), kOpen);
      SF_CHECK(fresh || it->second != kOpen, in_.name(), ": the pickle holds ", Object::name(o.kind()),
               " that contains itself");
      SF_CHECK(path.size() <= size_t(kMaxPickleDepth), in_.name(), ": the pickle is nested more than ", kMaxPickleDepth,
               " deep");
      if (fresh) path.push_back({o.node(), 0});
      return fresh ? 0 : it->second;
    };
    enter(root);
    std::unordered_map<const Node*, int> below;
    while (!path.empty()) {
      auto& [node, next] = path.back();
      const Node* current = node;
      size_t count = current->items.size() + 1;
      int deepest = 0;
      bool descended = false;
      while (next < count) {
        const Object& child = next < current->items.size() ? current->items[next] : current->state;
        ++next;
        size_t before = path.size();
        deepest = std::max(deepest, enter(child));
        if (path.size() != before) {
          descended = true;
          break;
        }
      }
      int& mine = below[current];
      mine = std::max(mine, deepest);
      if (descended) continue;
      path.pop_back();
      int height = below[current] + 1;
      SF_CHECK(height <= kMaxPickleDepth, in_.name(), ": the pickle is nested more than ", kMaxPickleDepth, " deep");
      depth[current] = height;
      if (!path.empty()) {
        int& parent = below[path.back().first];
        parent = std::max(parent, height);
      }
    }
    for (auto& o : containers_)
      if (!depth.count(o.node())) empty(o);
  }

  ByteReader& in_;
  const UnpickleOptions& options_;
  const uint64_t budget_;  // of bytes that calls copy
  uint64_t spent_ = 0;
  std::vector<Object> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, Object> memo_;
  std::vector<Object> containers_;
  bool finished_ = false;
};

}  // namespace

Object unpickle(ByteReader& in, const UnpickleOptions& options) { return Machine(in, options).run(); }

}  // namespace sf::io
