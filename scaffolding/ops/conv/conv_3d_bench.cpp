// The layers of video networks in either direction, batch 1, channels-last in and out: CogVideoX's autoencoder, whose
// kernels see the frames before (two more go in than come out), and small networks that are trained.
#include "benchmarks/bench.h"
#include "scaffolding/ops/conv/conv.h"

namespace sf::bench {

namespace {

struct Layer {
  Shape kernel;
  int64_t channels, frames, side;  // of what goes in
  int64_t padding_in_time, stride;
};

std::string name_of(const Layer& l, DType t) {
  return std::to_string(l.kernel[0]) + "x" + std::to_string(l.kernel[1]) + "x" + std::to_string(l.kernel[2]) + " " +
         std::to_string(l.channels) + "@" + std::to_string(l.frames) + "x" + std::to_string(l.side) +
         (l.stride > 1 ? " stride " + std::to_string(l.stride) : "") + " " + short_name(t);
}

}  // namespace

static Rows conv_3d_rows([](std::vector<Row>& rows) {
  for (DType t : {kFloat32, kBFloat16})
    for (const Layer& l : {Layer{{3, 3, 3}, 128, 10, 96, 0, 1},
                           {{3, 3, 3}, 256, 6, 64, 0, 1},
                           {{3, 3, 3}, 512, 4, 32, 0, 1},
                           {{3, 3, 3}, 64, 17, 64, 1, 1},
                           {{3, 3, 3}, 32, 17, 64, 1, 1},
                           {{3, 3, 3}, 16, 17, 64, 1, 1},
                           {{1, 3, 3}, 128, 8, 96, 0, 1},
                           {{3, 1, 1}, 128, 10, 96, 0, 1},
                           {{3, 3, 3}, 64, 17, 64, 1, 2}}) {
      ConvShape shape;
      Shape x{1, l.channels, l.frames, l.side, l.side}, y = x;
      for (int i = 0; i < 3; ++i) {
        shape.stride[i] = i ? l.stride : 1;
        shape.padding[i] = i ? l.kernel[i] / 2 : l.padding_in_time;
        y[i + 2] = (x[i + 2] + 2 * shape.padding[i] - l.kernel[i]) / shape.stride[i] + 1;
      }
      const Shape w{l.channels, l.channels, l.kernel[0], l.kernel[1], l.kernel[2]};
      const double flop = 2.0 * double(l.channels) * double(w[1] * w[2] * w[3] * w[4]) * double(y[2] * y[3] * y[4]);
      auto add = [&](const char* what, const std::function<std::function<void()>()>& prepare) {
        const Goal goal = t == kFloat32 ? speedup(2) : share(0.92);
        rows.push_back({std::string("conv3d ") + what + name_of(l, t), roof_of(t), flop, goal, prepare});
      };
      add("", [=] {
        return [in = random_channels_last(x, t), weight = random(w, t), bias = random({w[0]}, t), shape] {
          keep(conv_output(in, weight, bias, shape));
        };
      });
      add("gradient of input ", [=] {
        return [dy = random_channels_last(y, t), weight = random(w, t), x, shape] {
          keep(conv_input_gradient(dy, weight, x, shape));
        };
      });
      add("gradient of weight ", [=] {
        return [in = random_channels_last(x, t), dy = random_channels_last(y, t), w, shape] {
          keep(conv_weight_gradient(in, dy, w, shape));
        };
      });
    }
});

}  // namespace sf::bench
