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
  if (member<std::string>(json, "data_format", "channels_last") != "channels_last") {
    throw Unimplemented(cat("layer: a ", class_name,
                            " whose data_format is channels_first, expected channels_last, the "
                            "only one here; transpose the images"));
  }
  const std::string dtype = member<std::string>(json, "dtype", "");
  const LayerBase base{member<std::string>(json, "name", ""),
                       member<Shape>(json, "input_shape", {}),
                       member<bool>(json, "trainable", true),
                       dtype.empty() ? "float32" : dtype,
                       {limits.weight_entries, limits.depth - 1, limits.custom}};
  const auto* maker = custom_maker<Layer>(limits.custom, class_name);
  if (maker != nullptr) {
    Layer layer = (*maker)(json.dump());
    if (layer.impl() == nullptr)
      throw InvalidArgument(
          cat("layer: the maker of \"", class_name, "\" gave none, expected a layer"));
    layer->limit_weights(limits.weight_entries);
    if (!base.name.empty()) layer->set_name(base.name);
    if (!base.trainable) layer->set_trainable(false);
    return layer;
  }
  for (const LayerFamily& family : {core_layers(),
                                    einsum_layers(),
                                    activation_layers(),
                                    convolution_layers(),
                                    transposed_convolution_layers(),
                                    merging_layers(),
                                    batch_normalization_layers(),
                                    normalization_layers(),
                                    pooling_layers(),
                                    regularization_layers(),
                                    reshaping_layers(),
                                    embedding_layers(),
                                    recurrent_cells(),
                                    standard_cells(),
                                    recurrent_layers(),
                                    sequence_wrappers(),
                                    wrapper_layers(),
                                    attention_layers(),
                                    multi_head_layers(),
                                    encoding_layers(),
                                    feature_normalization_layers(),
                                    discretization_layers(),
                                    image_preprocessing_layers(),
                                    augmentation_layers(),
                                    lookup_layers(),
                                    text_layers(),
                                    input_layers(),
                                    model_layers()}) {
    for (const LayerEntry& entry : family) {
      if (class_name != entry.class_name) continue;
      Layer layer = entry.make(json, base);
      layer->limit_weights(limits.weight_entries);
      // Not set when true: layers inside this one may have been told otherwise.
      if (!base.trainable) layer->set_trainable(false);
      if (!layer->built()) layer->set_dtype_policy(base.dtype);
      return layer;
    }
  }
  throw Unimplemented(
      cat("layer: class \"", class_name,
          "\", expected one of this library's layers; give load_model its maker in custom_objects, "
          "or make the model in the program and call load_weights"));
}

}  // namespace tutti::keras::layers
