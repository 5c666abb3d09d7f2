// The backend "fake": a group without peers, for counting calls and bytes. What the others would send is what this
// process sends, or stays as it is.
#include <cstring>

#include "scaffolding/distributed/engine.h"

namespace sf::distributed {

namespace {

class Nothing final : public Transfer {
 public:
  void wait(Deadline) override {}
};

class FakeEngine final : public Engine {
 public:
  explicit FakeEngine(const EngineOptions& options) : rank_(options.rank), size_(options.size) {}
  const char* name() const override { return "fake"; }
  std::unique_ptr<Transfer> send(const void*, size_t, int, uint32_t) override { return std::make_unique<Nothing>(); }
  std::unique_ptr<Transfer> receive(void*, size_t, int, uint32_t) override { return std::make_unique<Nothing>(); }
  void broadcast(void*, size_t, int, Deadline) override {}
  void all_gather(const void* in, void* out, size_t bytes, Deadline) override { repeat(in, out, bytes); }
  void gather(const void* in, void* out, size_t bytes, int root, Deadline) override {
    if (rank_ == root) repeat(in, out, bytes);
  }
  void scatter(const void* in, void* out, size_t bytes, int root, Deadline) override {
    if (rank_ == root && bytes > 0) std::memcpy(out, static_cast<const char*>(in) + size_t(rank_) * bytes, bytes);
  }
  void abort() override {}

 private:
  void repeat(const void* in, void* out, size_t bytes) const {
    for (int i = 0; i < size_ && bytes > 0; ++i) std::memcpy(static_cast<char*>(out) + size_t(i) * bytes, in, bytes);
  }
  int rank_, size_;
};

}  // namespace

std::unique_ptr<Engine> make_fake_engine(const EngineOptions& options) { return std::make_unique<FakeEngine>(options); }

}  // namespace sf::distributed
