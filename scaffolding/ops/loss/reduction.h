// The reduction argument of losses.
#pragma once
#include <string>

namespace sf::loss {

enum class Reduce { None, Mean, Sum, BatchMean };
Reduce reduce_from(const char* op, const std::string& reduction, bool batchmean = false);  // ValueError for other words

}  // namespace sf::loss
