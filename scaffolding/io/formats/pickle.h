// Python's pickle format, protocols 2 to 5, without Python: a checkpoint's pickle says how to build lists, dicts and
// tensors and may name any function to call. Only the names in pickle_globals.cpp mean something here; nothing is
// looked up, imported or executed. Reading checks lengths, stack, memo, nesting and the number of operations.
// Single-threaded.
#pragma once
#include <functional>

#include "scaffolding/io/byte_reader.h"
#include "scaffolding/io/object.h"

namespace sf::io {

struct UnpickleOptions {
  // What a persistent id stands for: torch's storages. Without it a pickle that has one is refused.
  std::function<Object(const Object& id)> persistent_load;
  // The tensor over a storage that persistent_load made: storage, offset, size, stride, dtype.
  std::function<Tensor(const Object& storage, int64_t offset, const Shape& size, const Shape& stride, DType dtype)>
      rebuild_tensor;
  // Names that are not known become Global and Instance objects, which do nothing; otherwise they are ValueErrors.
  bool placeholders = false;
};

inline constexpr uint64_t kMaxPickleOperations = uint64_t(1) << 24;
inline constexpr int kMaxPickleDepth = 500;  // of lists in lists; Python's own printer stops at 1000

// Reads one pickle and leaves the reader behind it.
Object unpickle(ByteReader& in, const UnpickleOptions& options = {});

// The object as a pickle of protocol 2, which every PyTorch reads. persistent_id gives a tensor's storage an id and is
// called once for each tensor. TypeError for kinds that torch's weights_only reading refuses.
struct PickledStorage {
  std::string type;  // "FloatStorage"
  std::string key;
  std::string location;
  int64_t numel = 0;
};
std::string pickle(const Object& object, const std::function<PickledStorage(const Object& tensor)>& persistent_id = {});

// ---- for pickle.cpp and pickle_globals.cpp
Object find_global(const std::string& file, std::string_view module, std::string_view name, bool placeholders);
Object reduce_global(const std::string& file, const Object& callable, const Object& arguments,
                     const UnpickleOptions& options);
void build_state(const std::string& file, Object& object, const Object& state);

// "FloatStorage" and its dtype; false for storages of types that do not exist here.
bool dtype_of_storage(std::string_view type, DType& out);
std::string_view storage_of_dtype(DType t);  // empty for float8, which has none

}  // namespace sf::io
