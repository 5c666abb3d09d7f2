#include "scaffolding/distributed/launcher.h"

#include <sys/wait.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <thread>

#include "scaffolding/core/error.h"
#include "scaffolding/distributed/deadline.h"
#include "scaffolding/distributed/tcp_store.h"

extern char** environ;

namespace sf::distributed {

namespace {

std::atomic<int> g_signal{0};

// While it lives, signals that ask for an end are only noted.
class NotedSignals {
 public:
  NotedSignals() {
    g_signal = 0;
    struct sigaction note {};
    note.sa_handler = [](int signal) { g_signal = signal; };
    for (size_t i = 0; i < 3; ++i) sigaction(kSignals[i], &note, &before_[i]);
  }
  ~NotedSignals() {
    for (size_t i = 0; i < 3; ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }
  NotedSignals(const NotedSignals&) = delete;
  NotedSignals& operator=(const NotedSignals&) = delete;

 private:
  static constexpr int kSignals[3] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction before_[3];
};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (auto& t : texts) all.push_back(t.data());
  all.push_back(nullptr);
  return all;
}

class Processes {
 public:
  explicit Processes(const LaunchOptions& options) : options_(options) {}
  ~Processes() { end(); }

  void start(int port, int attempt, int count) {
    count_ = count;
    std::vector<std::string> command = options_.command;
    std::vector<char*> arguments = pointers(command);
    for (int rank = 0; rank < count; ++rank) {
      std::vector<std::string> variables = environment(rank, port, attempt);
      std::vector<char*> all = pointers(variables);
      pid_t parent = getpid(), pid = fork();
      SF_CHECK_AS(RuntimeError, pid >= 0, "launch: cannot start a process: ", std::strerror(errno));
      if (pid == 0) {  // nothing but system calls until it is another program: there are threads in this one
        for (int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
#if defined(__linux__)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
        if (getppid() != parent) _exit(1);
        environ = all.data();
        execvp(arguments[0], arguments.data());
        _exit(errno == ENOENT ? 127 : 126);
      }
      running_.push_back({pid, rank, {}});
    }
  }

  // How the first process that has failed did so, once there is one; "" when all have ended well.
  std::string wait() {
    while (!running_.empty()) {
      if (int signal = g_signal) return std::string("this program was asked to end by signal ") + strsignal(signal);
      std::string failure = reap();
      if (failure.empty()) failure = stopped_too_long();
      if (!failure.empty()) return failure;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return "";
  }

  void end() {
    for (auto& p : running_) {
      kill(p.pid, SIGTERM);
      kill(p.pid, SIGCONT);  // one that is stopped does not hear it before
    }
    Deadline deadline = in_seconds(options_.grace_seconds);
    while (!running_.empty() && std::chrono::steady_clock::now() < deadline) {
      reap();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    for (auto& p : running_) kill(p.pid, SIGKILL);
    for (auto& p : running_) {
      int status;
      while (waitpid(p.pid, &status, 0) < 0 && errno == EINTR) {}
    }
    running_.clear();
  }

 private:
  struct Running {
    pid_t pid;
    int rank;
    std::optional<std::chrono::steady_clock::time_point> stopped;  // since when
  };

  // Nobody else may notice one: its peers wait for it, and where it is alone there are none.
  std::string stopped_too_long() const {
    for (auto& p : running_) {
      if (!p.stopped || seconds_to(*p.stopped) > -options_.stopped_seconds) continue;
      Message m;
      m << "rank " << p.rank << " (process " << int(p.pid) << ") has been stopped for " << options_.stopped_seconds
        << " s";
      return m.str();
    }
    return "";
  }

  std::string reap() {
    std::string failure;
    for (size_t i = 0; i < running_.size();) {
      int status = 0;
      pid_t ended = waitpid(running_[i].pid, &status, WNOHANG | WUNTRACED | WCONTINUED);
      if (ended > 0 && WIFSTOPPED(status)) running_[i].stopped = std::chrono::steady_clock::now();
      if (ended > 0 && WIFCONTINUED(status)) running_[i].stopped.reset();
      if (ended == 0 || (ended < 0 && errno == EINTR) || (ended > 0 && (WIFSTOPPED(status) || WIFCONTINUED(status)))) {
        ++i;
        continue;
      }
      Message m;
      m << "rank " << running_[i].rank << " (process " << int(running_[i].pid) << ") ";
      bool failed = true;
      if (WIFSIGNALED(status)) m << "was ended by signal " << WTERMSIG(status) << ", " << strsignal(WTERMSIG(status));
      else if (WEXITSTATUS(status) == 127) m << "could not be started: there is no program " << options_.command[0];
      else if (WEXITSTATUS(status) != 0) m << "ended with exit code " << WEXITSTATUS(status);
      else failed = false;
      if (failed && failure.empty()) failure = m.str();
      running_.erase(running_.begin() + long(i));
    }
    return failure;
  }

  std::vector<std::string> environment(int rank, int port, int attempt) const {
    std::string count = std::to_string(count_);
    std::vector<std::pair<std::string, std::string>> own = {
        {"RANK", std::to_string(rank)},
        {"LOCAL_RANK", std::to_string(rank)},
        {"GROUP_RANK", "0"},
        {"ROLE_RANK", std::to_string(rank)},
        {"WORLD_SIZE", count},
        {"LOCAL_WORLD_SIZE", count},
        {"GROUP_WORLD_SIZE", "1"},
        {"ROLE_WORLD_SIZE", count},
        {"ROLE_NAME", "default"},
        {"MASTER_ADDR", "127.0.0.1"},
        {"MASTER_PORT", std::to_string(port)},
        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
        {"TORCHELASTIC_RESTART_COUNT", std::to_string(attempt)},
        {"TORCHELASTIC_MAX_RESTARTS", std::to_string(options_.max_restarts)},
        {"TORCHELASTIC_RUN_ID", options_.run_id},
    };
    // As torchrun: threads of all would be more than there are cores.
    if (count_ > 1 && !std::getenv("OMP_NUM_THREADS")) own.emplace_back("OMP_NUM_THREADS", "1");
    std::vector<std::string> all;
    for (char** e = environ; *e; ++e) {
      std::string_view variable = *e;
      bool replaced = false;
      for (auto& [name, value] : own)
        replaced |= variable.size() > name.size() && variable.starts_with(name) && variable[name.size()] == '=';
      if (!replaced) all.emplace_back(variable);
    }
    for (auto& [name, value] : own) all.push_back(name + "=" + value);
    return all;
  }

  const LaunchOptions& options_;
  int count_ = 0;  // of this attempt
  std::vector<Running> running_;
};

}  // namespace

int processes_after(const LaunchOptions& options, int count, double seconds) {
  if (options.min_processes == 0 || seconds >= options.regrow_seconds) return options.processes;
  int fewer = 1;
  while (fewer * 2 < count) fewer *= 2;
  return std::max(fewer, options.min_processes);
}

void launch(const LaunchOptions& options) {
  SF_CHECK(!options.command.empty(), "launch: needs a program to start");
  SF_CHECK(options.processes > 0 && options.processes <= 4096, "launch: processes must be 1 to 4096, got ",
           options.processes);
  SF_CHECK(options.min_processes >= 0 && options.min_processes <= options.processes,
           "launch: min_processes must be 0 to processes=", options.processes, ", got ", options.min_processes);
  SF_CHECK(options.regrow_seconds >= 0 && options.stopped_seconds > 0,
           "launch: regrow_seconds must be 0 or more and stopped_seconds positive, got ", options.regrow_seconds,
           " and ", options.stopped_seconds);
  SF_CHECK(options.max_restarts >= 0, "launch: max_restarts must be 0 or more, got ", options.max_restarts);
  TCPStore store({.port = options.port, .is_server = true});
  NotedSignals noted;
  Processes processes(options);
  int count = options.processes;
  for (int attempt = 0;; ++attempt) {
    auto begun = std::chrono::steady_clock::now();
    processes.start(store.port(), attempt, count);
    std::string failure = processes.wait();
    if (failure.empty()) return;
    double lived = -seconds_to(begun);
    processes.end();
    SF_CHECK_AS(RuntimeError, attempt < options.max_restarts && g_signal == 0, "launch: ", failure,
                attempt > 0 ? ", after " + std::to_string(attempt) + " restarts" : std::string());
    int next = processes_after(options, count, lived);
    Message m;
    m << failure << "; all start again";
    if (next != count) m << " as " << next << (next == 1 ? " process" : " processes");
    m << ", " << options.max_restarts - attempt - 1 << " times left";
    options.say(m.str());
    count = next;
  }
}

}  // namespace sf::distributed
