#include "benchmarks/bench.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/models/text_encoders/clip.h"
#include "scaffolding/ops/ops.h"

namespace sf::bench {

// A prompt and its negative, as Stable Diffusion encodes them.
static Rows clip_rows([](std::vector<Row>& rows) {
  for (DType t : {kFloat32, kBFloat16}) {
    models::CLIPTextConfig c;
    c.hidden_size = 768;
    c.intermediate_size = 3072;
    c.num_attention_heads = 12;
    // of a token in a layer
    const double tokens = 2 * 77, channels = 768, products = 12 * channels * channels + 2 * 77 * channels;
    rows.push_back({"CLIP ViT-L [2,77] " + short_name(t), roof_of(t),
                    2 * tokens * double(c.num_hidden_layers) * products, speedup(1), [=] {
                      auto model = std::make_shared<models::CLIPTextModel>(c);
                      nn::to(*model, {.dtype = t});
                      model->eval();
                      return [model, ids = randint(0, 49406, {2, 77})] {
                        autograd::NoGrad off;
                        keep(model->forward(ids)[0]);
                      };
                    }});
  }
});

}  // namespace sf::bench
