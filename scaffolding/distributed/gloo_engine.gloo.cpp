// The backend "gloo": bytes between CPUs by Gloo's TCP transport. Its loop thread moves them; the caller waits.
#include <gloo/allgather.h>
#include <gloo/broadcast.h>
#include <gloo/common/error.h>
#include <gloo/gather.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <gloo/types.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>

#include "scaffolding/core/error.h"
#include "scaffolding/distributed/engine.h"

namespace sf::distributed {

namespace {

constexpr const char* kDestroyed = "the group was destroyed";
constexpr uint8_t kOurSlots = 0x53;  // Gloo's own calls have prefixes of 1 to 8

std::chrono::milliseconds left(Deadline deadline) {
  auto ms = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::max(ms, std::chrono::milliseconds(1));  // 0 would mean without end
}

// Gloo's texts begin with the file and line of its source.
std::string text_of(const std::exception& e) {
  std::string text = e.what();
  if (size_t end = text.find("] "); !text.empty() && text[0] == '[' && end != std::string::npos) text.erase(0, end + 2);
  return text;
}

// The store by which Gloo exchanges addresses; a process that does not come is named.
class GlooStore final : public ::gloo::rendezvous::Store {
 public:
  GlooStore(std::shared_ptr<distributed::Store> store, Deadline deadline)
      : store_(std::move(store)), deadline_(deadline) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    store_->set(key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    await({key});
    std::string value = store_->get(key);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { await(keys); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { await(keys); }

 private:
  void await(const std::vector<std::string>& keys) { store_->wait(keys, std::max(seconds_to(deadline_), 1e-3)); }
  std::shared_ptr<distributed::Store> store_;
  Deadline deadline_;
};

// Gloo writes to sockets whose other end may be gone. That is an error of the call, never the end of a process: where
// nothing else was asked for, the signal is ignored (in Python it is anyway).
void outlive_closed_sockets() {
  struct sigaction now;
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL)
    std::signal(SIGPIPE, SIG_IGN);
}

std::shared_ptr<::gloo::transport::Device> device() {
  outlive_closed_sockets();
  ::gloo::transport::tcp::attr attr;
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");  // as for PyTorch
  bool named = interface && *interface;
  if (named) attr.iface = interface;
  else {
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    attr.hostname = host;
  }
  try {
    return ::gloo::transport::tcp::CreateDevice(attr);
  } catch (const std::exception& e) {
    SF_CHECK_AS(RuntimeError, !named, "gloo: GLOO_SOCKET_IFNAME=", interface, " cannot be used: ", text_of(e));
  }
  return ::gloo::transport::tcp::CreateDevice("127.0.0.1");  // a machine whose name is no address: of itself alone
}

// A send or receive, from when it is asked for until it is over.
struct Moving {
  std::shared_ptr<::gloo::transport::UnboundBuffer> buffer;
  int peer;
  uint64_t slot;
  bool sends;
  std::string failed;  // why it could not begin

  void begin() {
    try {
      if (sends) buffer->send(peer, slot);
      else buffer->recv(peer, slot);
    } catch (const std::exception& e) {
      fail(text_of(e));
    }
  }
  void fail(std::string why) {
    failed = std::move(why);
    if (sends) buffer->abortWaitSend();
    else buffer->abortWaitRecv();
  }
};

// Begins transfers on Gloo's own thread. One that begins on another holds its connection's lock while it writes; Gloo's
// thread, woken by what arrives there, finds it locked and asks again at once, for as long as the other one is not
// running: four processes on two cores waited 7 ms for each all_reduce of 64 KB.
class LoopThread final : public ::gloo::transport::tcp::Handler {
 public:
  explicit LoopThread(const std::shared_ptr<::gloo::transport::Device>& device)
      : device_(std::dynamic_pointer_cast<::gloo::transport::tcp::Device>(device)),
        wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    SF_CHECK_AS(RuntimeError, device_ && wake_ >= 0, "gloo: cannot reach its thread");
    device_->registerDescriptor(wake_, EPOLLIN, this);
  }
  ~LoopThread() override {
    device_->unregisterDescriptor(wake_, this);  // returns when Gloo's thread has gone round once more
    { std::lock_guard turn(turn_); }             // it says so without a lock; here its last turn is over for certain
    close(wake_);
  }
  LoopThread(const LoopThread&) = delete;

  void begin(std::shared_ptr<Moving> moving) {
    std::lock_guard lock(mutex_);
    if (waiting_.empty()) {
      const uint64_t one = 1;
      SF_CHECK_AS(RuntimeError, write(wake_, &one, sizeof one) == sizeof one, "gloo: cannot wake its thread");
    }
    waiting_.push_back(std::move(moving));
  }
  // From here on its memory is not touched: what has not begun never does.
  void forget(const Moving& moving) {
    std::lock_guard turn(turn_);
    std::lock_guard lock(mutex_);
    std::erase_if(waiting_, [&](const auto& m) { return m.get() == &moving; });
  }
  // Nothing begins after it. To be called before connections are closed: who closes one holds its lock until Gloo's
  // thread has gone round, which would wait for that lock.
  void stop() {
    std::lock_guard turn(turn_);
    stopped_ = true;
  }
  bool stopped() const { return stopped_; }
  void handleEvents(int) override {
    std::lock_guard turn(turn_);
    uint64_t count;
    [[maybe_unused]] ssize_t n = read(wake_, &count, sizeof count);
    std::vector<std::shared_ptr<Moving>> now;
    {
      std::lock_guard lock(mutex_);
      now.swap(waiting_);
    }
    for (auto& moving : now) {
      if (stopped_) moving->fail(kDestroyed);
      else moving->begin();
    }
  }

 private:
  std::shared_ptr<::gloo::transport::tcp::Device> device_;
  int wake_;
  std::mutex turn_;  // held while transfers begin
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;  // of waiting_
  std::vector<std::shared_ptr<Moving>> waiting_;
};

class GlooTransfer final : public Transfer {
 public:
  GlooTransfer(std::shared_ptr<Moving> moving, LoopThread& loop, int world_rank)
      : moving_(std::move(moving)), loop_(loop), world_rank_(world_rank) {}
  ~GlooTransfer() override {
    if (!over_) loop_.forget(*moving_);
  }
  void wait(Deadline deadline) override {
    bool late = false;
    std::string why;
    auto& buffer = *moving_->buffer;
    try {
      if (moving_->sends ? buffer.waitSend(left(deadline)) : buffer.waitRecv(left(deadline))) {
        over_ = true;
        return;
      }
      why = moving_->failed;
    } catch (const std::exception& e) {
      why = loop_.stopped() ? kDestroyed : text_of(e);
      late = std::chrono::steady_clock::now() >= deadline || why.starts_with("Timed out");
    }
    fail<RuntimeError>("rank ", world_rank_, late ? " did not come before the timeout" : " is gone (", late ? "" : why,
                       late ? "" : ")");
  }

 private:
  std::shared_ptr<Moving> moving_;
  LoopThread& loop_;
  int world_rank_;
  bool over_ = false;
};

class GlooEngine final : public Engine {
 public:
  explicit GlooEngine(const EngineOptions& o) : rank_(o.rank), world_ranks_(o.world_ranks) {
    Deadline deadline = in_seconds(o.timeout_seconds);
    try {
      auto by = device();
      loop_ = std::make_unique<LoopThread>(by);
      upward_ = connect(o, by, "up", deadline);
      downward_ = connect(o, by, "down", deadline);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& e) {
      fail<RuntimeError>("gloo: cannot connect the processes: ", text_of(e));
    }
  }
  ~GlooEngine() override { GlooEngine::abort(); }

  const char* name() const override { return "gloo"; }

  std::unique_ptr<Transfer> send(const void* data, size_t bytes, int to, uint32_t tag) override {
    return start(towards(rank_, to), const_cast<void*>(data), bytes, to, tag, true);
  }
  std::unique_ptr<Transfer> receive(void* data, size_t bytes, int from, uint32_t tag) override {
    return start(towards(from, rank_), data, bytes, from, tag, false);
  }
  void broadcast(void* data, size_t bytes, int root, Deadline deadline) override {
    call(::gloo::BroadcastOptions(upward_), deadline, [&](auto& options) {
      options.template setOutput<char>(static_cast<char*>(data), bytes);
      options.setRoot(root);
      ::gloo::broadcast(options);
    });
  }
  void all_gather(const void* in, void* out, size_t bytes, Deadline deadline) override {
    call(::gloo::AllgatherOptions(upward_), deadline, [&](auto& options) {
      options.template setInput<char>(static_cast<char*>(const_cast<void*>(in)), bytes);
      options.template setOutput<char>(static_cast<char*>(out), bytes * size_t(upward_->size));
      ::gloo::allgather(options);
    });
  }
  void gather(const void* in, void* out, size_t bytes, int root, Deadline deadline) override {
    call(::gloo::GatherOptions(upward_), deadline, [&](auto& options) {
      options.template setInput<char>(static_cast<char*>(const_cast<void*>(in)), bytes);
      if (upward_->rank == root)
        options.template setOutput<char>(static_cast<char*>(out), bytes * size_t(upward_->size));
      options.setRoot(root);
      ::gloo::gather(options);
    });
  }
  void scatter(const void* in, void* out, size_t bytes, int root, Deadline deadline) override {
    call(::gloo::ScatterOptions(upward_), deadline, [&](auto& options) {
      if (upward_->rank == root) {
        std::vector<char*> parts;
        for (int i = 0; i < upward_->size; ++i)
          parts.push_back(static_cast<char*>(const_cast<void*>(in)) + size_t(i) * bytes);
        options.template setInputs<char>(parts, bytes);
      }
      options.template setOutput<char>(static_cast<char*>(out), bytes);
      options.setRoot(root);
      ::gloo::scatter(options);
    });
  }
  void abort() override {
    loop_->stop();
    for (auto& context : {upward_, downward_}) {
      // closeConnections() wakes nobody who waits for them. A wait that comes too late does, and closes them.
      char byte = 0;
      try {
        context->createUnboundBuffer(&byte, 1)->waitRecv(std::chrono::milliseconds(1));
      } catch (const std::exception&) {}
    }
  }

 private:
  using Context = std::shared_ptr<::gloo::Context>;

  Context connect(const EngineOptions& o, std::shared_ptr<::gloo::transport::Device>& by, const char* name,
                  Deadline deadline) {
    auto context = std::make_shared<::gloo::rendezvous::Context>(o.rank, o.size);
    GlooStore store(std::make_shared<PrefixStore>(name, o.store), deadline);
    context->setTimeout(left(deadline));
    context->connectFullMesh(store, by);
    greet(context, deadline);
    return context;
  }
  // A byte from and to everyone: then both ends of every connection know that it is one. Gloo's thread ends the process
  // when a connection is closed before it has asked for its address.
  void greet(const Context& context, Deadline deadline) {
    char byte = 0;
    std::vector<char> bytes(static_cast<size_t>(context->size));
    std::vector<std::unique_ptr<Transfer>> moving;
    for (int p = 0; p < context->size; ++p) {
      if (p == rank_) continue;
      moving.push_back(start(context, &bytes[size_t(p)], 1, p, 0, false));
      moving.push_back(start(context, &byte, 1, p, 0, true));
    }
    for (auto& transfer : moving) transfer->wait(deadline);
  }

  const Context& towards(int from, int to) const { return to > from ? upward_ : downward_; }
  std::unique_ptr<Transfer> start(const Context& context, void* data, size_t bytes, int peer, uint32_t tag,
                                  bool sends) {
    auto moving = std::make_shared<Moving>(context->createUnboundBuffer(data, bytes), peer,
                                           ::gloo::Slot::build(kOurSlots, tag), sends);
    loop_->begin(moving);
    return std::make_unique<GlooTransfer>(std::move(moving), *loop_, world_ranks_[size_t(peer)]);
  }
  template <class O, class F> void call(O options, Deadline deadline, F f) {
    options.setTag(tag_++);
    options.setTimeout(left(deadline));
    try {
      f(options);
    } catch (const std::exception& e) {
      fail<RuntimeError>(loop_->stopped() ? kDestroyed : text_of(e));
    }
  }

  int rank_;
  std::vector<int> world_ranks_;
  // Connections for what goes to higher ranks, and for what goes to lower ones.
  Context upward_, downward_;
  std::unique_ptr<LoopThread> loop_;  // begins nothing once they go
  uint32_t tag_ = 0;
};

std::unique_ptr<Engine> make(const EngineOptions& options) { return std::make_unique<GlooEngine>(options); }

}  // namespace
}  // namespace sf::distributed

extern "C" const sf::distributed::EngineLibrary* scaffolding_engine_library() {
  static const sf::distributed::EngineLibrary library{SF_VERSION, sf::distributed::make};
  return &library;
}
