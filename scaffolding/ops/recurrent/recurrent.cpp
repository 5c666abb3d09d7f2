#include "scaffolding/ops/recurrent/recurrent.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/cat/cat.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/recurrent/kernel.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
using autograd::save;

constinit KernelTable<RecurrentForward> recurrent_forward{"recurrent"};
constinit KernelTable<RecurrentBackward> recurrent_backward{"recurrent_backward"};

namespace {

// In the order of the tape. C0 and Projection are the LSTM's, Bias is the GRU's.
enum { Input, Weight, H0, C0, Bias, Projection, Arguments };

struct Sequence {
  const char* op;
  RecurrentCell cell;
  bool reverse;
  std::vector<int64_t> starts;  // RecurrentSteps

  int64_t count() const { return int64_t(starts.size()) - 1; }
  int64_t rows(int64_t t) const { return starts[size_t(t) + 1] - starts[size_t(t)]; }
  RecurrentSteps steps() const { return {cell, starts.data(), count(), reverse}; }
};

int64_t gates_of(RecurrentCell cell) { return cell == RecurrentCell::Lstm ? 4 : cell == RecurrentCell::Gru ? 3 : 1; }

void check_arguments(const Sequence& q, const Tensors& in) {
  static constexpr const char* names[] = {"input", "weight_hh", "h0", "c0", "bias_hh", "weight_hr"};
  const bool lstm = q.cell == RecurrentCell::Lstm;
  for (int i : {Input, Weight, H0, C0, Bias, Projection}) {
    if (i <= H0 || (i == C0 && lstm)) check_defined(q.op, names[i], in[size_t(i)]);
    if (!in[size_t(i)]) continue;
    check_floating(q.op, names[i], in[size_t(i)]);
    check_same_device(q.op, in[Input], in[size_t(i)]);
    SF_CHECK_AS(TypeError, in[size_t(i)].dtype() == in[Input].dtype(), q.op, ": ", names[i],
                " must have input's dtype ", in[Input].dtype(), ", got ", in[size_t(i)].dtype());
  }
  const int64_t gates = gates_of(q.cell);
  SF_CHECK(in[Weight].ndim() == 2 && in[Weight].size(0) % gates == 0 && in[Weight].numel() > 0, q.op,
           ": weight_hh must be [", gates, " * hidden_size, hidden_size], got ", in[Weight].shape());
  const int64_t size = in[Weight].size(0) / gates, out = in[Projection] ? in[Weight].size(1) : size;
  check_shape(q.op, "weight_hh", in[Weight], {gates * size, out});
  SF_CHECK(in[Input].ndim() == 2 && in[Input].size(1) == gates * size, q.op, ": input must be [N, ", gates * size,
           "], got ", in[Input].shape());
  SF_CHECK(in[H0].ndim() == 2 && in[H0].size(1) == out, q.op, ": h0 must be [B, ", out, "], got ", in[H0].shape());
  if (lstm) check_shape(q.op, "c0", in[C0], {in[H0].size(0), size});
  check_shape(q.op, "bias_hh", in[Bias], {gates * size});
  check_shape(q.op, "weight_hr", in[Projection], {out, size});
}

std::vector<int64_t> starts_of(const char* op, int64_t rows, int64_t batch, const Tensor& batch_sizes) {
  std::vector<int64_t> starts{0};
  if (!batch_sizes || batch_sizes.device().is_meta()) {
    SF_CHECK(batch_sizes || (batch == 0 ? rows == 0 : rows % batch == 0 && rows > 0), op, ": input's ", rows,
             " rows must be one step or more of h0's ", batch);
    while (batch > 0 && starts.back() + batch <= rows) starts.push_back(starts.back() + batch);
    return starts;
  }
  SF_CHECK(batch_sizes.ndim() == 1 && batch_sizes.dtype() == kInt64, op,
           ": batch_sizes must be int64 of one dimension, got ", batch_sizes.dtype(), " of shape ",
           batch_sizes.shape());
  if (batch_sizes.device().is_cuda()) cuda::refuse_while_capturing(op, "reading batch_sizes (on the CPU it may be)");
  Tensor sizes = contiguous(batch_sizes.detach().cpu());
  int64_t last = batch;
  for (int64_t t = 0; t < sizes.numel(); ++t) {
    const int64_t n = sizes.data<int64_t>()[t];
    SF_CHECK(n > 0 && n <= last && (t > 0 || n == batch), op,
             ": batch_sizes must begin with h0's rows, stay positive and never grow, got ", n, " after ", last);
    starts.push_back(starts.back() + n);
    last = n;
  }
  SF_CHECK(starts.back() == rows, op, ": batch_sizes must sum to input's rows, ", rows, ", got ", starts.back());
  return starts;
}

// {h, c} after one step of rows that have x and come from h and c.
Tensors step(RecurrentCell cell, const Tensors& in, const Tensor& x, const Tensor& h, const Tensor& c) {
  if (cell == RecurrentCell::Lstm) {
    Tensors g = (x + linear(h, in[Weight])).chunk(4, -1);
    Tensor next = sigmoid(g[1]) * c + sigmoid(g[0]) * tanh(g[2]), y = sigmoid(g[3]) * tanh(next);
    return {in[Projection] ? linear(y, in[Projection]) : y, next};
  }
  Tensor s = linear(h, in[Weight], in[Bias]);
  if (cell == RecurrentCell::Gru) {
    Tensors a = x.chunk(3, -1), b = s.chunk(3, -1);
    Tensor reset = sigmoid(a[0] + b[0]), update = sigmoid(a[1] + b[1]), value = tanh(a[2] + reset * b[2]);
    return {value + update * (h - value), {}};
  }
  return {cell == RecurrentCell::Tanh ? tanh(x + s) : relu(x + s), {}};
}

// {output, h_n, c_n} by ops.
Tensors composed(const Sequence& q, const Tensors& in) {
  Tensor h = in[H0], c = in[C0];
  const int64_t batch = h.size(0), count = q.count();
  if (count == 0) return {zeros(h.shape(), h.dtype(), h.device()), h.clone(), c ? c.clone() : c};
  Tensors outputs(static_cast<size_t>(count));
  auto put = [batch](const Tensor& all, const Tensor& first) {
    const int64_t n = first.size(0);
    return n == batch ? first : cat({first, all.narrow(0, n, batch - n)}, 0);
  };
  for (int64_t i = 0; i < count; ++i) {
    const int64_t t = q.reverse ? count - 1 - i : i, n = q.rows(t);
    Tensors next =
        step(q.cell, in, in[Input].narrow(0, q.starts[size_t(t)], n), h.narrow(0, 0, n), c ? c.narrow(0, 0, n) : c);
    outputs[size_t(t)] = next[0];
    h = put(h, next[0]);
    if (c) c = put(c, next[1]);
  }
  Tensor output = cat(outputs, 0);
  // Results share no bytes.
  return {output, h.is_same(outputs[0]) || h.is_same(outputs.back()) ? h.clone() : h, c};
}

Tensor dense(const Tensor& x) { return x ? contiguous(x.detach()) : x; }
Tensor empty_as(const Tensor& x) { return x ? empty(x.shape(), x.dtype(), x.device()) : x; }

// What forward keeps for backward; all but weight dense and off the tape.
struct Kept {
  autograd::Saved weight, h0, c0, output, cells, gates;
};

Tensors backward(const Sequence& q, const Kept& kept, bool of_weight, bool of_bias, const Tensors& dys) {
  Tensor weight = dense(kept.weight.get()), h0 = kept.h0.get(), c0 = kept.c0 ? kept.c0.get() : Tensor(),
         output = kept.output.get(), cells = kept.cells ? kept.cells.get() : Tensor(),
         gates = kept.gates ? kept.gates.get() : Tensor();
  Tensor dy = dense(dys[0]), dh = dense(dys[1]), dc = dys.size() > 2 ? dense(dys[2]) : Tensor();
  const Shape wide{output.size(0), weight.size(0)};
  Tensor dinput = empty(wide, weight.dtype(), weight.device()),
         dhidden = q.cell == RecurrentCell::Gru ? empty_as(dinput) : Tensor(), before = empty_as(output),
         dh0 = empty_as(h0), dc0 = empty_as(c0);
  RecurrentBackward b{q.steps(), weight, h0, c0, output, cells, gates, dy, dh, dc, dinput, dhidden, before, dh0, dc0};
  auto kernel = recurrent_backward.find(weight.device(), b);
  SF_CHECK_AS(NotSupported, kernel, q.op, ": no backward kernel on ", weight.device());
  kernel(b);
  Tensors dweight(3);
  if (of_weight || of_bias) dweight = linear_gradients(dhidden ? dhidden : dinput, before, {}, of_bias);
  return {dinput, of_weight ? dweight[1] : Tensor(), dh0, dc0, dweight[2], {}};
}

// {output, h_n} and the LSTM's c_n.
Tensors run(const Sequence& q, const Tensors& in) {
  const Tensor &x = in[Input], &w = in[Weight];
  const bool taped = autograd::any_requires_grad(in), lstm = q.cell == RecurrentCell::Lstm;
  if (in[Projection] || q.count() == 0) return composed(q, in);
  const bool gated = lstm || q.cell == RecurrentCell::Gru;
  Tensor input = dense(x), weight = dense(w), h0 = dense(in[H0]), c0 = dense(in[C0]), bias = dense(in[Bias]);
  Tensor h_n = empty_as(h0), c_n = empty_as(c0);
  Tensor output = empty({x.size(0), h0.size(1)}, x.dtype(), x.device()), cells = gated ? empty_as(output) : Tensor(),
         gates = gated && taped ? empty_as(input) : Tensor();
  RecurrentForward f{q.steps(), input, weight, bias, h0, c0, output, cells, gates, h_n, c_n, 0};
  if (x.device().is_cpu() && w.is_contiguous() && !(w.requires_grad() && autograd::grad_enabled())) {
    f.weight_version = uint64_t(w.version()) + 1;
    w.storage()->packed = true;  // the storage tells the packed copies when it goes
  }
  auto kernel = recurrent_forward.find(x.device(), f);
  if (!kernel) return composed(q, in);
  kernel(f);
  Tensors ys{output, h_n};
  if (lstm) ys.push_back(c_n);
  if (!taped) return ys;
  Kept kept{save(w), save(h0), save(c0), save(output.detach()), save(cells), save(gates)};
  autograd::record_outputs(
      q.op, ys, in,
      [q, kept, of_weight = w.requires_grad(), of_bias = in[Bias].requires_grad()](const Tensors& dys) {
        return backward(q, kept, of_weight, of_bias, dys);
      },
      [q](const Tensors& inputs) {
        Tensors all = composed(q, inputs);
        if (!all[2]) all.pop_back();
        return all;
      });
  return ys;
}

// 16-bit floats run in float32 on the CPU, where there is a kernel for it.
Tensors sequence(const char* op, RecurrentCell cell, Tensors in, const Tensor& batch_sizes, bool reverse) {
  if (autocast::active() && in[Input])
    for (Tensor& t : in)
      if (t && is_floating(t.dtype())) t = t.to(in[Input].dtype());
  Sequence q{op, cell, reverse, {}};
  check_arguments(q, in);
  q.starts = starts_of(op, in[Input].size(0), in[H0].size(0), batch_sizes);
  const DType dtype = in[Input].dtype();
  if (!is_reduced(dtype) || !in[Input].device().is_cpu()) return run(q, in);
  for (Tensor& t : in)
    if (t) t = t.to(kFloat32);
  Tensors ys = run(q, in);
  for (Tensor& y : ys)
    if (y) y = y.to(dtype);
  return ys;
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> lstm_sequence(const Tensor& input, const Tensor& weight_hh, const Tensor& h0,
                                                 const Tensor& c0, const Tensor& weight_hr, const Tensor& batch_sizes,
                                                 bool reverse) {
  Tensors ys =
      sequence("lstm_sequence", RecurrentCell::Lstm, {input, weight_hh, h0, c0, {}, weight_hr}, batch_sizes, reverse);
  return {ys[0], ys[1], ys[2]};
}
std::tuple<Tensor, Tensor> gru_sequence(const Tensor& input, const Tensor& weight_hh, const Tensor& bias_hh,
                                        const Tensor& h0, const Tensor& batch_sizes, bool reverse) {
  Tensors ys =
      sequence("gru_sequence", RecurrentCell::Gru, {input, weight_hh, h0, {}, bias_hh, {}}, batch_sizes, reverse);
  return {ys[0], ys[1]};
}
std::tuple<Tensor, Tensor> rnn_sequence(const Tensor& input, const Tensor& weight_hh, const Tensor& h0,
                                        const std::string& nonlinearity, const Tensor& batch_sizes, bool reverse) {
  SF_CHECK(nonlinearity == "tanh" || nonlinearity == "relu", "rnn_sequence: nonlinearity must be tanh or relu, got '",
           nonlinearity, "'");
  const RecurrentCell cell = nonlinearity == "tanh" ? RecurrentCell::Tanh : RecurrentCell::Relu;
  Tensors ys = sequence("rnn_sequence", cell, {input, weight_hh, h0, {}, {}, {}}, batch_sizes, reverse);
  return {ys[0], ys[1]};
}

// torch multiplies the input by weights: the identity. Its sequences run backwards only beside others that do not.
#define SF_LIKE(torch_op, h0, weights, states)                                                                   \
  "(lambda sizes, d, eye: (lambda ys: (ys[0][:, -weight_hh.shape[1]:], *[s[-1] for s in ys[1:]]))"               \
  "(torch." torch_op "(input, sizes, " h0 ", [eye, weight_hh" weights "] * d, " states                           \
  ", 1, 0.0, False, d == 2)))(torch.tensor([len(h0)] * (len(input) // max(len(h0), 1))) if batch_sizes is None " \
  "else batch_sizes, 2 if reverse else 1, torch.eye(input.shape[-1], dtype=input.dtype))"
SF_OP(lstm_sequence, "input, weight_hh, h0, c0, weight_hr=None, batch_sizes=None, reverse=False")
    .doc(
        "An LSTM's steps over sequences: input[N, 4 H] holds the input's part of the gates i, f, g, o, row by row for "
        "each step, weight_hh[4 H, P], h0[B, P], c0[B, H], weight_hr[P, H]; batch_sizes[T] are the rows of each step "
        "-> output[N, P], h_n, c_n.")
    .like(SF_LIKE("lstm", "[torch.stack([h0] * d), torch.stack([c0] * d)]",
                  ", *([] if weight_hr is None else [weight_hr])", "False"))
    .kernels(recurrent_forward, recurrent_backward);
SF_OP(gru_sequence, "input, weight_hh, bias_hh, h0, batch_sizes=None, reverse=False")
    .doc(
        "A GRU's steps over sequences: input[N, 3 H] holds the input's part of r, z, n, row by row for each step, "
        "weight_hh[3 H, H], bias_hh[3 H] or None, h0[B, H]; batch_sizes[T] are the rows of each step -> output[N, H], "
        "h_n.")
    .like(SF_LIKE("gru", "torch.stack([h0] * d)",
                  ", torch.zeros(input.shape[-1], dtype=input.dtype), torch.zeros(input.shape[-1], dtype=input.dtype) "
                  "if bias_hh is None else bias_hh",
                  "True"))
    .kernels(recurrent_forward, recurrent_backward);
SF_OP(rnn_sequence, "input, weight_hh, h0, nonlinearity='tanh', batch_sizes=None, reverse=False")
    .doc(
        "h = tanh or relu of input[N, H] + h weight_hh[H, H]^T over sequences, h0[B, H]; batch_sizes[T] are the rows "
        "of each step -> output[N, H], h_n.")
    .like(
        "(lambda op, sizes, d, eye: (lambda ys: (ys[0][:, -weight_hh.shape[1]:], ys[1][-1]))(op(input, sizes, "
        "torch.stack([h0] * d), [eye, weight_hh] * d, False, 1, 0.0, False, d == 2)))(getattr(torch, 'rnn_' + "
        "nonlinearity), torch.tensor([len(h0)] * (len(input) // max(len(h0), 1))) if batch_sizes is None else "
        "batch_sizes, 2 if reverse else 1, torch.eye(input.shape[-1], dtype=input.dtype))")
    .kernels(recurrent_forward, recurrent_backward);
#undef SF_LIKE

}  // namespace sf
