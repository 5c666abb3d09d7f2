// The backend "mpi": bytes between the processes that mpirun has started. MPI is begun with the first group and ended
// with the process; a group has a communicator of its own.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <thread>

#include "scaffolding/core/error.h"
#include "scaffolding/distributed/engine.h"

namespace sf::distributed {

namespace {

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail<RuntimeError>("mpi: ", what, ": ", text);
}

int count_of(size_t bytes) {
  SF_CHECK_AS(RuntimeError, bytes <= size_t(std::numeric_limits<int>::max()),
              "mpi: at most 2 GB for a process in one call, got ", bytes, " bytes; call it for parts");
  return int(bytes);
}

bool g_failed = false;  // a process is gone: MPI_Finalize would wait for it

void begin() {
  static std::once_flag once;
  std::call_once(once, [] {
    int begun = 0;
    check(MPI_Initialized(&begun), "MPI_Initialized");
    int level = 0;
    if (begun) {
      check(MPI_Query_thread(&level), "MPI_Query_thread");
    } else {
      check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
      std::atexit([] {
        int ended = 0;
        if (!g_failed && MPI_Finalized(&ended) == MPI_SUCCESS && !ended) MPI_Finalize();
      });
    }
    SF_CHECK_AS(RuntimeError, level >= MPI_THREAD_MULTIPLE,
                "mpi: this MPI does not allow calls of several threads (MPI_THREAD_MULTIPLE)");
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  });
}

class MpiTransfer final : public Transfer {
 public:
  MpiTransfer(MPI_Request request, std::string who) : request_(request), who_(std::move(who)) {}
  void wait(Deadline deadline) override {
    for (int turns = 0;; ++turns) {
      int done = 0;
      check(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), who_.c_str());
      if (done) return;
      if (turns < 200) continue;
      if (std::chrono::steady_clock::now() >= deadline) {
        g_failed = true;
        fail<RuntimeError>(who_, " did not come before the timeout");
      }
      if (turns < 2000) std::this_thread::yield();
      else std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  MPI_Request request_;
  std::string who_;
};

class MpiEngine final : public Engine {
 public:
  explicit MpiEngine(const EngineOptions& o) : world_ranks_(o.world_ranks), rank_(o.rank) {
    begin();
    int rank = 0, size = 0;
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
    int most = *std::max_element(o.world_ranks.begin(), o.world_ranks.end());
    SF_CHECK_AS(RuntimeError, most < size, "mpi: MPI has ", size, " processes, and rank ", most,
                " is asked for; start the script by mpirun");
    SF_CHECK_AS(RuntimeError, rank == o.world_ranks[size_t(o.rank)], "mpi: this process has MPI's rank ", rank,
                ", not ", o.world_ranks[size_t(o.rank)], "; leave rank to mpirun");
    MPI_Group world, part;
    check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
    check(MPI_Group_incl(world, int(o.world_ranks.size()), o.world_ranks.data(), &part), "MPI_Group_incl");
    check(MPI_Comm_create_group(MPI_COMM_WORLD, part, 0, &comm_), "MPI_Comm_create_group");
    MPI_Group_free(&part);
    MPI_Group_free(&world);
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  // To free the communicator is collective, and the others may be elsewhere: its few bytes stay until the process ends.

  const char* name() const override { return "mpi"; }

  std::unique_ptr<Transfer> send(const void* data, size_t bytes, int to, uint32_t tag) override {
    MPI_Request request;
    check(MPI_Isend(data, count_of(bytes), MPI_BYTE, to, int(tag), comm_, &request), "MPI_Isend");
    return std::make_unique<MpiTransfer>(request, who(to));
  }
  std::unique_ptr<Transfer> receive(void* data, size_t bytes, int from, uint32_t tag) override {
    MPI_Request request;
    check(MPI_Irecv(data, count_of(bytes), MPI_BYTE, from, int(tag), comm_, &request), "MPI_Irecv");
    return std::make_unique<MpiTransfer>(request, who(from));
  }
  void broadcast(void* data, size_t bytes, int root, Deadline deadline) override {
    MPI_Request request;
    check(MPI_Ibcast(data, count_of(bytes), MPI_BYTE, root, comm_, &request), "MPI_Ibcast");
    finish(request, deadline);
  }
  void all_gather(const void* in, void* out, size_t bytes, Deadline deadline) override {
    MPI_Request request;
    int n = count_of(bytes);
    check(MPI_Iallgather(in, n, MPI_BYTE, out, n, MPI_BYTE, comm_, &request), "MPI_Iallgather");
    finish(request, deadline);
  }
  void gather(const void* in, void* out, size_t bytes, int root, Deadline deadline) override {
    MPI_Request request;
    int n = count_of(bytes);
    check(MPI_Igather(in, n, MPI_BYTE, rank_ == root ? out : nullptr, n, MPI_BYTE, root, comm_, &request),
          "MPI_Igather");
    finish(request, deadline);
  }
  void scatter(const void* in, void* out, size_t bytes, int root, Deadline deadline) override {
    MPI_Request request;
    int n = count_of(bytes);
    check(MPI_Iscatter(rank_ == root ? in : nullptr, n, MPI_BYTE, out, n, MPI_BYTE, root, comm_, &request),
          "MPI_Iscatter");
    finish(request, deadline);
  }
  void abort() override { g_failed = true; }  // the others' calls end at their timeouts

 private:
  std::string who(int rank) const { return "rank " + std::to_string(world_ranks_[size_t(rank)]); }
  void finish(MPI_Request request, Deadline deadline) { MpiTransfer(request, "a process").wait(deadline); }

  std::vector<int> world_ranks_;
  int rank_;
  MPI_Comm comm_ = MPI_COMM_NULL;
};

std::unique_ptr<Engine> make(const EngineOptions& options) { return std::make_unique<MpiEngine>(options); }

}  // namespace
}  // namespace sf::distributed

extern "C" const sf::distributed::EngineLibrary* scaffolding_engine_library() {
  static const sf::distributed::EngineLibrary library{SF_VERSION, sf::distributed::make};
  return &library;
}
