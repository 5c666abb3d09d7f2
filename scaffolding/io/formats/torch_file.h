// Files of torch.save: .pt .pth .bin .ckpt. Read are the zip format (PyTorch 1.6 and later) and the one before it;
// written is the zip format, which torch.load(weights_only=True) reads. Nothing in a file is executed (pickle.h).
// Tensors borrow the file's bytes where these are stored uncompressed and aligned,
// and share storages as they did when saved.
#pragma once
#include "scaffolding/io/formats/zip.h"
#include "scaffolding/io/object.h"

namespace sf::io {

struct TorchLoadOptions {
  bool placeholders = false;  // names of unknown classes become inert objects; otherwise ValueError
  // Of a zip archive: tensors are on the meta device, and no storage is read, which would inflate a deflated one.
  bool shapes_only = false;
  // Of a zip archive: nothing but its directory and its pickle is read, of at most so many bytes each, and nothing is
  // inflated. 0: no limit.
  uint64_t most_head = 0;
};

bool is_torch_zip(const ZipReader& zip);  // one entry is called something/data.pkl
bool is_pickle(const Bytes& file);        // begins as protocols 2 to 5 do: PyTorch's older format, or a plain pickle

// ValueError when the file is damaged or holds what is not allowed, NotSupported for types that do not exist here.
Object load_torch(const Bytes& file, const TorchLoadOptions& options = {});
Object load_torch(const std::string& path, const TorchLoadOptions& options = {});

// Equal content gives equal bytes. TypeError for placeholders, RuntimeError for tensors on the meta device.
void save_torch(const Object& object, Sink& sink);
void save_torch(const Object& object, const std::string& path);

}  // namespace sf::io
