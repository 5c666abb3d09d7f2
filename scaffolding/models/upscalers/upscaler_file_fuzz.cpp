#include "scaffolding/core/default_device.h"
#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/models/names/name_table.h"
#include "scaffolding/models/upscalers/upscaler_file.h"

// What a file of a network that enlarges pictures is, and where its tensors belong, as far as its header says.
SF_FUZZ_TARGET(upscaler_file) {
  using namespace sf;
  const auto kind = models::recognise_upscaler(io::open_checkpoint(io::Bytes::borrow(data, size, "fuzz"))->entries());
  SF_CHECK(kind, "fuzz: a file of something else");
  models::describe(*kind);
  DefaultDevice nowhere{Device(Device::Meta)};
  const auto model = models::make_model(kind->class_name, kind->config);
  for (auto& layout : models::layouts_of(kind->class_name)) models::name_table(*model, kind->class_name, layout);
}
