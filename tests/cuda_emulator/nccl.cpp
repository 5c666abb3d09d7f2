// A stand-in for libnccl.so.2 between processes, each with an emulated GPU: bytes go over sockets of this machine when
// the stream comes to them. It refuses what NCCL's manual forbids, where NCCL would hang or give wrong numbers: calls,
// counts or types that differ between ranks, a communicator whose next call is on another stream while one is pending,
// memory that overlaps otherwise than in place, groups that do not balance, peers that do not match, and any use after
// an abort. Sums in double, in the order of the ranks.
#include <cuda_runtime.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "scaffolding/core/half.h"
#include "scaffolding/distributed/nccl_api.h"

#define SF_EXPORT extern "C" __attribute__((visibility("default")))

extern "C" void sf_cuda_emulator_queue(cudaStream_t stream, void (*work)(void*), void* argument, void (*drop)(void*));

using namespace sf::distributed::nccl;

struct Header {
  int32_t call, type, op, root;
  uint64_t count, number;
};

// What a communicator and the work that is queued for it share.
struct Shared {
  int rank = 0, size = 1;
  std::string id;
  std::vector<int> sockets;  // by rank; own: -1
  std::atomic<int> state{int(Result::InProgress)};
  std::atomic<bool> aborted{false};
  std::atomic<uint64_t> queued{0}, done{0};
  std::mutex mutex;  // of text
  std::string text;
  ~Shared() {
    for (int s : sockets)
      if (s >= 0) close(s);
  }
  void fail(Result r, const std::string& why) {
    std::lock_guard lock(mutex);
    if (text.empty()) text = why, state = int(r);
  }
};

struct Piece {
  bool sends;
  int peer;
  const void* from;
  void* to;
  size_t bytes;
};

namespace sf::distributed::nccl {
struct OpaqueComm {
  std::shared_ptr<Shared> shared = std::make_shared<Shared>();
  std::thread joining;
  void* stream = nullptr;  // of the last call
  bool used = false;
  uint64_t calls = 0, splits = 0;
};
}  // namespace sf::distributed::nccl

namespace {

thread_local int t_depth = 0;
thread_local std::map<Comm, std::vector<Piece>> t_pieces;
thread_local std::map<Comm, void*> t_streams;
std::mutex g_mutex;
std::string g_last;  // of calls without a communicator that can tell

size_t bytes_of(Type t) {
  switch (t) {
    case Type::Int8:
    case Type::UInt8: return 1;
    case Type::Half:
    case Type::BFloat: return 2;
    case Type::Int32:
    case Type::Float: return 4;
    default: return 8;
  }
}

Result refuse(Comm c, Result r, const std::string& why) {
  std::lock_guard lock(g_mutex);
  g_last = why;
  if (c) c->shared->fail(r, why);
  return r;
}

bool all_sent(Shared& s, int fd, const void* data, size_t bytes) {
  auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t n = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (n <= 0 || s.aborted) return false;
    at += n, bytes -= size_t(n);
  }
  return true;
}
bool all_received(Shared& s, int fd, void* data, size_t bytes) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    ssize_t n = ::recv(fd, at, bytes, 0);
    if (n <= 0 || s.aborted) return false;
    at += n, bytes -= size_t(n);
  }
  return true;
}

sockaddr_un address_of(const std::string& id, int rank, socklen_t& length) {
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  std::string name = "sf-nccl-" + id + "-" + std::to_string(rank);  // without a file: the first byte is 0
  std::memcpy(a.sun_path + 1, name.data(), name.size());
  length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return a;
}

void join(std::shared_ptr<Shared> s) {
  socklen_t length = 0;
  sockaddr_un own = address_of(s->id, s->rank, length);
  int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(listening, reinterpret_cast<sockaddr*>(&own), length) != 0 || listen(listening, 64) != 0) {
    close(listening);
    return s->fail(Result::InvalidUsage, "two ranks of a communicator have one number");
  }
  std::vector<int> sockets(size_t(s->size), -1);
  for (int p = 0; p < s->rank && !s->aborted; ++p) {
    sockaddr_un theirs = address_of(s->id, p, length);
    while (!s->aborted) {
      int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (connect(fd, reinterpret_cast<sockaddr*>(&theirs), length) == 0) {
        int32_t me[2] = {s->rank, s->size};
        all_sent(*s, fd, me, sizeof me);
        sockets[size_t(p)] = fd;
        break;
      }
      close(fd);
      usleep(2000);
    }
  }
  for (int left = s->size - 1 - s->rank; left > 0 && !s->aborted;) {
    pollfd ready{listening, POLLIN, 0};
    if (poll(&ready, 1, 10) != 1) continue;
    int fd = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
    int32_t who[2] = {};
    all_received(*s, fd, who, sizeof who);
    if (who[1] != s->size || who[0] <= s->rank || who[0] >= s->size || sockets[size_t(who[0])] >= 0)
      s->fail(Result::InvalidUsage, "ranks of a communicator do not fit together");
    else sockets[size_t(who[0])] = fd, --left;
  }
  close(listening);
  s->sockets = std::move(sockets);
  int expected = int(Result::InProgress);
  if (!s->aborted) s->state.compare_exchange_strong(expected, int(Result::Success));
}

Comm made(int size, const std::string& id, int rank) {
  Comm c = new OpaqueComm;
  c->shared->rank = rank, c->shared->size = size, c->shared->id = id;
  c->joining = std::thread(join, c->shared);
  return c;
}

struct Job {
  std::shared_ptr<Shared> shared;
  std::function<void(Shared&)> work;
};

Result queued(Comm c, void* stream, std::function<void(Shared&)> work) {
  Shared& s = *c->shared;
  if (c->used && c->stream != stream && s.done != s.queued)
    return refuse(c, Result::InvalidUsage, "a communicator's next call is on another stream while one is pending");
  c->used = true, c->stream = stream;
  ++s.queued;
  auto* job = new Job{c->shared, std::move(work)};
  sf_cuda_emulator_queue(
      static_cast<cudaStream_t>(stream),
      [](void* j) {
        auto& job = *static_cast<Job*>(j);
        if (!job.shared->aborted && job.shared->state == int(Result::Success)) job.work(*job.shared);
        ++job.shared->done;
      },
      job, [](void* j) { delete static_cast<Job*>(j); });
  return Result::Success;
}

// To everyone what is theirs, from everyone what they have; both begin with a header, which must be the same.
bool swap(Shared& s, const Header& mine, const std::function<std::string(int)>& gives,
          std::vector<std::string>& takes) {
  std::vector<std::thread> senders;
  for (int p = 0; p < s.size; ++p)
    if (p != s.rank)
      senders.emplace_back([&s, p, mine, data = gives(p)] {
        uint64_t n = data.size();
        if (all_sent(s, s.sockets[size_t(p)], &mine, sizeof mine) && all_sent(s, s.sockets[size_t(p)], &n, sizeof n))
          all_sent(s, s.sockets[size_t(p)], data.data(), n);
      });
  takes.assign(size_t(s.size), "");
  bool good = true;
  for (int p = 0; p < s.size && good; ++p) {
    if (p == s.rank) {
      takes[size_t(p)] = gives(p);
      continue;
    }
    Header theirs{};
    uint64_t n = 0;
    good = all_received(s, s.sockets[size_t(p)], &theirs, sizeof theirs) &&
           all_received(s, s.sockets[size_t(p)], &n, sizeof n);
    if (!good) s.fail(Result::RemoteError, "rank " + std::to_string(p) + " is gone");
    if (good && std::memcmp(&theirs, &mine, sizeof mine) != 0) {
      s.fail(Result::InvalidUsage, "rank " + std::to_string(p) + " makes another call: call " +
                                       std::to_string(theirs.call) + " of " + std::to_string(theirs.count) +
                                       " numbers, here call " + std::to_string(mine.call) + " of " +
                                       std::to_string(mine.count));
      good = false;
    }
    if (!good) break;
    takes[size_t(p)].resize(n);
    good = all_received(s, s.sockets[size_t(p)], takes[size_t(p)].data(), n);
  }
  if (!good)
    for (int fd : s.sockets)
      if (fd >= 0) shutdown(fd, SHUT_RDWR);
  for (auto& t : senders) t.join();
  return good;
}

double read(const char* data, Type t, size_t i) {
  switch (t) {
    case Type::Int8: return reinterpret_cast<const int8_t*>(data)[i];
    case Type::UInt8: return reinterpret_cast<const uint8_t*>(data)[i];
    case Type::Int32: return reinterpret_cast<const int32_t*>(data)[i];
    case Type::Int64: return double(reinterpret_cast<const int64_t*>(data)[i]);
    case Type::Half: return double(sf::to_float(reinterpret_cast<const sf::Half*>(data)[i]));
    case Type::BFloat: return double(sf::to_float(reinterpret_cast<const sf::BFloat16*>(data)[i]));
    case Type::Float: return double(reinterpret_cast<const float*>(data)[i]);
    default: return reinterpret_cast<const double*>(data)[i];
  }
}
void write(char* data, Type t, size_t i, double x) {
  switch (t) {
    case Type::Int8: reinterpret_cast<int8_t*>(data)[i] = int8_t(int64_t(x)); return;
    case Type::UInt8: reinterpret_cast<uint8_t*>(data)[i] = uint8_t(int64_t(x)); return;
    case Type::Int32: reinterpret_cast<int32_t*>(data)[i] = int32_t(int64_t(x)); return;
    case Type::Int64: reinterpret_cast<int64_t*>(data)[i] = int64_t(x); return;
    case Type::Half: reinterpret_cast<sf::Half*>(data)[i] = sf::from_float<sf::Half>(float(x)); return;
    case Type::BFloat: reinterpret_cast<sf::BFloat16*>(data)[i] = sf::from_float<sf::BFloat16>(float(x)); return;
    case Type::Float: reinterpret_cast<float*>(data)[i] = float(x); return;
    default: reinterpret_cast<double*>(data)[i] = x;
  }
}
double combined(double a, double b, Op op) {
  switch (op) {
    case Op::Prod: return a * b;
    case Op::Max: return std::max(a, b);
    case Op::Min: return std::min(a, b);
    default: return a + b;
  }
}
// The numbers [first, first + n) of all ranks as one.
void reduced(const std::vector<std::string>& all, char* out, size_t n, Type t, Op op) {
  for (size_t i = 0; i < n; ++i) {
    double x = read(all[0].data(), t, i);
    for (size_t r = 1; r < all.size(); ++r) x = combined(x, read(all[r].data(), t, i), op);
    write(out, t, i, op == Op::Avg ? x / double(all.size()) : x);
  }
}

bool overlap(const void* a, size_t n, const void* b, size_t m) {
  auto *x = static_cast<const char*>(a), *y = static_cast<const char*>(b);
  return x < y + m && y < x + n;
}

Result checked(Comm c, const char* what, size_t, Type t, int root = 0) {
  if (!c) return refuse(nullptr, Result::InvalidArgument, std::string(what) + ": no communicator");
  if (c->shared->aborted) return refuse(nullptr, Result::InvalidArgument, std::string(what) + ": after an abort");
  if (t > Type::BFloat) return refuse(c, Result::InvalidArgument, std::string(what) + ": type is none that is known");
  if (root < 0 || root >= c->shared->size)
    return refuse(c, Result::InvalidArgument, std::string(what) + ": there is no rank " + std::to_string(root));
  int state = c->shared->state;
  if (state == int(Result::InProgress))
    return refuse(c, Result::InvalidUsage, std::string(what) + ": the communicator is not ready");
  if (t_depth > 0)
    return refuse(c, Result::InvalidUsage, std::string(what) + ": the stand-in has sends and receives in groups only");
  return Result(state);
}

enum { kAllReduce = 1, kReduce, kReduceScatter, kBroadcast, kAllGather, kSplit };

std::string copied(const void* data, size_t bytes) { return {static_cast<const char*>(data), bytes}; }

}  // namespace

SF_EXPORT Result ncclGetVersion(int* version) { return *version = 22809, Result::Success; }
SF_EXPORT Result ncclGetUniqueId(UniqueId* id) {
  std::random_device random;
  std::string text;
  for (int i = 0; i < 4; ++i) text += std::to_string(random()) + ".";
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, text.data(), text.size());
  return Result::Success;
}
SF_EXPORT Result ncclCommInitRankConfig(Comm* comm, int size, UniqueId id, int rank, Config* config) {
  if (!config || config->magic != 0xcafebeef || config->size < sizeof(Config) || config->blocking != 0)
    return refuse(nullptr, Result::InvalidArgument, "ncclCommInitRankConfig: needs a config, not blocking");
  if (size < 1 || rank < 0 || rank >= size)
    return refuse(nullptr, Result::InvalidArgument, "ncclCommInitRankConfig: rank must be 0 to size - 1");
  *comm = made(size, std::string(id.internal, strnlen(id.internal, sizeof id.internal)), rank);
  return Result::InProgress;
}
SF_EXPORT Result ncclCommSplit(Comm c, int color, int key, Comm* out, Config*) {
  if (Result r = checked(c, "ncclCommSplit", 0, Type::Int8); r != Result::Success) return r;
  Shared& s = *c->shared;
  if (s.done != s.queued) return refuse(c, Result::InvalidUsage, "ncclCommSplit: while a call is pending");
  std::vector<std::string> all;
  int32_t mine[2] = {color, key};
  if (!swap(
          s, {kSplit, 0, 0, 0, 0, c->splits}, [&](int) { return copied(mine, sizeof mine); }, all))
    return Result(s.state.load());
  std::vector<std::pair<int, int>> members;
  for (int p = 0; p < s.size; ++p) {
    int32_t theirs[2];
    std::memcpy(theirs, all[size_t(p)].data(), sizeof theirs);
    if (theirs[0] == color) members.emplace_back(theirs[1], p);
  }
  std::sort(members.begin(), members.end());
  std::string id = s.id + "/" + std::to_string(c->splits++) + "/" + std::to_string(color);
  *out = nullptr;
  if (color == kNoColor) return Result::Success;
  int rank = 0;
  while (members[size_t(rank)].second != s.rank) ++rank;
  *out = made(int(members.size()), id, rank);
  return Result::Success;
}
SF_EXPORT Result ncclCommAbort(Comm c) {
  if (!c || c->shared->aborted.exchange(true)) return Result::InvalidArgument;
  for (int s : c->shared->sockets)
    if (s >= 0) shutdown(s, SHUT_RDWR);
  c->joining.join();
  delete c;
  return Result::Success;
}
SF_EXPORT Result ncclCommGetAsyncError(Comm c, Result* out) {
  if (!c || c->shared->aborted) return Result::InvalidArgument;
  *out = Result(c->shared->state.load());
  return Result::Success;
}
SF_EXPORT const char* ncclGetErrorString(Result r) {
  switch (r) {
    case Result::Success: return "no error";
    case Result::InvalidArgument: return "invalid argument";
    case Result::InvalidUsage: return "invalid usage";
    case Result::RemoteError: return "remote process exited or there was a network error";
    case Result::InProgress: return "in progress";
    default: return "unhandled error";
  }
}
SF_EXPORT const char* ncclGetLastError(Comm c) {
  static thread_local std::string text;
  if (c) {
    std::lock_guard lock(c->shared->mutex);
    text = c->shared->text;
  } else {
    std::lock_guard lock(g_mutex);
    text = g_last;
  }
  return text.c_str();
}

SF_EXPORT Result ncclAllReduce(const void* in, void* out, size_t n, Type t, Op op, Comm c, void* stream) {
  if (Result r = checked(c, "ncclAllReduce", n, t); r != Result::Success) return r;
  size_t bytes = n * bytes_of(t);
  if (in != out && overlap(in, bytes, out, bytes))
    return refuse(c, Result::InvalidArgument, "ncclAllReduce: memory overlaps and is not in place");
  return queued(c, stream, [=, number = c->calls++](Shared& s) {
    std::vector<std::string> all;
    Header h{kAllReduce, int(t), int(op), 0, n, number};
    if (swap(
            s, h, [&](int) { return copied(in, bytes); }, all))
      reduced(all, static_cast<char*>(out), n, t, op);
  });
}
SF_EXPORT Result ncclReduce(const void* in, void* out, size_t n, Type t, Op op, int root, Comm c, void* stream) {
  if (Result r = checked(c, "ncclReduce", n, t, root); r != Result::Success) return r;
  size_t bytes = n * bytes_of(t);
  return queued(c, stream, [=, number = c->calls++](Shared& s) {
    std::vector<std::string> all;
    Header h{kReduce, int(t), int(op), root, n, number};
    if (swap(
            s, h, [&](int p) { return p == root ? copied(in, bytes) : ""; }, all) &&
        s.rank == root)
      reduced(all, static_cast<char*>(out), n, t, op);
  });
}
SF_EXPORT Result ncclReduceScatter(const void* in, void* out, size_t n, Type t, Op op, Comm c, void* stream) {
  if (Result r = checked(c, "ncclReduceScatter", n, t); r != Result::Success) return r;
  size_t bytes = n * bytes_of(t);
  auto* from = static_cast<const char*>(in);
  if (from + size_t(c->shared->rank) * bytes != out && overlap(in, bytes * size_t(c->shared->size), out, bytes))
    return refuse(c, Result::InvalidArgument, "ncclReduceScatter: memory overlaps and is not in place");
  return queued(c, stream, [=, number = c->calls++](Shared& s) {
    std::vector<std::string> all;
    Header h{kReduceScatter, int(t), int(op), 0, n, number};
    if (swap(
            s, h, [&](int p) { return copied(from + size_t(p) * bytes, bytes); }, all))
      reduced(all, static_cast<char*>(out), n, t, op);
  });
}
SF_EXPORT Result ncclBroadcast(const void* in, void* out, size_t n, Type t, int root, Comm c, void* stream) {
  if (Result r = checked(c, "ncclBroadcast", n, t, root); r != Result::Success) return r;
  size_t bytes = n * bytes_of(t);
  return queued(c, stream, [=, number = c->calls++](Shared& s) {
    std::vector<std::string> all;
    Header h{kBroadcast, int(t), 0, root, n, number};
    if (swap(
            s, h, [&](int) { return s.rank == root ? copied(in, bytes) : ""; }, all))
      std::memcpy(out, all[size_t(root)].data(), bytes);
  });
}
SF_EXPORT Result ncclAllGather(const void* in, void* out, size_t n, Type t, Comm c, void* stream) {
  if (Result r = checked(c, "ncclAllGather", n, t); r != Result::Success) return r;
  size_t bytes = n * bytes_of(t);
  auto* to = static_cast<char*>(out);
  if (to + size_t(c->shared->rank) * bytes != in && overlap(in, bytes, out, bytes * size_t(c->shared->size)))
    return refuse(c, Result::InvalidArgument, "ncclAllGather: memory overlaps and is not in place");
  return queued(c, stream, [=, number = c->calls++](Shared& s) {
    std::vector<std::string> all;
    if (swap(
            s, {kAllGather, int(t), 0, 0, n, number}, [&](int) { return copied(in, bytes); }, all))
      for (int p = 0; p < s.size; ++p) std::memcpy(to + size_t(p) * bytes, all[size_t(p)].data(), bytes);
  });
}

SF_EXPORT Result ncclGroupStart() { return ++t_depth, Result::Success; }
static Result piece(Comm c, const char* what, Piece p, Type t, void* stream) {
  if (!c || c->shared->aborted)
    return refuse(nullptr, Result::InvalidArgument, std::string(what) + ": no communicator");
  if (t_depth == 0) return refuse(c, Result::InvalidUsage, std::string(what) + ": the stand-in has it in a group only");
  if (p.peer < 0 || p.peer >= c->shared->size)
    return refuse(c, Result::InvalidArgument, std::string(what) + ": there is no rank " + std::to_string(p.peer));
  if (auto [at, first] = t_streams.try_emplace(c, stream); !first && at->second != stream)
    return refuse(c, Result::InvalidUsage, "a group has calls on two streams");
  p.bytes *= bytes_of(t);
  t_pieces[c].push_back(p);
  return Result::Success;
}
SF_EXPORT Result ncclSend(const void* data, size_t n, Type t, int peer, Comm c, void* stream) {
  return piece(c, "ncclSend", {true, peer, data, nullptr, n}, t, stream);
}
SF_EXPORT Result ncclRecv(void* data, size_t n, Type t, int peer, Comm c, void* stream) {
  return piece(c, "ncclRecv", {false, peer, nullptr, data, n}, t, stream);
}
SF_EXPORT Result ncclGroupEnd() {
  if (t_depth == 0) return refuse(nullptr, Result::InvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--t_depth > 0) return Result::Success;
  std::map<Comm, std::vector<Piece>> all;
  std::map<Comm, void*> streams;
  all.swap(t_pieces), streams.swap(t_streams);
  Result first = Result::Success;
  for (auto& [c, pieces] : all) {
    Result r = checked(c, "ncclGroupEnd", 0, Type::Int8);
    if (r == Result::Success)
      r = queued(c, streams[c], [mine = pieces](Shared& s) {
        std::map<int, std::string> leaving;
        for (auto& p : mine)
          if (p.sends) {
            uint64_t n = p.bytes;
            leaving[p.peer] += copied(&n, sizeof n) + copied(p.from, p.bytes);
          }
        std::vector<std::thread> senders;
        for (auto& [peer, data] : leaving)
          senders.emplace_back(
              [&s, fd = s.sockets[size_t(peer)], &data = data] { all_sent(s, fd, data.data(), data.size()); });
        for (auto& p : mine) {
          if (p.sends) continue;
          uint64_t n = 0;
          int fd = s.sockets[size_t(p.peer)];
          if (!all_received(s, fd, &n, sizeof n))
            s.fail(Result::RemoteError, "rank " + std::to_string(p.peer) + " is gone");
          else if (n != p.bytes)
            s.fail(Result::InvalidUsage, "rank " + std::to_string(p.peer) + " sends " + std::to_string(n) +
                                             " bytes, here " + std::to_string(p.bytes) + " are received");
          else if (all_received(s, fd, p.to, p.bytes)) continue;
          for (int each : s.sockets)
            if (each >= 0) shutdown(each, SHUT_RDWR);
          break;
        }
        for (auto& t : senders) t.join();
      });
    if (first == Result::Success) first = r;
  }
  return first;
}
