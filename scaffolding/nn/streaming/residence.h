// Residence: what happens around a module's calls so that its weights are where they are computed with.
//
// Every call of the module, from C++ and Python alike, is between enter() and leave(), its hooks and adapter included;
// a call that throws leaves too. Nobody is said to look at the module because of it (looked_at.h): fused kernels take
// the same way with and without. Code that reads weights of another module past its calls says so by WeightsHere.
#pragma once
#include "scaffolding/nn/module.h"

namespace sf::nn {

class Residence {
 public:
  virtual ~Residence() = default;
  virtual void enter() = 0;
  virtual void leave() noexcept = 0;
  virtual bool may_move() const { return false; }  // the module, to another device between calls
  virtual bool is_cast() const { return false; }   // its weights are of another dtype between calls
};

// Where calls that C++ does not see, of modules whose forward is Python's, must enter and leave.
struct ResidencePlace {
  std::string name;
  Module* module;
  Residence* residence;
};

// Among those that a module has already. First: enters before them, and leaves after them.
enum class ResidenceOrder : uint8_t { First, Last };
// Not owned: whoever adds one removes it before it goes.
void add_residence(Module& m, Residence* residence, ResidenceOrder order = ResidenceOrder::First);
void remove_residence(Module& m, Residence* residence);
Residence* residence_of(const Module& m);  // all of them as one; null where there is none

// The weights of m belong to somebody, in calls and between them.
void set_held(const Module& m, bool held);
// The dtype that calls of m see weights in which are stored in another one; set by whoever casts them, absent: nobody.
void set_cast(const Module& m, std::optional<DType> compute);
std::optional<DType> cast_dtype(const Module& m);
// Whether m, or what is below it, has weights that are of another dtype between calls.
bool has_cast_weights(Module& m);
// RuntimeError of `op` where weights of m, or below it, are not for others to move, or to convert.
void refuse_streamed(Module& m, const char* op, bool converts);

// The weights of m are there while this lives, as within its call.
class WeightsHere {
 public:
  explicit WeightsHere(const Module& m) : WeightsHere(residence_of(m)) {}
  explicit WeightsHere(Residence* residence) : residence_(residence) {
    if (residence_) residence_->enter();
  }
  ~WeightsHere() {
    if (residence_) residence_->leave();
  }
  WeightsHere(const WeightsHere&) = delete;
  WeightsHere& operator=(const WeightsHere&) = delete;

 private:
  Residence* residence_;
};

// A module that reads weights of modules further below past their calls, and at any time of its own, says by this base
// which: they are never streamed.
struct ReadsBelow {
  virtual ~ReadsBelow() = default;
  virtual Tensors read_below() const = 0;
};

namespace detail {
// How a residence reaches a module: register_forward_pre_hook puts a hook of this type aside.
struct ResidenceHook {
  Residence* residence = nullptr;
  Values operator()(Module&, const Values&) const { return {}; }
};
}  // namespace detail

}  // namespace sf::nn
