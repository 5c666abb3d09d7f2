#include "apps/cli/files.h"

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "apps/cli/suggestions.h"
#include "scaffolding/io/file.h"

namespace sf::cli {

static std::string scaled(double v, const char* const* units, double base) {
  int i = 0;
  while (v >= base && units[i + 1]) v /= base, ++i;
  char text[40];
  std::snprintf(text, sizeof text, i == 0 ? "%.0f%s" : "%.3g%s", v, units[i]);
  return text;
}

std::optional<DType> dtype_named(const std::string& name) {
  if (name == "float32" || name == "f32" || name == "fp32") return kFloat32;
  if (name == "bfloat16" || name == "bf16") return kBFloat16;
  if (name == "float16" || name == "f16" || name == "fp16") return kFloat16;
  return {};
}

DType dtype_of(const char* option, const std::string& name) {
  if (const auto dtype = dtype_named(name)) return *dtype;
  refuse_choice(option, name, {"float32", "bfloat16", "float16"});
}

bool is_picture(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;  // a FIFO would be waited for
  char head[12] = {};
  std::ifstream(path, std::ios::binary).read(head, sizeof head);
  return !std::memcmp(head, "\x89PNG", 4) || !std::memcmp(head, "\xff\xd8\xff", 3) ||
         (!std::memcmp(head, "RIFF", 4) && !std::memcmp(head + 8, "WEBP", 4));
}

std::string count_text(int64_t n) {
  static const char* const units[] = {"", " k", " M", " G", " T", nullptr};
  return scaled(double(n), units, 1000);
}

void print_text(const std::string& text, const std::string& file) {
  if (file.empty()) {
    std::cout << text << std::flush;
    return;
  }
  io::ReplacingFile out(file);
  out.write(text.data(), text.size());
  out.commit();
}

}  // namespace sf::cli
