#include "scaffolding/distributed/rendezvous.h"

#include <charconv>
#include <cstdlib>

#include "scaffolding/core/error.h"
#include "scaffolding/distributed/file_store.h"
#include "scaffolding/distributed/tcp_store.h"

namespace sf::distributed {

namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

int number_of(const std::string& what, const std::string& text, int least) {
  int value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  SF_CHECK(error == std::errc() && end == text.data() + text.size() && value >= least, "init_process_group: ", what,
           " must be a number from ", least, " on, got '", text, "'");
  return value;
}

// Of the launchers, in this order: those of torchrun win where several have set theirs.
int from_launcher(const char* what, std::initializer_list<const char*> names, int least) {
  std::string listed_names;
  for (const char* name : names) {
    if (std::string text = environment(name); !text.empty()) return number_of(name, text, least);
    listed_names += std::string(listed_names.empty() ? "" : ", ") + name;
  }
  fail<ValueError>("init_process_group: ", what, " is not given and none of ", listed_names,
                   " is set; use torchrun, mpirun, srun or scaffolding launch, or pass it");
}

std::string master_address(int world_size) {
  if (std::string address = environment("MASTER_ADDR"); !address.empty()) return address;
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"})
    if (std::string list = environment(name); !list.empty() && !environment("SLURM_PROCID").empty())
      return first_node(list);
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}) {
    std::string here = environment(name);
    SF_CHECK(here.empty() || number_of(name, here, 1) >= world_size, "init_process_group: ", world_size, " processes, ",
             here, " of them on this machine: set MASTER_ADDR to the machine of rank 0, as mpirun -x ",
             "MASTER_ADDR=...");
  }
  return "127.0.0.1";
}

std::shared_ptr<Store> tcp_store(const std::string& host, int port, bool is_server, double timeout) {
  return std::make_shared<TCPStore>(
      TCPStoreOptions{.host = host, .port = port, .is_server = is_server, .timeout_seconds = timeout});
}

}  // namespace

std::string first_node(const std::string& list) {
  size_t end = list.find_first_of(",[");
  if (end == std::string::npos || list[end] == ',') return list.substr(0, end);
  size_t number = list.find_first_of(",-]", end);
  SF_CHECK(number != std::string::npos, "init_process_group: '", list, "' is no list of Slurm's nodes");
  size_t close = list.find(']', end);
  SF_CHECK(close != std::string::npos, "init_process_group: '", list, "' is no list of Slurm's nodes");
  std::string suffix = list.substr(
      close + 1, list.find(',', close) == std::string::npos ? std::string::npos : list.find(',', close) - close - 1);
  return list.substr(0, end) + list.substr(end + 1, number - end - 1) + suffix;
}

Rendezvous rendezvous(const std::string& init_method, int rank, int world_size, double timeout) {
  check_timeout("init_process_group", timeout);
  auto starts = [&](const char* with) { return init_method.rfind(with, 0) == 0; };
  bool env = init_method == "env://", file = starts("file://"), tcp = starts("tcp://");
  std::string rest = env ? "" : init_method.substr(std::min(init_method.size(), size_t(file ? 7 : 6)));
  size_t colon = rest.rfind(':');
  SF_CHECK(env || (file && !rest.empty()) || (tcp && colon != std::string::npos && colon > 0),
           "init_process_group: init_method must be 'env://', 'tcp://address:port' or 'file:///path', got '",
           init_method, "'");
  Rendezvous r;
  r.rank = rank >= 0 ? rank : from_launcher("rank", {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}, 0);
  r.world_size = world_size >= 0 ? world_size
                                 : from_launcher("world_size",
                                                 {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}, 1);
  SF_CHECK(r.world_size > 0, "init_process_group: world_size must be positive, got ", r.world_size);
  SF_CHECK(r.rank < r.world_size, "init_process_group: rank must be 0 to ", r.world_size - 1, ", got ", r.rank);
  if (file) {
    r.store = std::make_shared<FileStore>(rest, r.world_size);
  } else if (tcp) {
    std::string host = rest.substr(0, colon);
    if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
    int port = number_of("the port of init_method", rest.substr(colon + 1), 1);
    r.store = tcp_store(host, port, r.rank == 0, timeout);
  } else {
    std::string port_text = environment("MASTER_PORT");
    int port = port_text.empty() ? 29500 : number_of("MASTER_PORT", port_text, 1);
    // torchrun's agent serves the store, and keeps it over restarts: each attempt has a place of its own in it.
    bool agent = environment("TORCHELASTIC_USE_AGENT_STORE") == "True";
    r.store = tcp_store(master_address(r.world_size), port, r.rank == 0 && !agent, timeout);
    if (agent) {
      std::string attempt = environment("TORCHELASTIC_RESTART_COUNT");
      r.store = std::make_shared<PrefixStore>("/worker/attempt_" + (attempt.empty() ? "0" : attempt), r.store);
    }
  }
  r.store->set_timeout(timeout);
  return r;
}

std::unique_ptr<ProcessGroup> init_process_group(const std::string& backend, const std::string& init_method, int rank,
                                                 int world_size, double timeout) {
  Rendezvous r = rendezvous(init_method, rank, world_size, timeout);
  return std::make_unique<ProcessGroup>(GroupOptions{
      .backend = backend, .store = r.store, .rank = r.rank, .world_size = r.world_size, .timeout_seconds = timeout});
}

}  // namespace sf::distributed
