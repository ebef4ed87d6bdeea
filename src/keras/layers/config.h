#pragma once
// Reading and writing of layer arguments.

#include <span>

#include "keras/json.h"
#include "tutti/keras/layers.h"

namespace tutti::keras::layers {

/// What the table makes for every layer alike.
struct LayerBase {
  std::string name;
  Shape input_shape;
};
/// A class by its Keras name, and how one is made again of its config().
struct LayerEntry {
  const char* class_name;
  Layer (*make)(const Json& config, const LayerBase& base);
};
using LayerFamily = std::span<const LayerEntry>;
// The families, each in the file of its layers; layer_from_config (table.cpp) looks through them.
LayerFamily simple_layers();
LayerFamily kernel_layers();
LayerFamily batch_normalization_layers();
LayerFamily embedding_layers();
LayerFamily recurrent_cells();
LayerFamily standard_cells();
LayerFamily recurrent_layers();
LayerFamily sequence_wrappers();
LayerFamily attention_layers();
LayerFamily multi_head_layers();
LayerFamily encoding_layers();
LayerFamily normalization_layers();
LayerFamily discretization_layers();
LayerFamily image_preprocessing_layers();
LayerFamily augmentation_layers();
LayerFamily lookup_layers();
LayerFamily text_layers();

inline Json to_json(const Size2& size) { return Json::array({size.height, size.width}); }
inline Size2 size_from(const Json& json, const char* key, Size2 fallback) {
  const auto pair = member<std::vector<int64_t>>(json, key, {fallback.height, fallback.width});
  if (pair.size() != 2)
    throw DataLoss(cat("configuration [", key, "]: ", pair.size(),
                       " numbers, expected 2; the file is damaged"));
  return Size2(pair[0], pair[1]);
}
inline Json to_json(const Initializer& initializer) {
  return {{"class_name", initializer.class_name()}, {"config", Json::parse(initializer.config())}};
}
inline Initializer initializer_from(const Json& json, const char* key,
                                    const Initializer& fallback) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_object()) return fallback;
  const Json config = member<Json>(*found, "config", Json::object());
  return Initializer::from_config(member<std::string>(*found, "class_name", ""), config.dump());
}
inline Json to_json(const Regularizer& regularizer) {
  return {{"l1", regularizer.l1}, {"l2", regularizer.l2}};
}
inline Regularizer regularizer_from(const Json& json, const char* key) {
  const Json config = member<Json>(json, key, Json::object());
  return {member<double>(config, "l1", 0), member<double>(config, "l2", 0)};
}

/// What every layer has.
inline Json base_config(const LayerImpl& layer) {
  Json json{{"name", layer.name()}, {"trainable", layer.trainable()}};
  if (!layer.input_shape().empty()) json["input_shape"] = layer.input_shape();
  if (layer.dtype_policy().name() != "float32") json["dtype"] = layer.dtype_policy().name();
  return json;
}

/// Rank and channels of an image batch; InvalidArgument otherwise.
inline void check_image(const LayerImpl& layer, const Shape& input) {
  if (input.size() == 4 && input[3] > 0) return;
  throw InvalidArgument(cat(layer.class_name(), " [", layer.name(), "]: input of shape ",
                            shape_text(input),
                            ", expected (batch, height, width, channels) with known channels; add "
                            "a channel axis with unsqueeze(-1)"));
}

/// How images and kernels lie in memory between layers. The numbers are the same, the speed is not;
/// this is the only place to change it.
enum class ImageMemory { kChannelsLast, kChannelsFirst };
inline constexpr ImageMemory kImageMemory = ImageMemory::kChannelsLast;
/// In which order an HWIO kernel is stored, so that LibTorch sees OIHW in the memory format of the
/// images.
inline std::vector<int64_t> kernel_storage_order() {
  return kImageMemory == ImageMemory::kChannelsLast ? std::vector<int64_t>{3, 0, 1, 2}
                                                    : std::vector<int64_t>{3, 2, 0, 1};
}
/// Images from the user's order to LibTorch's. With kChannelsFirst the first layer copies, the
/// others find their input as they want it.
inline Tensor to_channels_first(const Tensor& images) {
  const Tensor view = images.permute({0, 3, 1, 2});
  return kImageMemory == ImageMemory::kChannelsLast ? view : view.contiguous();
}
/// And back: the same memory.
inline Tensor to_channels_last(const Tensor& images) { return images.permute({0, 2, 3, 1}); }

/// Padding of one axis for "same": what is added in front and at the end, the extra one at the end.
struct Padding {
  int64_t before;
  int64_t after;
};
inline Padding same_padding(int64_t size, int64_t kernel, int64_t stride, int64_t dilation) {
  const int64_t out = (size + stride - 1) / stride;
  const int64_t total =
      std::max<int64_t>(0, (out - 1) * stride + (kernel - 1) * dilation + 1 - size);
  return {total / 2, total - total / 2};
}
/// Output size of one axis; InvalidArgument when the kernel does not fit.
inline int64_t window_output(const LayerImpl& layer, int64_t size, int64_t kernel, int64_t stride,
                             int64_t dilation, bool same) {
  if (size < 0) return -1;
  if (same) return (size + stride - 1) / stride;
  const int64_t reach = (kernel - 1) * dilation + 1;
  if (size < reach) {
    throw InvalidArgument(
        cat(layer.class_name(), " [", layer.name(), "]: an image of ", size,
            " rows or columns for a window of ", reach,
            ", expected at least the window; use padding \"same\" or a smaller window"));
  }
  return (size - reach) / stride + 1;
}
inline bool is_same(const LayerImpl& layer, const std::string& padding) {
  if (padding == "same") return true;
  if (padding == "valid") return false;
  throw InvalidArgument(cat(layer.class_name(), " [", layer.name(), "]: padding \"", padding,
                            "\", expected \"valid\" or \"same\""));
}

/// In place where that is safe: `fresh` was made by the layer and nobody else has it.
inline Tensor activate(const keras::Activation& activation, Tensor fresh) {
  if (activation.name() == "relu") return at::relu_(fresh);
  return activation(fresh);
}

}  // namespace tutti::keras::layers
