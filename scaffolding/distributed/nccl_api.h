// What is used of NCCL's header, which need not be there: NCCL is opened at run time. As 2.18 and later declare it; a
// test compares it with the header where that is. Not public.
#pragma once
#include <climits>
#include <cstddef>

namespace sf::distributed::nccl {

using Comm = struct OpaqueComm*;
struct UniqueId {
  char internal[128];
};
enum class Result : int { Success = 0, InvalidArgument = 4, InvalidUsage = 5, RemoteError = 6, InProgress = 7 };
enum class Op : int { Sum = 0, Prod = 1, Max = 2, Min = 3, Avg = 4 };
enum class Type : int { Int8 = 0, UInt8 = 1, Int32 = 2, Int64 = 4, Half = 6, Float = 7, Double = 8, BFloat = 9 };
constexpr int kNoColor = -1;

// ncclConfig_t as NCCL 2.18 had it: later ones read `size` and take what is beyond it as not set.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef, version = 21800;
  int blocking = INT_MIN, cga_cluster_size = INT_MIN, min_ctas = INT_MIN, max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

struct Functions {
  Result (*get_version)(int*);
  Result (*get_unique_id)(UniqueId*);
  Result (*comm_init_rank_config)(Comm*, int size, UniqueId, int rank, Config*);
  Result (*comm_split)(Comm, int color, int key, Comm*, Config*);
  Result (*comm_abort)(Comm);
  Result (*comm_get_async_error)(Comm, Result*);
  const char* (*get_error_string)(Result);
  const char* (*get_last_error)(Comm);
  Result (*all_reduce)(const void*, void*, size_t, Type, Op, Comm, void* stream);
  Result (*reduce)(const void*, void*, size_t, Type, Op, int root, Comm, void* stream);
  Result (*reduce_scatter)(const void*, void*, size_t count, Type, Op, Comm, void* stream);
  Result (*broadcast)(const void*, void*, size_t, Type, int root, Comm, void* stream);
  Result (*all_gather)(const void*, void*, size_t count, Type, Comm, void* stream);
  Result (*send)(const void*, size_t, Type, int peer, Comm, void* stream);
  Result (*recv)(void*, size_t, Type, int peer, Comm, void* stream);
  Result (*group_start)();
  Result (*group_end)();
};

}  // namespace sf::distributed::nccl
