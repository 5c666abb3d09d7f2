#include "scaffolding/io/formats/torch_file.h"

#include <algorithm>
#include <map>

#include "scaffolding/io/formats/pickle.h"
#include "scaffolding/io/tensor_bytes.h"

namespace sf::io {

namespace {

// The storages that a pickle refers to, by their key in the file.
class Storages {
 public:
  struct Item {
    std::string key;
    Bytes bytes;
    Ref<Storage> storage;  // made for the first tensor
    bool clean_bool = false;
  };

  // ("storage", type, key, location, numel) and, before PyTorch 1.6, a view. `bytes` finds the data of a key.
  template <class F> Object load(const std::string& file, const Object& id, const F& bytes) {
    SF_CHECK(id.is(Object::Tuple) && id.items().size() >= 5 && id.items().size() <= 6, file,
             ": a storage is not named as PyTorch names it");
    auto& p = id.items();
    SF_CHECK(p[0].is(Object::String) && p[0].text() == "storage" && p[1].is(Object::Global) &&
                 p[2].is(Object::String) && p[3].is(Object::String) && p[4].is(Object::Int) && p[4].as_int() >= 0,
             file, ": a storage is not named as PyTorch names it");
    SF_CHECK_AS(NotSupported, p.size() == 5 || p[5].is(Object::None), file,
                ": storages that are views of others (PyTorch before 0.4) are not read");
    DType t;
    SF_CHECK_AS(NotSupported, dtype_of_storage(p[1].text(), t), file, ": holds a ", p[1].text(),
                ", a type that Scaffolding cannot hold");
    const std::string& key = p[2].text();
    auto [it, fresh] = index_.try_emplace(key, items.size());
    uint64_t want = checked_bytes(file + ": storage '" + key + "'", {p[4].as_int()}, 8 * size_of(t));
    if (fresh) items.push_back({key, bytes(key, want), {}, false});
    SF_CHECK(items[it->second].bytes.size == want, file, ": storage '", key, "' of ", p[4].as_int(), " ", t, " needs ",
             want, " bytes, the file has ", items[it->second].bytes.size);
    Object o = Object::container(Object::Storage, {p[3], int64_t(it->second)});
    o.node()->text = p[1].text();
    return o;
  }

  // The storage of a tensor that lies within it.
  Item& checked(const std::string& file, const Object& storage, int64_t offset, const Shape& size, const Shape& stride,
                DType t) {
    Item& item = items[size_t(storage.items()[1].as_int())];
    SF_CHECK(size.size() == stride.size(), file, ": a tensor has sizes ", size, " and strides ", stride);
    int64_t elements = int64_t(item.bytes.size / size_of(t));
    bool fits = offset >= 0 && offset <= elements;
    int64_t last = offset;
    for (int64_t i = 0; i < size.size(); ++i) fits = fits && size[i] >= 0 && stride[i] >= 0;
    if (fits && !size.contains(0)) {
      for (int64_t i = 0; i < size.size(); ++i) {
        int64_t step;
        fits = fits && !__builtin_mul_overflow(size[i] - 1, stride[i], &step) &&
               !__builtin_add_overflow(last, step, &last);
      }
      fits = fits && last < elements;
    }
    SF_CHECK(fits, file, ": a tensor of sizes ", size, ", strides ", stride, " and offset ", offset,
             " lies outside of its storage of ", elements, " ", t);
    // Strides of zero make any size fit a storage: their product is a number of bytes too.
    checked_bytes(file + ": a tensor", size, 8 * size_of(t));
    return item;
  }

  Tensor rebuild(const std::string& file, const Object& storage, int64_t offset, const Shape& size, const Shape& stride,
                 DType t) {
    Item& item = checked(file, storage, offset, size, stride, t);
    if (!item.storage) {
      bool aligned = reinterpret_cast<uintptr_t>(item.bytes.data) % 8 == 0;
      if (!aligned) item.bytes = Bytes::copy(item.bytes.data, item.bytes.size, file);
      void* data = item.bytes.size ? const_cast<std::byte*>(item.bytes.data) : nullptr;
      item.storage = Storage::borrow(data, size_t(item.bytes.size), Device::CPU, [keep = item.bytes.owner] {});
    }
    if (t == kBool && !item.clean_bool) {
      item.clean_bool = std::all_of(item.bytes.data, item.bytes.data + item.bytes.size,
                                    [](std::byte b) { return b <= std::byte(1); });
      SF_CHECK(item.clean_bool, file, ": a bool tensor has bytes other than 0 and 1");
    }
    return Tensor::strided(item.storage, size, stride, offset, t);
  }

  std::vector<Item> items;

 private:
  std::map<std::string, size_t> index_;
};

constexpr uint64_t kMostByteOrder = 16, kMostInflatedPickle = uint64_t(64) << 20;

std::string root_of(const ZipReader& zip) {
  constexpr std::string_view kEnd = "/data.pkl";
  for (auto& e : zip.entries())
    if (e.name.size() > kEnd.size() && e.name.ends_with(kEnd) && e.name.find('/') == e.name.size() - kEnd.size())
      return e.name.substr(0, e.name.find('/') + 1);
  return "";
}

Object load_zip(const ZipReader& zip, const TorchLoadOptions& options) {
  const std::string& file = zip.name();
  std::string root = root_of(zip);
  SF_CHECK(!root.empty(), file, ": is a zip archive, but none of PyTorch's: it has no data.pkl");
  SF_CHECK_AS(NotSupported, !zip.find(root + "constants.pkl"), file,
              ": is a TorchScript program; save its state_dict() with torch.save instead");
  if (auto* order = zip.find(root + "byteorder")) {
    SF_CHECK(order->size <= kMostByteOrder, file, ": 'byteorder' has ", order->size, " bytes");
    Bytes text = zip.read(*order, true);
    SF_CHECK_AS(NotSupported, std::string_view(text.chars(), text.size) == "little", file,
                ": was saved on a big-endian machine");
  }
  Storages storages;
  UnpickleOptions o;
  o.placeholders = options.placeholders;
  o.persistent_load = [&](const Object& id) {
    return storages.load(file, id, [&](const std::string& key, uint64_t want) {
      const ZipEntry* e = zip.find(root + "data/" + key);
      SF_CHECK(e, file, ": storage '", key, "' is missing");
      // before it is inflated
      SF_CHECK(e->size == want, file, ": storage '", key, "' needs ", want, " bytes, the file has ", e->size);
      return options.shapes_only ? Bytes{nullptr, nullptr, want, file} : zip.read(*e, false);
    });
  };
  o.rebuild_tensor = [&](const Object& s, int64_t offset, const Shape& size, const Shape& stride, DType t) {
    if (!options.shapes_only) return storages.rebuild(file, s, offset, size, stride, t);
    storages.checked(file, s, offset, size, stride, t);
    return empty(size, t, Device(Device::Meta));
  };
  const ZipEntry& pickled = *zip.find(root + "data.pkl");
  SF_CHECK(pickled.method == 0 || pickled.size <= kMostInflatedPickle, file, ": 'data.pkl' is deflated and has ",
           pickled.size, " bytes, at most ", kMostInflatedPickle, " are inflated; save the file again");
  SF_CHECK(!options.most_head || (pickled.method == 0 && pickled.size <= options.most_head), file, ": 'data.pkl' has ",
           pickled.size, " bytes", pickled.method ? " and is deflated" : "",
           "; what is looked at is stored, and at most ", options.most_head);
  Bytes program = zip.read(pickled, false);  // PyTorch can be told to write no CRC
  ByteReader in(program);
  return unpickle(in, o);
}

constexpr std::string_view kLegacyMagic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);

// Before PyTorch 1.6: magic number, version, facts about the machine, the object, the keys of the storages and, for
// each, its length and its bytes. The bytes stand behind the pickle that needs them, so that it is read twice.
Object load_pickles(const Bytes& file, const TorchLoadOptions& options) {
  UnpickleOptions plain;
  plain.placeholders = options.placeholders;
  ByteReader in(file);
  Object magic = unpickle(in, plain);
  if (!(magic.is(Object::BigInt) && magic.text() == kLegacyMagic)) return magic;  // a plain pickle
  Object version = unpickle(in, plain);
  SF_CHECK(version.is(Object::Int) && version.as_int() == 1001, file.name,
           ": is of an unknown version of PyTorch's older format");
  Object machine = unpickle(in, plain);
  const Object* little = machine.find("little_endian");
  SF_CHECK_AS(NotSupported, !little || (little->is(Object::Bool) && little->as_bool()), file.name,
              ": was saved on a big-endian machine");

  Storages storages;
  std::map<std::string, Bytes> bytes;
  UnpickleOptions o = plain;
  uint64_t begin = in.at();
  // First the lengths of the storages only: each stands for bytes that are not known yet.
  o.persistent_load = [&](const Object& id) {
    return storages.load(file.name, id, [&](const std::string&, uint64_t want) {
      return Bytes{nullptr, nullptr, want, file.name};
    });
  };
  o.rebuild_tensor = [](const Object&, int64_t, const Shape&, const Shape&, DType t) { return empty({0}, t); };
  unpickle(in, o);
  Object keys = unpickle(in, plain);
  SF_CHECK(keys.is(Object::List), file.name, ": the list of storages is missing");
  std::map<std::string, uint64_t> lengths;
  for (auto& item : storages.items) lengths[item.key] = item.bytes.size;
  for (auto& key : keys.items()) {
    SF_CHECK(key.is(Object::String) && lengths.count(key.text()), file.name,
             ": the list of storages names one that no tensor has");
    in.skip(8);  // elements: the pickle said it
    uint64_t at = in.at();
    in.skip(lengths[key.text()]);
    bytes[key.text()] = file.slice(at, lengths[key.text()]);
  }
  storages = {};
  o.persistent_load = [&](const Object& id) {
    return storages.load(file.name, id, [&](const std::string& key, uint64_t) {
      auto it = bytes.find(key);
      SF_CHECK(it != bytes.end(), file.name, ": storage '", key, "' is missing");
      return it->second;
    });
  };
  o.rebuild_tensor = [&](const Object& s, int64_t offset, const Shape& size, const Shape& stride, DType t) {
    return storages.rebuild(file.name, s, offset, size, stride, t);
  };
  ByteReader again(file, begin);
  return unpickle(again, o);
}

}  // namespace

bool is_torch_zip(const ZipReader& zip) { return !root_of(zip).empty(); }
bool is_pickle(const Bytes& file) {
  return file.size >= 3 && file.data[0] == std::byte(0x80) && uint8_t(file.data[1]) >= 2 && uint8_t(file.data[1]) <= 5;
}

Object load_torch(const Bytes& file, const TorchLoadOptions& options) {
  if (ZipReader::recognises(file)) {
    const bool head = options.most_head > 0;
    return load_zip(ZipReader(file, {head, head ? options.most_head : UINT64_MAX}), options);
  }
  SF_CHECK_AS(NotSupported, !options.most_head, file.name,
              ": is in PyTorch's format of before 1.6, which has no directory; save it again, or convert it");
  SF_CHECK_AS(NotSupported, file.size < 262 || std::string_view(file.chars() + 257, 5) != "ustar", file.name,
              ": is in PyTorch's tar format of before 2017; load it with an older PyTorch and save it again");
  SF_CHECK(is_pickle(file), file.name,
           ": is no file of torch.save: it begins neither as a zip archive nor as a pickle");
  return load_pickles(file, options);
}

Object load_torch(const std::string& path, const TorchLoadOptions& options) {
  return load_torch(Bytes::map(path), options);
}

void save_torch(const Object& object, Sink& sink) {
  struct Kept {
    Ref<Storage> storage;
    DType dtype;
  };
  std::vector<Kept> kept;
  std::map<const Storage*, size_t> index;
  std::string program = pickle(object, [&](const Object& o) {
    const Tensor& t = o.tensor();
    check_defined("save", "tensor", t);
    SF_CHECK_AS(RuntimeError, !t.device().is_meta(), "save: a tensor of ", t.shape(),
                " is on the meta device and has no bytes");
    auto [it, fresh] = index.try_emplace(t.storage().get(), kept.size());
    if (fresh) kept.push_back({t.storage(), t.dtype()});
    SF_CHECK_AS(RuntimeError, kept[it->second].dtype == t.dtype(), "save: two tensors see the same memory as ",
                kept[it->second].dtype, " and as ", t.dtype(), "; save a clone of one");
    std::string_view type = storage_of_dtype(t.dtype());
    return PickledStorage{std::string(type.empty() ? "UntypedStorage" : type), std::to_string(it->second),
                          t.device().str(), int64_t(t.storage()->bytes / t.itemsize())};
  });
  ZipWriter zip(sink);
  auto add = [&](const std::string& name, std::string_view text) {
    zip.add("archive/" + name, text.data(), text.size());
  };
  add("data.pkl", program);
  add(".format_version", "1");
  add(".storage_alignment", "64");
  add("byteorder", "little");
  for (size_t i = 0; i < kept.size(); ++i) {  // one storage at a time comes from its device
    auto& [storage, t] = kept[i];
    Tensor whole = Tensor::strided(storage, {int64_t(storage->bytes / size_of(t))}, {1}, 0, t).to(Device::CPU);
    zip.add("archive/data/" + std::to_string(i), whole.data_ptr(), whole.nbytes());
  }
  add("version", "3\n");
  zip.finish();
}

void save_torch(const Object& object, const std::string& path) {
  ReplacingFile file(path);
  save_torch(object, file);
  file.commit();
}

}  // namespace sf::io
