// PageReader: a thread that reads weights which lie in mapped files before they are touched. A page that is missing in
// the midst of a product stops it for one small read; here reads are long, and the disk works while the kernels do.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

namespace sf::nn {

class PageReader {
 public:
  using Range = std::pair<const char*, uint64_t>;  // its first byte, bytes
  PageReader() = default;
  ~PageReader() { stop(); }
  PageReader(const PageReader&) = delete;
  PageReader& operator=(const PageReader&) = delete;

  // Begins to read, in this order. The memory is mapped until stop(), which waits for the read that is under way.
  void start(std::vector<Range> ranges);
  void stop();

 private:
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

}  // namespace sf::nn
