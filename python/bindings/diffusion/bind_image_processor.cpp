// What python/scaffolding/diffusion/pipelines/image_processor.py is made of.
#include "python/bindings/diffusion/bind_image_processor.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/image_processor.h"

namespace sf::py {

namespace {

using namespace diffusion;

std::optional<CropBox> crop_box(const std::optional<Shape>& box) {
  if (!box) return {};
  SF_CHECK(box->size() == 4, "VaeImageProcessor: a crop is (left, top, right, bottom), got ", *box);
  return CropBox{(*box)[0], (*box)[1], (*box)[2], (*box)[3]};
}

PreprocessOptions preprocess_options(std::optional<int64_t> height, std::optional<int64_t> width,
                                     const std::string& mode, const std::optional<Shape>& crop) {
  return {height, width, resize_mode(mode), crop_box(crop)};
}

}  // namespace

void bind_image_processor(nb::module_& m) {
  nb::class_<VaeImageProcessor>(m, "VaeImageProcessor")
      .def("__init__",
           [](VaeImageProcessor* self, bool do_resize, int64_t scale, int64_t channels, const std::string& resample,
              bool normalize, bool binarize, bool grey) {
             SF_CHECK(scale >= 1, "VaeImageProcessor: vae_scale_factor must be at least 1, got ", scale);
             new (self)
                 VaeImageProcessor({do_resize, scale, channels, data::filter(resample), normalize, binarize, grey});
           })
      .def("preprocess_pictures",
           [](const VaeImageProcessor& p, const Tensors& pictures, std::optional<int64_t> height,
              std::optional<int64_t> width, const std::string& mode, std::optional<Shape> crop) {
             return p.preprocess(pictures, preprocess_options(height, width, mode, crop));
           })
      .def("preprocess_values",
           [](const VaeImageProcessor& p, const Tensor& images, std::optional<int64_t> height,
              std::optional<int64_t> width, const std::string& mode, std::optional<Shape> crop) {
             return p.preprocess(images, preprocess_options(height, width, mode, crop));
           })
      .def("denormalize", &VaeImageProcessor::denormalize)
      .def("resize", [](const VaeImageProcessor& p, const Tensor& picture, int64_t height, int64_t width,
                        const std::string& mode) { return p.resize(picture, height, width, resize_mode(mode)); })
      .def("apply_overlay",
           [](const VaeImageProcessor& p, const Tensor& mask, const Tensor& init, const Tensor& picture,
              std::optional<Shape> crop) { return p.apply_overlay(mask, init, picture, crop_box(crop)); })
      .def_static("frames", &VaeImageProcessor::frames)
      .def_static("pictures", &VaeImageProcessor::pictures)
      .def_static("crop_region", [](const Tensor& mask, int64_t width, int64_t height, int64_t pad) {
        CropBox b = VaeImageProcessor::crop_region(mask, width, height, pad);
        return nb::make_tuple(b.left, b.top, b.right, b.bottom);
      });
}

}  // namespace sf::py
