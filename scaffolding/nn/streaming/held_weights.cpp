#include "scaffolding/nn/streaming/held_weights.h"

#include <algorithm>
#include <cstring>

#include "scaffolding/autograd/set_data.h"
#include "scaffolding/backend/cpu/packed_weights.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/io/file.h"
#include "scaffolding/io/read_ahead.h"
#include "scaffolding/io/upload_ring.h"
#include "scaffolding/ops/cat/cat.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/view/view.h"

namespace sf::nn {

namespace {
constexpr size_t kAlign = 256;

// Its elements fill a block of host memory.
Tensor at_home(const Tensor& t) {
  const Tensor there = t.detach();
  return packed(there.device().is_cpu() ? there : to_device(there, Device()));
}

bool shows(const Tensor& t, const Tensor& home) {
  return t.data_ptr() == home.data_ptr() && t.dtype() == home.dtype() && t.device() == home.device() &&
         t.shape() == home.shape() && t.strides() == home.strides();
}
}  // namespace

void HeldWeights::hold(const Tensors& tensors, bool as_in_files) {
  tensors_ = tensors, as_in_files_ = as_in_files;
  parts_.clear(), away_.clear(), block_ = {};
  bytes_ = 0;
  for (const Tensor& t : tensors_) {
    SF_CHECK_AS(NotSupported, !t.device().is_meta(), "stream: tensors on the meta device have no values");
    parts_.push_back({0, at_home(t)});
    bytes_ += int64_t(t.nbytes());
  }
  lay_out();
  show_home();
  sent();
}

void HeldWeights::hold_again() {
  const Ref<Storage> block = block_;
  hold(Tensors(tensors_), as_in_files_);
  // Memory that was pinned for them takes the new values where they fit.
  if (block && laid_out_ <= block->bytes) settle(block);
}

void HeldWeights::lay_out_as_in_files() {
  std::vector<Part*> order;
  for (Part& p : parts_) order.push_back(&p);
  auto address = [](const Part* p) { return reinterpret_cast<uintptr_t>(p->home.data_ptr()); };
  std::sort(order.begin(), order.end(), [&](Part* a, Part* b) { return address(a) < address(b); });
  laid_out_ = 0;
  const Part* before = nullptr;
  for (Part* p : order) {
    if (before && address(p) >= address(before) + before->home.nbytes() &&
        address(p) - address(before) - before->home.nbytes() < io::kDirectPage) {
      p->at = before->at + (address(p) - address(before));
    } else {
      laid_out_ = (laid_out_ + io::kDirectPage - 1) / io::kDirectPage * io::kDirectPage;
      p->at = laid_out_ + address(p) % io::kDirectPage;
    }
    laid_out_ = std::max(laid_out_, p->at + p->home.nbytes());
    before = p;
  }
  laid_out_ = (laid_out_ + io::kDirectPage - 1) / io::kDirectPage * io::kDirectPage;
}

void HeldWeights::lay_out() {
  if (as_in_files_) return lay_out_as_in_files();
  const size_t n = parts_.size();
  // The one that begins where another ends, in memory that was allocated for both: in a file all tensors lie so.
  auto owned = [&](size_t i) { return parts_[i].home.storage() && !parts_[i].home.storage()->lender; };
  auto begin = [&](size_t i) { return static_cast<const char*>(parts_[i].home.data_ptr()); };
  auto end = [&](size_t i) { return begin(i) + parts_[i].home.nbytes(); };
  std::vector<size_t> after(n, n), before(n, n);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j)
      if (i != j && owned(i) && parts_[i].home.storage() == parts_[j].home.storage() && end(i) == begin(j) &&
          parts_[i].home.nbytes() && parts_[j].home.nbytes())
        after[i] = j, before[j] = i;
  for (auto& row : rows_) {
    for (size_t i : row) {  // out of what it was in
      if (before[i] != n) after[before[i]] = n;
      if (after[i] != n) before[after[i]] = n;
      before[i] = after[i] = n;
    }
    for (size_t k = 1; k < row.size(); ++k) after[row[k - 1]] = row[k], before[row[k]] = row[k - 1];
  }
  laid_out_ = 0;
  for (size_t i = 0; i < n; ++i) {
    if (before[i] != n) continue;
    for (size_t at = i; at != n; at = after[at]) {
      parts_[at].at = laid_out_;
      laid_out_ += parts_[at].home.nbytes();
    }
    // Further on than where it ends: what only came to lie side by side would be one product here (projections.cpp) and
    // several without streaming, of which a GPU's last bits differ.
    laid_out_ = laid_out_ / kAlign * kAlign + kAlign;
  }
}

size_t HeldWeights::place_of(const Tensor& t) const {
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (tensors_[i].is_same(t)) return i;
  return tensors_.size();
}

bool HeldWeights::lie_side_by_side(const Tensors& list) const {
  return std::any_of(rows_.begin(), rows_.end(), [&](auto& row) {
    return std::equal(row.begin(), row.end(), list.begin(), list.end(),
                      [&](size_t i, const Tensor& t) { return tensors_[i].is_same(t); });
  });
}

bool HeldWeights::lay_side_by_side(const Tensors& list) {
  std::vector<size_t> row;
  for (const Tensor& t : list) {
    row.push_back(place_of(t));
    if (row.back() == tensors_.size()) return false;
  }
  if (lie_side_by_side(list)) return true;
  if (!away_.empty()) {  // on a device, where they move for good
    Tensors values;
    for (const Tensor& t : list) values.push_back(t.detach());
    const Tensor all = cat(values, 0);
    int64_t at = 0;
    for (size_t i : row) {
      const Tensor& t = tensors_[i];
      const bool same = t.storage() == away_[i].storage && t.version() == away_[i].version;
      autograd::set_data(t, all.narrow(0, at, t.size(0)));
      at += t.size(0);
      if (same) away_[i] = {t.storage(), t.version()};  // what is at home is still what they show
    }
    return true;
  }
  rows_.push_back(std::move(row));
  std::vector<char> values;
  if (block_) {  // the homes move within it
    values.resize(laid_out_);
    std::memcpy(values.data(), block_->data, laid_out_);
  }
  const std::vector<Part> before = parts_;
  lay_out();
  if (!block_) return true;
  for (size_t i = 0; i < parts_.size(); ++i) {
    std::memcpy(static_cast<char*>(block_->data) + parts_[i].at, values.data() + before[i].at, parts_[i].home.nbytes());
    parts_[i].home = view_of(block_, i);
  }
  show_home();
  return true;
}

Tensor HeldWeights::view_of(const Ref<Storage>& block, size_t i) const {
  const Tensor& home = parts_[i].home;
  return Tensor::strided(block, home.shape(), home.strides(), int64_t(parts_[i].at / home.itemsize()), home.dtype());
}

void HeldWeights::write_block(char* to) {
  constexpr int64_t kPiece = 1 << 20;  // bytes that are worth a thread: reading a mapped page waits for the disk
  refuse_changed();
  for (const Part& p : parts_) {
    auto* from = static_cast<const char*>(p.home.data_ptr());
    parallel_for(int64_t(p.home.nbytes()), kPiece, [&](int64_t begin, int64_t end) {
      std::memcpy(to + p.at + begin, from + begin, size_t(end - begin));
    });
    io::release_mapped(from, p.home.nbytes());
  }
}

void HeldWeights::settle(const Ref<Storage>& block) {
  write_block(static_cast<char*>(block->data));
  for (size_t i = 0; i < parts_.size(); ++i) parts_[i].home = view_of(block, i);
  block_ = block;
  show_home();
  sent();
}

void HeldWeights::show(const Ref<Storage>& block) {
  for (size_t i = 0; i < parts_.size(); ++i) autograd::set_data(tensors_[i], view_of(block, i));
}

void HeldWeights::show_home() {
  for (size_t i = 0; i < parts_.size(); ++i)
    if (!shows(tensors_[i], parts_[i].home)) autograd::set_data(tensors_[i], parts_[i].home);
}

int64_t HeldWeights::bring_back() {
  for (size_t i = 0; i < parts_.size(); ++i) copy_bytes(parts_[i].home, tensors_[i].detach());
  return bytes_;
}

void HeldWeights::sent() {
  versions_.clear();
  for (const Part& p : parts_) versions_.push_back(p.home.version());
}

bool HeldWeights::changed_home() const {
  for (size_t i = 0; i < parts_.size(); ++i)
    if (!shows(tensors_[i], parts_[i].home) || parts_[i].home.version() != versions_[i]) return true;
  return false;
}

void HeldWeights::move_to(Device device, io::UploadRing* ring) {
  refuse_changed();
  away_.assign(tensors_.size(), {});
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!shows(tensors_[i], parts_[i].home)) parts_[i].home = at_home(tensors_[i]);
    autograd::set_data(tensors_[i], io::placed(parts_[i].home, device, ring));
    away_[i] = {tensors_[i].storage(), tensors_[i].version()};
  }
}

void HeldWeights::move_home() {
  for (size_t i = 0; i < away_.size(); ++i) {
    const Tensor& t = tensors_[i];
    if (!away_[i].storage) continue;  // never got there
    const bool same = t.storage() == away_[i].storage && t.version() == away_[i].version;
    if (!same) parts_[i].home = at_home(t);
    autograd::set_data(t, parts_[i].home);
  }
  away_.clear();
}

bool HeldWeights::in_files() const {
  return std::all_of(parts_.begin(), parts_.end(),
                     [](const Part& p) { return p.home.nbytes() == 0 || io::is_mapped(p.home.data_ptr()); });
}

void HeldWeights::refuse_changed() const {
  if (block_) return;
  for (const Part& p : parts_) io::refuse_changed(p.home.data_ptr());
}

void HeldWeights::release_pages(bool from_cache) {
  for (const Tensor& t : tensors_) nn::release_pages(t, from_cache);
}

void release_pages(const Tensor& weight, bool from_cache, bool keeps_packed) {
  if (!weight.storage() || !weight.device().is_cpu()) return;
  const void* data = weight.impl()->data;  // looked at, not read
  if (weight.storage()->packed && !keeps_packed) cpu::forget_packed(data, weight.nbytes());
  io::release_mapped(data, weight.nbytes(), from_cache);
}

}  // namespace sf::nn
