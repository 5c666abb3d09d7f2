#include "scaffolding/distributed/process_group.h"

#include <algorithm>
#include <cstring>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/cpu/sealed_pages.h"
#include "scaffolding/distributed/socket.h"
#include "scaffolding/ops/copy/copy.h"

namespace sf::distributed {

namespace {

constexpr uint32_t kMagic = 0x53465047;  // "SFPG"
constexpr size_t kBlock = 1 << 20;       // bytes that a broadcast passes on at a time

struct Hello {  // from each rank to rank 0
  uint32_t magic = kMagic;
  int32_t world_size = 0, rank = 0, port = 0;  // the port at which its neighbour finds it
};
struct Address {
  char host[64] = {};
  int32_t port = 0;
};
struct Call {  // what neighbours show each other before they exchange data
  char name[16] = {};
  int64_t bytes = 0, dtype = 0, detail = 0;
};

// into = into (how) from, element by element.
template <class T> void combine(T* into, const T* from, int64_t n, Reduction how) {
  auto each = [&](auto f) {
    for (int64_t i = 0; i < n; ++i) into[i] = f(into[i], from[i]);
  };
  switch (how) {
    case Reduction::Sum:
    case Reduction::Mean: return each([](T a, T b) { return a + b; });
    case Reduction::Product: return each([](T a, T b) { return a * b; });
    case Reduction::Min: return each([](T a, T b) { return std::min(a, b); });
    case Reduction::Max: return each([](T a, T b) { return std::max(a, b); });
  }
}

template <class F> void with_type(DType t, F&& f) {
  switch (t) {
    case kFloat32: return f(float{});
    case kFloat64: return f(double{});
    case kInt32: return f(int32_t{});
    default: return f(int64_t{});
  }
}

// A tensor's values in one piece on the CPU: its own memory where that is one.
Tensor dense(const char* op, const Tensor& t) {
  check_defined(op, "tensor", t);
  SF_CHECK_AS(RuntimeError, !t.device().is_meta(), op, ": a tensor on the meta device has no values");
  Tensor values = contiguous(t.detach().to(Device::CPU));
  cpu::will_write(values);
  return values;
}

void put_back(const Tensor& t, const Tensor& values) {
  if (t.data_ptr() == values.data_ptr() && t.device().is_cpu()) return;
  autograd::NoGrad no_grad;
  t.detach().copy_(values);
}

}  // namespace

struct ProcessGroup::Ring {
  Socket next, previous;
  int rank, size;
  double timeout;

  Deadline deadline() const {
    return std::chrono::steady_clock::now() + std::chrono::nanoseconds(int64_t(timeout * 1e9));
  }
  void exchange(const void* out, size_t out_bytes, void* in, size_t in_bytes) {
    Socket::exchange(next, out, out_bytes, previous, in, in_bytes, deadline());
  }

  // Every process learns whether its neighbour makes the same call.
  void agree(const char* name, int64_t bytes, DType dtype, int64_t detail = 0) {
    Call mine, theirs;
    std::strncpy(mine.name, name, sizeof mine.name - 1);
    mine.bytes = bytes, mine.dtype = int64_t(dtype), mine.detail = detail;
    exchange(&mine, sizeof mine, &theirs, sizeof theirs);
    theirs.name[sizeof theirs.name - 1] = 0;
    bool same = !std::memcmp(&mine, &theirs, sizeof mine);
    SF_CHECK_AS(RuntimeError, same, name, ": every process must make the same call; rank ", rank, " has ", bytes,
                " bytes of ", dtype, ", ", previous.peer(), " calls ", theirs.name, " with ", theirs.bytes, " bytes",
                same || theirs.detail == detail ? "" : " and another source or reduction");
  }

  // Each process adds up one of `size` parts while all travel once around the ring; then the sums travel around.
  void all_reduce(const Tensor& t, Reduction how) {
    int64_t n = t.numel(), item = t.itemsize();
    auto* data = static_cast<char*>(t.data_ptr());
    auto first = [&](int part) { return n * part / size; };
    auto part_of = [&](int i) { return ((i % size) + size) % size; };
    auto bytes = [&](int part) { return size_t((first(part + 1) - first(part)) * item); };
    std::vector<char> received(size_t((n + size - 1) / size * item));
    for (int step = 0; step + 1 < size; ++step) {
      int out = part_of(rank - step), in = part_of(rank - step - 1);
      exchange(data + first(out) * item, bytes(out), received.data(), bytes(in));
      with_type(t.dtype(), [&](auto zero) {
        using T = decltype(zero);
        combine(reinterpret_cast<T*>(data) + first(in), reinterpret_cast<const T*>(received.data()),
                first(in + 1) - first(in), how);
      });
    }
    int whole = part_of(rank + 1);
    if (how == Reduction::Mean)
      with_type(t.dtype(), [&](auto zero) {
        using T = decltype(zero);
        for (int64_t i = first(whole); i < first(whole + 1); ++i) reinterpret_cast<T*>(data)[i] /= T(size);
      });
    for (int step = 0; step + 1 < size; ++step) {
      int out = part_of(rank + 1 - step), in = part_of(rank - step);
      exchange(data + first(out) * item, bytes(out), data + first(in) * item, bytes(in));
    }
  }

  // From neighbour to neighbour, block by block: while one is passed on the next arrives.
  void broadcast(char* data, size_t bytes, int source) {
    bool receives = rank != source, sends = (rank + 1) % size != source;
    size_t have = receives ? 0 : bytes, sent = sends ? 0 : bytes;
    while (have < bytes || sent < bytes) {
      size_t out = std::min(kBlock, sent < bytes ? have - sent : 0), in = std::min(kBlock, bytes - have);
      exchange(data + sent, out, data + have, in);
      sent += out, have += in;
    }
  }

  void all_gather(const std::vector<Tensor>& parts) {
    for (int step = 0; step + 1 < size; ++step) {
      const Tensor &out = parts[size_t((rank - step + size) % size)],
                   &in = parts[size_t((rank - step - 1 + size) % size)];
      exchange(out.data_ptr(), out.nbytes(), in.data_ptr(), in.nbytes());
    }
  }
};

// Rank 0 hears from every process where its neighbour can find it, and tells all.
ProcessGroup::ProcessGroup(const GroupOptions& o) : options_(o) {
  SF_CHECK(o.world_size > 0 && o.world_size <= 65536, "ProcessGroup: world_size must be 1 to 65536, got ",
           o.world_size);
  SF_CHECK(o.rank >= 0 && o.rank < o.world_size, "ProcessGroup: rank must be 0 to ", o.world_size - 1, ", got ",
           o.rank);
  SF_CHECK(o.port > 0 && o.port < 65536, "ProcessGroup: port must be 1 to 65535, got ", o.port);
  SF_CHECK(o.timeout_seconds > 0 && o.timeout_seconds < 1e8,
           "ProcessGroup: timeout_seconds must be positive and below 1e8, got ", o.timeout_seconds);
  if (o.world_size == 1) return;
  auto ring = std::make_unique<Ring>();
  ring->rank = o.rank, ring->size = o.world_size, ring->timeout = o.timeout_seconds;
  Deadline deadline = ring->deadline();
  std::vector<Address> where(static_cast<size_t>(o.world_size));
  std::unique_ptr<Listener> listener;
  if (o.rank == 0) {
    listener = std::make_unique<Listener>(o.address, o.port);
    std::vector<Socket> all(static_cast<size_t>(o.world_size));
    for (int i = 1; i < o.world_size; ++i) {
      Socket s = listener->accept(deadline);
      Hello h;
      s.receive(&h, sizeof h, deadline);
      SF_CHECK_AS(RuntimeError, h.magic == kMagic, "ProcessGroup: ", s.peer(), " does not speak this protocol");
      SF_CHECK(h.world_size == o.world_size, "ProcessGroup: rank ", h.rank, " has world_size=", h.world_size,
               ", rank 0 has ", o.world_size);
      SF_CHECK(h.rank > 0 && h.rank < o.world_size && where[size_t(h.rank)].port == 0,
               "ProcessGroup: two processes have rank ", h.rank);
      Address& a = where[size_t(h.rank)];
      std::strncpy(a.host, s.remote_address().c_str(), sizeof a.host - 1);
      a.port = h.port;
      all[size_t(h.rank)] = std::move(s);
    }
    where[0].port = o.port;
    std::strncpy(where[0].host, o.address.c_str(), sizeof where[0].host - 1);
    for (int i = 1; i < o.world_size; ++i) all[size_t(i)].send(where.data(), where.size() * sizeof(Address), deadline);
  } else {
    Socket s = Socket::connect(o.address, o.port, deadline);
    s.set_peer("rank 0");
    listener = std::make_unique<Listener>(s.local_address(), 0);
    Hello h{kMagic, o.world_size, o.rank, listener->port()};
    s.send(&h, sizeof h, deadline);
    s.receive(where.data(), where.size() * sizeof(Address), deadline);
  }
  int next = (o.rank + 1) % o.world_size, previous = (o.rank + o.world_size - 1) % o.world_size;
  const Address& a = where[size_t(next)];
  ring->next = Socket::connect(next == 0 ? o.address : a.host, a.port, deadline);
  ring->previous = listener->accept(deadline);
  Hello mine{kMagic, o.world_size, o.rank, 0}, theirs;
  ring->exchange(&mine, sizeof mine, &theirs, sizeof theirs);
  SF_CHECK_AS(RuntimeError, theirs.magic == kMagic && theirs.rank == previous,
              "ProcessGroup: another program has connected from ", ring->previous.peer());
  ring->next.set_peer("rank " + std::to_string(next));
  ring->previous.set_peer("rank " + std::to_string(previous));
  ring_ = std::move(ring);
}

ProcessGroup::~ProcessGroup() = default;

void ProcessGroup::all_reduce(const Tensor& t, Reduction how) {
  check_defined("all_reduce", "tensor", t);
  bool sixteen = t.dtype() == kFloat16 || t.dtype() == kBFloat16,
       floating = sixteen || t.dtype() == kFloat32 || t.dtype() == kFloat64;
  SF_CHECK_AS(TypeError, floating || t.dtype() == kInt32 || t.dtype() == kInt64,
              "all_reduce: tensors must be floating, int32 or int64, got ", t.dtype());
  SF_CHECK_AS(TypeError, floating || how != Reduction::Mean, "all_reduce: the mean needs floating tensors, got ",
              t.dtype());
  Tensor values = dense("all_reduce", sixteen ? t.detach().to(kFloat32) : t);
  if (!ring_) return;
  ring_->agree("all_reduce", int64_t(values.nbytes()), t.dtype(), int64_t(how));
  ring_->all_reduce(values, how);
  put_back(t, values);
}

void ProcessGroup::broadcast(const Tensor& t, int source) {
  SF_CHECK(source >= 0 && source < size(), "broadcast: source must be 0 to ", size() - 1, ", got ", source);
  Tensor values = dense("broadcast", t);
  if (!ring_) return;
  ring_->agree("broadcast", int64_t(values.nbytes()), t.dtype(), source);
  ring_->broadcast(static_cast<char*>(values.data_ptr()), values.nbytes(), source);
  if (rank() != source) put_back(t, values);
}

void ProcessGroup::all_gather(const std::vector<Tensor>& into, const Tensor& t) {
  SF_CHECK(int(into.size()) == size(), "all_gather: needs a tensor for each of ", size(), " processes, got ",
           into.size());
  std::vector<Tensor> parts;
  for (auto& p : into) {
    parts.push_back(dense("all_gather", p));
    SF_CHECK(p.numel() == t.numel() && p.dtype() == t.dtype(),
             "all_gather: every tensor must be like the gathered one, ", t.shape(), " ", t.dtype(), ", got ", p.shape(),
             " ", p.dtype());
  }
  Tensor own = dense("all_gather", t);
  if (own.nbytes() > 0) std::memcpy(parts[size_t(rank())].data_ptr(), own.data_ptr(), own.nbytes());
  if (ring_) {
    ring_->agree("all_gather", int64_t(own.nbytes()), t.dtype());
    ring_->all_gather(parts);
  }
  for (size_t i = 0; i < into.size(); ++i) put_back(into[i], parts[i]);
}

void ProcessGroup::barrier() {
  if (!ring_) return;
  int64_t nothing = 0, received;
  ring_->agree("barrier", 0, kInt64);
  // What comes in step k was sent by a neighbour who had heard from its own k - 1 times:
  // after size - 1 steps all have come.
  for (int step = 0; step + 1 < size(); ++step) ring_->exchange(&nothing, sizeof nothing, &received, sizeof received);
}

}  // namespace sf::distributed
