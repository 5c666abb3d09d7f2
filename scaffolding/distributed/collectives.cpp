// The calls of ProcessGroup that move tensors.
#include "scaffolding/autograd/mode.h"
#include "scaffolding/distributed/process_group_state.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"

namespace sf::distributed {

namespace {

// values: what dense() made of t.
void put_back(const Tensor& t, const Tensor& values) {
  if (t.data_ptr() == values.data_ptr() && t.device().is_cpu()) return;
  autograd::NoGrad no_grad;
  t.detach().copy_(values);
}

char* bytes_of(const Tensor& t) { return static_cast<char*>(t.data_ptr()); }

void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

void check_alike(const char* op, const Tensor& p, const Tensor& t) {
  check_defined(op, "tensor", p);
  SF_CHECK(p.numel() == t.numel() && p.dtype() == t.dtype(), op,
           ": every tensor must be like the one of this process, ", t.shape(), " ", t.dtype(), ", got ", p.shape(), " ",
           p.dtype());
}

// Rows of dim 0 that go to or come from each process.
std::vector<int64_t> splits_of(const char* what, const Tensor& t, std::vector<int64_t> splits, int size) {
  int64_t rows = t.dim() > 0 ? t.size(0) : 0;
  if (splits.empty()) {
    SF_CHECK(t.dim() > 0 && rows % size == 0, "all_to_all_single: dim 0 of ", what, ", ", rows,
             ", must be divided by the ", size, " processes, or splits be given");
    return std::vector<int64_t>(size_t(size), rows / size);
  }
  int64_t sum = 0;
  for (int64_t n : splits) {
    SF_CHECK(n >= 0 && n <= rows, "all_to_all_single: splits of ", what, " must be 0 to ", rows, ", got ", n);
    sum += n;
  }
  SF_CHECK(int(splits.size()) == size && sum == rows, "all_to_all_single: splits of ", what, " must be ", size,
           " numbers with the sum ", rows, ", got ", splits.size(), " with the sum ", sum);
  return splits;
}

}  // namespace

WorkPtr ProcessGroup::all_reduce(const Tensor& t, ReduceOp op, bool async_op) {
  check_defined("all_reduce", "tensor", t);
  check_reduction("all_reduce", op, t.dtype());
  if (auto* gpus = device("all_reduce", t)) return gpus->all_reduce(t, op, async_op);
  return all_reduce_here({"all_reduce", t, op}, {t}, op, async_op);
}

WorkPtr ProcessGroup::all_reduce_coalesced(const std::vector<Tensor>& list, ReduceOp op, bool async_op) {
  const char* name = "all_reduce_coalesced";
  SF_CHECK(!list.empty(), name, ": needs at least one tensor");
  for (const Tensor& t : list) {
    check_defined(name, "tensor", t);
    SF_CHECK(t.dtype() == list[0].dtype() && t.device() == list[0].device(), name,
             ": all tensors must have one dtype and device, got ", list[0].dtype(), " on ", list[0].device(), " and ",
             t.dtype(), " on ", t.device());
  }
  check_reduction(name, op, list[0].dtype());
  WorkPtr work;
  for (size_t i = 0; i < list.size(); ++i)  // one after the other on the group's stream
    if (auto* gpus = device(name, list[i])) work = gpus->all_reduce(list[i], op, async_op && i + 1 == list.size());
  return work ? work : all_reduce_here({name, list, op}, list, op, async_op);
}

WorkPtr ProcessGroup::all_reduce_here(const Call& call, const std::vector<Tensor>& list, ReduceOp op, bool async_op) {
  std::vector<Tensor> values;
  for (const Tensor& t : list) values.push_back(dense(call.name, t));
  auto body = [this, list, values, op](uint32_t tag, Deadline deadline) {
    if (!state_->engine || backend() == "fake") return;
    std::vector<Piece> pieces;
    for (const Tensor& v : values) pieces.push_back({bytes_of(v), size_t(v.numel())});
    tree_all_reduce({*state_->engine, state_->memory, rank(), size(), list[0].dtype(), op, tag, deadline}, pieces);
    for (size_t i = 0; i < list.size(); ++i) put_back(list[i], values[i]);
  };
  return run(call, body, async_op);
}

WorkPtr ProcessGroup::reduce(const Tensor& t, int root, ReduceOp op, bool async_op) {
  check_rank("reduce", "dst", root);
  check_defined("reduce", "tensor", t);
  check_reduction("reduce", op, t.dtype());
  if (auto* gpus = device("reduce", t)) return gpus->reduce(t, root, op, async_op);
  Tensor values = dense("reduce", t);
  auto body = [this, t, values, op, root](uint32_t tag, Deadline deadline) {
    if (!state_->engine || backend() == "fake") return;
    tree_reduce({*state_->engine, state_->memory, rank(), size(), t.dtype(), op, tag, deadline}, values.data_ptr(),
                size_t(values.numel()), root);
    if (rank() == root) put_back(t, values);
  };
  return run({"reduce", t, op, root}, body, async_op);
}

WorkPtr ProcessGroup::broadcast(const Tensor& t, int root, bool async_op) {
  check_rank("broadcast", "src", root);
  if (auto* gpus = device("broadcast", t)) return gpus->broadcast(t, root, async_op);
  Tensor values = dense("broadcast", t);
  auto body = [this, t, values, root](uint32_t, Deadline deadline) {
    if (!state_->engine || values.nbytes() == 0) return;
    state_->engine->broadcast(values.data_ptr(), values.nbytes(), root, deadline);
    if (rank() != root) put_back(t, values);
  };
  return run({"broadcast", t, root}, body, async_op);
}

WorkPtr ProcessGroup::all_gather(const std::vector<Tensor>& into, const Tensor& t, bool async_op) {
  SF_CHECK(int(into.size()) == size(), "all_gather: needs a tensor for each of ", size(), " processes, got ",
           into.size());
  for (auto& p : into) check_alike("all_gather", p, t);
  if (auto* gpus = device("all_gather", t)) return gpus->all_gather(into, t, async_op);
  Tensor own = dense("all_gather", t);
  std::vector<Tensor> parts;
  for (auto& p : into) parts.push_back(dense("all_gather", p));
  auto body = [this, into, own, parts](uint32_t, Deadline deadline) {
    size_t bytes = own.nbytes();
    Tensor all = state_->engine ? empty({int64_t(bytes) * size()}, kUInt8) : own;
    if (state_->engine && bytes > 0) state_->engine->all_gather(own.data_ptr(), all.data_ptr(), bytes, deadline);
    for (size_t i = 0; i < into.size(); ++i) {
      copy_bytes(parts[i].data_ptr(), bytes_of(all) + i * bytes, bytes);
      put_back(into[i], parts[i]);
    }
  };
  return run({"all_gather", t}, body, async_op);
}

WorkPtr ProcessGroup::all_gather_into_tensor(const Tensor& into, const Tensor& t, bool async_op) {
  check_defined("all_gather_into_tensor", "tensor", into);
  SF_CHECK(into.numel() == t.numel() * size() && into.dtype() == t.dtype(),
           "all_gather_into_tensor: the output must have ", size(), " times the ", t.numel(), " ", t.dtype(),
           " of the input, got ", into.shape(), " ", into.dtype());
  if (auto* gpus = device("all_gather_into_tensor", t)) return gpus->all_gather_into_tensor(into, t, async_op);
  Tensor own = dense("all_gather_into_tensor", t), all = dense("all_gather_into_tensor", into);
  auto body = [this, into, own, all](uint32_t, Deadline deadline) {
    if (own.nbytes() == 0) return;
    if (state_->engine) state_->engine->all_gather(own.data_ptr(), all.data_ptr(), own.nbytes(), deadline);
    else copy_bytes(all.data_ptr(), own.data_ptr(), own.nbytes());
    put_back(into, all);
  };
  return run({"all_gather_into_tensor", t}, body, async_op);
}

WorkPtr ProcessGroup::reduce_scatter_tensor(const Tensor& into, const Tensor& t, ReduceOp op, bool async_op) {
  check_defined("reduce_scatter_tensor", "tensor", t);
  check_reduction("reduce_scatter_tensor", op, t.dtype());
  check_defined("reduce_scatter_tensor", "output", into);
  SF_CHECK(t.numel() == into.numel() * size() && into.dtype() == t.dtype(),
           "reduce_scatter_tensor: the input must have ", size(), " times the ", into.numel(), " ", into.dtype(),
           " of the output, got ", t.shape(), " ", t.dtype());
  if (auto* gpus = device("reduce_scatter_tensor", t)) return gpus->reduce_scatter_tensor(into, t, op, async_op);
  Tensor all = dense("reduce_scatter_tensor", t), own = dense("reduce_scatter_tensor", into);
  auto body = [this, into, own, all, op](uint32_t tag, Deadline deadline) {
    if (!state_->engine || backend() == "fake")
      copy_bytes(own.data_ptr(), bytes_of(all) + size_t(rank()) * own.nbytes(), own.nbytes());
    else
      tree_reduce_scatter({*state_->engine, state_->memory, rank(), size(), own.dtype(), op, tag, deadline},
                          all.data_ptr(), own.data_ptr(), size_t(own.numel()));
    put_back(into, own);
  };
  return run({"reduce_scatter_tensor", t, op}, body, async_op);
}

WorkPtr ProcessGroup::all_to_all_single(const Tensor& into, const Tensor& t, const std::vector<int64_t>& output_splits,
                                        const std::vector<int64_t>& input_splits, bool async_op) {
  check_defined("all_to_all_single", "input", t);
  check_defined("all_to_all_single", "output", into);
  SF_CHECK(into.dtype() == t.dtype(), "all_to_all_single: output and input must have one dtype, got ", into.dtype(),
           " and ", t.dtype());
  std::vector<int64_t> gives = splits_of("the input", t, input_splits, size()),
                       takes = splits_of("the output", into, output_splits, size());
  auto row_bytes = [](const Tensor& x) { return x.size(0) > 0 ? x.nbytes() / size_t(x.size(0)) : 0; };
  size_t row = std::max(row_bytes(t), row_bytes(into));
  SF_CHECK(t.size(0) == 0 || into.size(0) == 0 || row_bytes(t) == row_bytes(into),
           "all_to_all_single: rows of output and input must be alike, got ", into.shape(), " and ", t.shape());
  if (auto* gpus = device("all_to_all_single", t)) {
    auto bytes = [&](const std::vector<int64_t>& rows) {
      std::vector<size_t> out;
      for (int64_t n : rows) out.push_back(size_t(n) * row);
      return out;
    };
    return gpus->all_to_all(into, t, bytes(gives), bytes(takes), async_op);
  }
  Tensor in = dense("all_to_all_single", t), out = dense("all_to_all_single", into);
  Call call("all_to_all_single");
  call.dtype = int64_t(t.dtype());
  auto body = [this, into, in, out, gives, takes, row](uint32_t tag, Deadline deadline) {
    std::vector<std::unique_ptr<Transfer>> moving;
    size_t give_at = 0, take_at = 0;
    for (int p = 0; p < size(); ++p) {
      size_t give = size_t(gives[size_t(p)]) * row, take = size_t(takes[size_t(p)]) * row;
      if (p == rank()) {
        SF_CHECK(give == take, "the rows that a process sends to itself must be those it takes, got ", give / row,
                 " and ", take / row);
        copy_bytes(bytes_of(out) + take_at, bytes_of(in) + give_at, give);
      } else {
        if (take > 0) moving.push_back(state_->engine->receive(bytes_of(out) + take_at, take, p, tag));
        if (give > 0) moving.push_back(state_->engine->send(bytes_of(in) + give_at, give, p, tag));
      }
      give_at += give, take_at += take;
    }
    for (auto& transfer : moving) transfer->wait(deadline);
    put_back(into, out);
  };
  return run(call, body, async_op);
}

WorkPtr ProcessGroup::gather(const Tensor& t, const std::vector<Tensor>& into, int root, bool async_op) {
  check_rank("gather", "dst", root);
  check_defined("gather", "tensor", t);
  bool takes = rank() == root;
  SF_CHECK(int(into.size()) == (takes ? size() : 0), "gather: gather_list must have ", takes ? size() : 0,
           " tensors in rank ", rank(), " where dst is ", root, ", got ", into.size());
  for (auto& p : into) check_alike("gather", p, t);
  if (auto* gpus = device("gather", t)) return gpus->gather(t, into, root, async_op);
  Tensor own = dense("gather", t);
  std::vector<Tensor> parts;
  for (auto& p : into) parts.push_back(dense("gather", p));
  auto body = [this, into, own, parts, root](uint32_t, Deadline deadline) {
    size_t bytes = own.nbytes();
    if (bytes == 0) return;
    Tensor all = state_->engine && !into.empty() ? empty({int64_t(bytes) * size()}, kUInt8) : own;
    if (state_->engine) state_->engine->gather(own.data_ptr(), all.data_ptr(), bytes, root, deadline);
    for (size_t i = 0; i < into.size(); ++i) {
      copy_bytes(parts[i].data_ptr(), bytes_of(all) + i * bytes, bytes);
      put_back(into[i], parts[i]);
    }
  };
  return run({"gather", t, root}, body, async_op);
}

WorkPtr ProcessGroup::scatter(const Tensor& into, const std::vector<Tensor>& parts, int root, bool async_op) {
  check_rank("scatter", "src", root);
  check_defined("scatter", "tensor", into);
  bool gives = rank() == root;
  SF_CHECK(int(parts.size()) == (gives ? size() : 0), "scatter: scatter_list must have ", gives ? size() : 0,
           " tensors in rank ", rank(), " where src is ", root, ", got ", parts.size());
  for (auto& p : parts) check_alike("scatter", p, into);
  if (auto* gpus = device("scatter", into)) return gpus->scatter(into, parts, root, async_op);
  Tensor own = dense("scatter", into);
  std::vector<Tensor> values;
  for (auto& p : parts) values.push_back(dense("scatter", p));
  auto body = [this, into, own, values, root](uint32_t, Deadline deadline) {
    size_t bytes = own.nbytes();
    if (bytes == 0) return;
    Tensor all = values.empty() ? own : empty({int64_t(bytes) * size()}, kUInt8);
    for (size_t i = 0; i < values.size(); ++i) copy_bytes(bytes_of(all) + i * bytes, values[i].data_ptr(), bytes);
    if (state_->engine) state_->engine->scatter(all.data_ptr(), own.data_ptr(), bytes, root, deadline);
    else copy_bytes(own.data_ptr(), all.data_ptr(), bytes);
    put_back(into, own);
  };
  return run({"scatter", into, root}, body, async_op);
}

WorkPtr ProcessGroup::point_to_point(const char* op, const Tensor& t, int peer, int tag, bool sends) {
  check_rank(op, sends ? "dst" : "src", peer);
  SF_CHECK(peer != rank(), op, ": rank ", peer, " is this process itself");
  SF_CHECK(tag >= 0 && tag < 1 << 26, op, ": tag must be 0 to ", (1 << 26) - 1, ", got ", tag);
  if (auto* gpus = device(op, t)) return gpus->point_to_point(t, peer, sends);
  Tensor values = dense(op, t);
  ++state_->calls;
  state_->bytes += int64_t(values.nbytes());
  if (values.nbytes() == 0) return std::make_shared<Work>([] {});
  auto deadline = in_seconds(timeout());
  std::shared_ptr<Transfer> moving =
      sends ? state_->engine->send(values.data_ptr(), values.nbytes(), peer, uint32_t(tag))
            : state_->engine->receive(values.data_ptr(), values.nbytes(), peer, uint32_t(tag));
  return std::make_shared<Work>([op = std::string(op), moving, t, values, sends, deadline] {
    try {
      moving->wait(deadline);
    } catch (const std::exception& e) {
      fail<RuntimeError>(op, ": ", e.what());
    }
    if (!sends) put_back(t, values);
  });
}

WorkPtr ProcessGroup::isend(const Tensor& t, int to, int tag) { return point_to_point("isend", t, to, tag, true); }
WorkPtr ProcessGroup::irecv(const Tensor& t, int from, int tag) { return point_to_point("irecv", t, from, tag, false); }

}  // namespace sf::distributed
