#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/models/single_file/packed_files.h"
#include "scaffolding/tokenizers/pretrained.h"

// What a safetensors file says of its own pipeline: configs, and tokenizers as they are read from it.
SF_FUZZ_TARGET(packed_files) {
  using namespace sf;
  const auto file = io::open_checkpoint(io::Bytes::borrow(data, size, "fuzz"));
  const models::PackedFiles files = models::packed_files(file->metadata(), "fuzz");
  SF_CHECK(!files.empty(), "fuzz: a file that says nothing");
  SF_CHECK_AS(RuntimeError, models::packed_files(models::packed_metadata(files), "again") == files,
              "internal: files change when they are written again");
  for (auto& tokenizer : models::packed_kind(files, *file, "fuzz").tokenizers)
    tokenizers::load_tokenizer(tokenizer.class_name, {"fuzz/" + tokenizer.name, tokenizer.files})->files();
}
