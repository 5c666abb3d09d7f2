#include "scaffolding/models/names/name_rules.h"

namespace sf::models {

namespace {

// rdb: what stands before a block's number of dense blocks in their names; end: behind a convolution's.
void blocks(NameRules& rules, const std::string& list, const std::string& rdb, const std::string& end) {
  for (const char* j : {"1", "2", "3"})
    for (const char* k : {"1", "2", "3", "4", "5"})
      rules.rename(std::string("body.{i}.rdb") + j + ".conv" + k, list + ".{i}." + rdb + j + ".conv" + k + end);
}

// Old ESRGAN's network is a list: the first convolution, the blocks with the one behind them, and of each doubling its
// place, the convolution and the activation.
void esrgan(const TensorList& model, NameRules& rules) {
  int64_t ups = 0;
  while (model.has("conv_up" + std::to_string(ups + 1))) ++ups;
  auto place = [](int64_t i) { return "model." + std::to_string(i); };
  rules.rename("conv_first", place(0));
  blocks(rules, "model.1.sub", "RDB", ".0");
  rules.rename("conv_body", "model.1.sub." + std::to_string(model.count("body")));
  for (int64_t i = 1; i <= ups; ++i) rules.rename("conv_up" + std::to_string(i), place(3 * i));
  rules.rename("conv_hr", place(3 * ups + 2)).rename("conv_last", place(3 * ups + 4));
}

void bsrgan(const TensorList&, NameRules& rules) { blocks(rules, "RRDB_trunk", "RDB", ""); }

SF_NAMES(RRDBNet, "esrgan").with(esrgan);
SF_NAMES(RRDBNet, "bsrgan")
    .same({"conv_first", "conv_last"})
    .rename("conv_body", "trunk_conv")
    .rename("conv_up1", "upconv1")
    .rename("conv_up2", "upconv2")
    .rename("conv_up3", "upconv3")
    .rename("conv_up4", "upconv4")
    .rename("conv_hr", "HRconv")
    .with(bsrgan);

}  // namespace
}  // namespace sf::models
