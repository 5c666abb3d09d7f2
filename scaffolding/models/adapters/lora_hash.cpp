#include "scaffolding/models/adapters/lora_hash.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string_view>

#include "scaffolding/io/checkpoint.h"
#include "scaffolding/io/sha.h"
#include "scaffolding/models/adapters/lora_file.h"

namespace sf::models {

namespace {

constexpr size_t kDigits = 12;

// A checksum that a program wrote down; metadata may hold anything.
std::string written_hash(const io::Checkpoint& file) {
  const auto metadata = file.metadata();
  auto found = metadata.find("sshs_model_hash");
  if (found == metadata.end() || found->second.size() < kDigits) return "";
  std::string out = found->second.substr(0, kDigits);
  std::transform(out.begin(), out.end(), out.begin(), [](char c) { return char(std::tolower(uint8_t(c))); });
  return out.find_first_not_of("0123456789abcdef") == out.npos ? out : "";
}

std::string hash_of(const std::string& file) {
  const std::string config = lora_config_beside(file);
  const auto checkpoint = io::open_checkpoint(file);
  if (std::string written = written_hash(*checkpoint); !written.empty()) return written;
  const io::Bytes bytes = io::Bytes::map(file);
  uint64_t begin = 0;
  if (std::string_view(checkpoint->kind()) == "safetensors") {
    std::memcpy(&begin, bytes.data, sizeof begin);  // the header's length, which the reader has checked
    begin += sizeof begin;
  }
  io::Sha sha(io::Sha::Sha256);
  sha.update(bytes.data + begin, bytes.size - begin);
  if (!config.empty()) {
    const io::Bytes said = io::Bytes::map(config);
    sha.update(said.data, said.size);
  }
  return sha.hex().substr(0, kDigits);
}

}  // namespace

std::string lora_hash(const std::string& path) {
  const std::vector<std::string> files = lora_files_of(path);
  if (files.size() == 1) return hash_of(files[0]);
  std::string all;
  for (auto& file : files) all += hash_of(file);
  io::Sha sha(io::Sha::Sha256);
  sha.update(all.data(), all.size());
  return sha.hex().substr(0, kDigits);
}

}  // namespace sf::models
