#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/io/scaled_checkpoint.h"
#include "scaffolding/io/stored_blocks.h"

// A file with scales, with every tensor as numbers and as it lies.
SF_FUZZ_TARGET(scaled_checkpoint) {
  using namespace sf;
  const auto file = io::with_scales(io::open_checkpoint(io::Bytes::borrow(data, size, "fuzz")), "fuzz");
  const auto* stored = dynamic_cast<const io::StoresBlocks*>(file.get());
  SF_CHECK(stored, "fuzz: a file without scales");
  for (auto& name : file->names()) {
    file->get(name);
    stored->blocks(name);
  }
}
