#include "scaffolding/core/out_of_memory.h"

namespace sf {

void OutOfMemory::leaves(const void* module, const std::string& path, const std::string& outer) {
  if (module_) path_ = path_.empty() ? path : path + "." + path_;
  else type_ = outer;
  module_ = module;
  std::string by = path_.empty() ? " by a " + type_ : " by " + path_ + " (a " + type_ + ") of a " + outer;
  text_ = RuntimeError::what();
  constexpr std::string_view kAsked = " asked for";
  size_t at = text_.find(kAsked);
  text_.insert(at == text_.npos ? text_.size() : at + kAsked.size(), by);
}

}  // namespace sf
