// Engine: what moves bytes between the processes of one group: a backend of ProcessGroup. It knows nothing of tensors.
// Engines stand in libraries of their own, which are opened when they are first asked for (engine_library.cpp):
// libscaffolding_gloo.so (*.gloo.cpp) and libscaffolding_mpi.so (*.mpi.cpp). Not public.
//
// Every call is collective, and comes from one thread at a time; send and receive may be called beside it from any
// thread. Memory belongs to the engine until the call, or the transfer's wait(), has returned or thrown. Errors are
// RuntimeError; after one, the engine does nothing more and throws.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "scaffolding/distributed/deadline.h"
#include "scaffolding/distributed/store.h"

namespace sf::distributed {

// Bytes on their way to or from another process. Waited for once.
class Transfer {
 public:
  virtual ~Transfer() = default;
  virtual void wait(Deadline deadline) = 0;  // RuntimeError naming the process when it does not move in time
};

struct EngineOptions {
  int rank = 0, size = 1;
  std::vector<int> world_ranks;   // of the processes, by their rank here
  std::string name;               // of the group, the same in all its processes
  std::shared_ptr<Store> store;   // by which they find each other; below a prefix of this group
  double timeout_seconds = 1800;  // of joining
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual const char* name() const = 0;
  // tag: what is sent with one is received with it, in the order of the calls
  virtual std::unique_ptr<Transfer> send(const void* data, size_t bytes, int to, uint32_t tag) = 0;
  virtual std::unique_ptr<Transfer> receive(void* data, size_t bytes, int from, uint32_t tag) = 0;
  virtual void broadcast(void* data, size_t bytes, int root, Deadline deadline) = 0;
  virtual void all_gather(const void* in, void* out, size_t bytes, Deadline deadline) = 0;         // out: size * bytes
  virtual void gather(const void* in, void* out, size_t bytes, int root, Deadline deadline) = 0;   // out: the root's
  virtual void scatter(const void* in, void* out, size_t bytes, int root, Deadline deadline) = 0;  // in: the root's
  virtual void abort() = 0;  // from any thread: what waits throws
};

// By name: "gloo", "mpi", "fake". ValueError for a name that is none, RuntimeError saying which package to install
// where its library is missing.
std::unique_ptr<Engine> make_engine(const std::string& backend, const EngineOptions& options);
void check_backend(const std::string& backend);  // ValueError as above
bool engine_available(const std::string& backend, std::string* why_not = nullptr);

std::unique_ptr<Engine> make_fake_engine(const EngineOptions& options);

// What an engine's library offers.
struct EngineLibrary {
  const char* version;  // of Scaffolding: a library of another one is refused
  std::unique_ptr<Engine> (*make)(const EngineOptions& options);
};

}  // namespace sf::distributed

extern "C" const sf::distributed::EngineLibrary* scaffolding_engine_library();
