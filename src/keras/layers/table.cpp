// The table by which a file names layers.

#include "keras/layers/config.h"

namespace tutti::keras::layers {

Layer layer_from_config(const std::string& class_name, const std::string& config) {
  const Json json = parse_object(cat("layer ", class_name), config);
  if (member<std::string>(json, "data_format", "channels_last") != "channels_last") {
    throw Unimplemented(cat("layer: a ", class_name,
                            " whose data_format is channels_first, expected channels_last, the "
                            "only one here; transpose the images"));
  }
  const std::string dtype = member<std::string>(json, "dtype", "");
  const LayerBase base{member<std::string>(json, "name", ""),
                       member<Shape>(json, "input_shape", {}),
                       member<bool>(json, "trainable", true), dtype.empty() ? "float32" : dtype};
  for (const LayerFamily& family :
       {core_layers(), activation_layers(), convolution_layers(), transposed_convolution_layers(),
        merging_layers(), batch_normalization_layers(), normalization_layers(), pooling_layers(),
        regularization_layers(), reshaping_layers()}) {
    for (const LayerEntry& entry : family) {
      if (class_name != entry.class_name) continue;
      Layer layer = entry.make(json, base);
      layer->set_trainable(base.trainable);
      if (!layer->built()) layer->set_dtype_policy(base.dtype);
      return layer;
    }
  }
  throw Unimplemented(
      cat("layer: class \"", class_name,
          "\", expected one of this library's layers; a model with other layers is loaded by "
          "making it and calling load_weights"));
}

}  // namespace tutti::keras::layers
