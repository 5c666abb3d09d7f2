// The formulas of learning-rate schedules; scaffolding/optim/lr_scheduler.py keeps the books.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/core/bind_tensor.h"
#include "scaffolding/optim/schedule.h"

namespace sf::py {

void bind_schedule(nb::module_& m) {
  using namespace optim::schedule;
  nb::module_ s = m.def_submodule("_schedule");
  s.def("step", &step);
  s.def("step_closed", &step_closed);
  s.def("multi_step", &multi_step);
  s.def("multi_step_closed", &multi_step_closed);
  s.def("constant", &constant);
  s.def("constant_closed", &constant_closed);
  s.def("linear", &linear);
  s.def("linear_closed", &linear_closed);
  s.def("polynomial", &polynomial);
  s.def("polynomial_closed", &polynomial_closed);
  s.def("cosine_annealing", &cosine_annealing);
  s.def("cosine_annealing_closed", &cosine_annealing_closed);
  s.def("restart_at", [](double epoch, int64_t T_0, int64_t T_mult) {
    auto [T_cur, T_i] = restart_at(epoch, T_0, T_mult);
    return nb::make_tuple(T_cur, T_i);
  });
  s.def("anneal", &anneal);
  s.def("one_cycle", [](int64_t epoch, int64_t total_steps, double pct_start, bool three_phase) {
    auto [phase, fraction] = one_cycle(epoch, total_steps, pct_start, three_phase);
    return nb::make_tuple(phase, fraction);
  });
  s.def("triangle", [](int64_t epoch, double step_size_up, double step_size_down) {
    auto [height, cycle] = triangle(epoch, step_size_up, step_size_down);
    return nb::make_tuple(height, cycle);
  });
  s.def("constant_with_warmup", &constant_with_warmup);
  s.def("linear_with_warmup", &linear_with_warmup);
  s.def("cosine_with_warmup", &cosine_with_warmup);
  s.def("cosine_with_restarts", &cosine_with_restarts);
  s.def("polynomial_with_warmup", &polynomial_with_warmup);
  nb::class_<Pieces>(s, "Pieces").def(nb::init<const std::string&>()).def("factor", &Pieces::factor);
}

}  // namespace sf::py
