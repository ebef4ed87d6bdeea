// The table by which a file names layers.

#include "keras/layers/config.h"

namespace tutti::keras::layers {

Layer layer_from_config(const std::string& class_name, const std::string& config) {
  return layer_from_json(class_name, parse_object(cat("layer ", class_name), config));
}

Layer layer_from_json(const std::string& class_name, const Json& json, const LayerLimits& limits) {
  if (limits.depth < 0)
    throw DataLoss(cat("layer ", class_name, ": models nested too deep; the file is damaged"));
  if (!json.is_object())
    throw DataLoss(cat("layer ", class_name,
                       ": a configuration that is no JSON object, expected "
                       "one; the file is damaged"));
  LayerBase base{member<std::string>(json, "name", ""), member<Shape>(json, "input_shape", {})};
  base.limits = {limits.weight_entries, limits.depth - 1};
  for (const LayerFamily& family : {simple_layers(), kernel_layers(), batch_normalization_layers(),
                                    input_layers(), model_layers()}) {
    for (const LayerEntry& entry : family) {
      if (class_name != entry.class_name) continue;
      Layer layer = entry.make(json, base);
      layer->limit_weights(limits.weight_entries);
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
