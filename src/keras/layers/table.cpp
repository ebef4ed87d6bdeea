// The table by which a file names layers.

#include "keras/layers/config.h"

namespace tutti::keras::layers {

Layer layer_from_config(const std::string& class_name, const std::string& config) {
  const Json json = parse_object(cat("layer ", class_name), config);
  const LayerBase base{member<std::string>(json, "name", ""),
                       member<Shape>(json, "input_shape", {})};
  for (const LayerFamily& family :
       {simple_layers(), kernel_layers(), batch_normalization_layers(), embedding_layers(),
        recurrent_cells(), standard_cells(), recurrent_layers(), sequence_wrappers(),
        attention_layers(), multi_head_layers(), encoding_layers(), normalization_layers(),
        discretization_layers(), image_preprocessing_layers(), augmentation_layers(),
        lookup_layers(), text_layers()}) {
    for (const LayerEntry& entry : family) {
      if (class_name != entry.class_name) continue;
      Layer layer = entry.make(json, base);
      // Not set when true: layers inside this one may have been told otherwise.
      if (!member<bool>(json, "trainable", true)) layer->set_trainable(false);
      const std::string dtype = member<std::string>(json, "dtype", "");
      if (!layer->built()) layer->set_dtype_policy(dtype.empty() ? "float32" : dtype);
      return layer;
    }
  }
  throw Unimplemented(
      cat("layer: class \"", class_name,
          "\", expected one of this library's layers; a model with other layers is loaded by "
          "making it and calling load_weights"));
}

}  // namespace tutti::keras::layers
