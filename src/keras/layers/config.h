#pragma once
// What layers are made of: their arguments, read from JSON and written to it by one function, and
// the table by class name.

#include <array>
#include <limits>
#include <memory>
#include <span>

#include "keras/json.h"
#include "keras/layers/custom.h"
#include "tutti/keras/layers.h"

namespace tutti::keras::layers {

/// What a description that is not trusted may ask for.
struct LayerLimits {
  int64_t weight_entries = std::numeric_limits<int64_t>::max();
  int depth = 64;  ///< of layers inside layers
  /// Makers of classes that are not Tutti's; may be null.
  const CustomObjects* custom = nullptr;
};
/// What the table reads for every layer alike.
struct LayerBase {
  std::string name;
  Shape input_shape;
  bool trainable = true;
  std::string dtype = "";
  /// For layers that make others.
  LayerLimits limits = {};
};
/// A class by its Keras name, and how one is made again of its config().
struct LayerEntry {
  const char* class_name;
  Layer (*make)(const Json& config, const LayerBase& base);
};
using LayerFamily = std::span<const LayerEntry>;
// The families, each in the file of its layers; layer_from_config (table.cpp) looks through them.
LayerFamily core_layers();
LayerFamily einsum_layers();
LayerFamily activation_layers();
LayerFamily convolution_layers();
LayerFamily transposed_convolution_layers();
LayerFamily merging_layers();
LayerFamily batch_normalization_layers();
LayerFamily normalization_layers();
LayerFamily pooling_layers();
LayerFamily regularization_layers();
LayerFamily reshaping_layers();
LayerFamily embedding_layers();
LayerFamily recurrent_cells();
LayerFamily standard_cells();
LayerFamily recurrent_layers();
LayerFamily sequence_wrappers();
LayerFamily wrapper_layers();
LayerFamily attention_layers();
LayerFamily multi_head_layers();
LayerFamily encoding_layers();
LayerFamily feature_normalization_layers();
LayerFamily discretization_layers();
LayerFamily image_preprocessing_layers();
LayerFamily augmentation_layers();
LayerFamily lookup_layers();
LayerFamily text_layers();
LayerFamily input_layers();
LayerFamily model_layers();
/// layer_from_config within limits. DataLoss for what is damaged or nested too deep.
Layer layer_from_json(const std::string& class_name, const Json& config,
                      const LayerLimits& limits = {});
/// The symbolic tensor of an Input's layer, made anew.
KerasTensor tensor_of_input(const Layer& layer);

// ---- arguments as JSON

inline std::array<int64_t, 1> values_of(int64_t size) { return {size}; }
inline std::array<int64_t, 2> values_of(const Size2& size) { return {size.height, size.width}; }
inline std::array<int64_t, 3> values_of(const Size3& size) {
  return {size.depth, size.height, size.width};
}
template <class Size>
inline constexpr std::size_t kRank = std::tuple_size_v<decltype(values_of(std::declval<Size>()))>;

/// `Handle` is Initializer, Regularizer or Constraint; null is an undefined one.
template <class Handle>
Json handle_to_json(const Handle& handle) {
  if (!handle.defined()) return nullptr;
  return {{"class_name", handle.class_name()}, {"config", Json::parse(handle.config())}};
}
inline Json to_json(const Initializer& initializer) { return handle_to_json(initializer); }
inline Json to_json(const Regularizer& regularizer) { return handle_to_json(regularizer); }
inline Json to_json(const Constraint& constraint) { return handle_to_json(constraint); }
inline Json to_json(const keras::Activation& activation) { return activation.name(); }
inline Json to_json(const Size2& size) { return values_of(size); }
inline Json to_json(const Size3& size) { return values_of(size); }
inline Json to_json(const Border1& border) { return {border.before, border.after}; }
inline Json to_json(const Border2& border) {
  return Json::array({to_json(border.rows), to_json(border.columns)});
}
inline Json to_json(const Border3& border) {
  return Json::array({to_json(border.planes), to_json(border.rows), to_json(border.columns)});
}
inline Json to_json(const AxisPair& axes) { return Json::array({axes.first, axes.second}); }
template <class T>
requires std::constructible_from<Json, const T&> Json to_json(const T& value) {
  return Json(value);
}
template <class T>
Json to_json(const std::optional<T>& value) {
  return value ? to_json(*value) : Json(nullptr);
}

[[noreturn]] inline void damaged(const char* key, const Json& found, const char* expected) {
  throw DataLoss(cat("configuration [", key, "]: ", found.dump(), ", expected ", expected,
                     "; the file is damaged or from another version"));
}
/// One number, or a list of N.
template <std::size_t N>
std::array<int64_t, N> numbers_from(const Json& json, const char* key) {
  std::array<int64_t, N> numbers{};
  if (json.is_number_integer()) {
    numbers.fill(json.get<int64_t>());
    return numbers;
  }
  if (!json.is_array() || json.size() != N) damaged(key, json, cat(N, " numbers").c_str());
  for (std::size_t i = 0; i < N; ++i) {
    if (!json[i].is_number_integer()) damaged(key, json, "integers");
    numbers[i] = json[i].get<int64_t>();
  }
  return numbers;
}
/// One number for all, or N of what Border1 takes: numbers or pairs.
template <std::size_t N>
std::array<Border1, N> borders_from(const Json& json, const char* key) {
  std::array<Border1, N> borders = [] {
    if constexpr (N == 2) {
      return std::array<Border1, 2>{0, 0};
    } else {
      return std::array<Border1, 3>{0, 0, 0};
    }
  }();
  if (!json.is_number_integer() && (!json.is_array() || json.size() != N))
    damaged(key, json, cat("a number or ", N, " borders").c_str());
  for (std::size_t i = 0; i < N; ++i) {
    const auto pair = numbers_from<2>(json.is_array() ? json[i] : json, key);
    borders[i] = Border1(pair[0], pair[1]);
  }
  return borders;
}
/// An initializer and the like: {"class_name", "config"}, or its name alone.
template <class Handle>
Handle handle_from(const Json& json, const char* key, const CustomObjects* custom) {
  const std::string class_name = json.is_string()   ? json.get<std::string>()
                                 : json.is_object() ? member<std::string>(json, "class_name", "")
                                                    : "";
  if (!json.is_string() && !json.is_object()) damaged(key, json, "a name or an object");
  const std::string config =
      json.is_object() ? member<Json>(json, "config", Json::object()).dump() : "{}";
  if (const auto* maker = custom_maker<Handle>(custom, class_name)) return (*maker)(config);
  return Handle::from_config(class_name, config);
}

// Each sets `value` from `json`, which is not null.
template <class T>
void read_value(const Json& json, const char* key, T& value) {
  value = member<T>(Json{{key, json}}, key, value);
}
inline void read_handle(const Json& json, const char* key, Initializer& value,
                        const CustomObjects* custom) {
  value = handle_from<Initializer>(json, key, custom);
}
inline void read_handle(const Json& json, const char* key, Regularizer& value,
                        const CustomObjects* custom) {
  // {"l1", "l2"} alone stands in files of earlier versions.
  value = json.is_object() && !json.contains("class_name")
              ? regularizers::L1L2(member<double>(json, "l1", 0), member<double>(json, "l2", 0))
              : handle_from<Regularizer>(json, key, custom);
}
inline void read_handle(const Json& json, const char* key, Constraint& value,
                        const CustomObjects* custom) {
  value = handle_from<Constraint>(json, key, custom);
}
inline void read_handle(const Json& json, const char* key, keras::Activation& value,
                        const CustomObjects* custom) {
  if (!json.is_string()) damaged(key, json, "the name of an activation");
  const auto name = json.get<std::string>();
  const auto* maker = custom_maker<keras::Activation>(custom, name);
  value = maker != nullptr ? (*maker)("{}") : keras::Activation(name);
}
inline void read_value(const Json& json, const char* key, int64_t& value) {
  value = numbers_from<1>(json, key)[0];
}
inline void read_value(const Json& json, const char* key, Size2& value) {
  const auto numbers = numbers_from<2>(json, key);
  value = Size2(numbers[0], numbers[1]);
}
inline void read_value(const Json& json, const char* key, Size3& value) {
  const auto numbers = numbers_from<3>(json, key);
  value = Size3(numbers[0], numbers[1], numbers[2]);
}
inline void read_value(const Json& json, const char* key, AxisPair& value) {
  const auto numbers = numbers_from<2>(json, key);
  value = AxisPair(numbers[0], numbers[1]);
}
inline void read_value(const Json& json, const char* key, Border1& value) {
  const auto numbers = numbers_from<2>(json, key);
  value = Border1(numbers[0], numbers[1]);
}
inline void read_value(const Json& json, const char* key, Border2& value) {
  const auto borders = borders_from<2>(json, key);
  value = Border2(borders[0], borders[1]);
}
inline void read_value(const Json& json, const char* key, Border3& value) {
  const auto borders = borders_from<3>(json, key);
  value = Border3(borders[0], borders[1], borders[2]);
}
inline void read_value(const Json& json, const char* key, std::vector<int64_t>& value) {
  if (json.is_number_integer()) {
    value = {json.get<int64_t>()};
  } else {
    value = member<std::vector<int64_t>>(Json{{key, json}}, key, value);
  }
}
template <class T>
void read_value(const Json& json, const char* key, std::optional<T>& value) {
  T inner = [] {
    if constexpr (std::default_initializable<T>) {
      return T{};
    } else {
      return T(0);
    }
  }();
  read_value(json, key, inner);
  value = inner;
}

/// Writes arguments: `writer("units", units)`.
class ArgumentWriter {
 public:
  explicit ArgumentWriter(Json& json) : json_(json) {}
  template <class T>
  void operator()(const char* key, T& value) {
    json_[key] = to_json(value);
  }

 private:
  Json& json_;
};
/// Reads them again; what is missing or null stays as it is. DataLoss for another type.
class ArgumentReader {
 public:
  explicit ArgumentReader(const Json& json, const CustomObjects* custom = nullptr)
      : json_(json), custom_(custom) {}
  template <class T>
  void operator()(const char* key, T& value) {
    const auto found = json_.find(key);
    if (found == json_.end() || found->is_null()) return;
    if constexpr (requires { read_handle(*found, key, value, custom_); }) {
      read_handle(*found, key, value, custom_);
    } else {
      read_value(*found, key, value);
    }
  }

 private:
  const Json& json_;
  const CustomObjects* custom_;
};

// For families that read their arguments by hand.
inline Size2 size_from(const Json& json, const char* key, Size2 fallback) {
  ArgumentReader{json}(key, fallback);
  return fallback;
}
/// `fallback` where there is none: an initializer, a regularizer, a constraint or an activation.
template <class Handle>
Handle argument_from(const Json& json, const char* key, const Handle& fallback,
                     const LayerBase& base) {
  Handle value = fallback;
  ArgumentReader(json, base.limits.custom)(key, value);
  return value;
}

/// What every layer has.
inline Json base_config(const LayerImpl& layer) {
  Json json{{"name", layer.name()}, {"trainable", layer.trainable()}};
  if (!layer.input_shape().empty()) json["input_shape"] = layer.input_shape();
  if (layer.dtype_policy().name() != "float32") json["dtype"] = layer.dtype_policy().name();
  return json;
}

// ---- layers by their arguments

template <class Options>
concept HasActivityRegularizer = requires(Options options) {
  options.activity_regularizer;
};

/// A layer whose arguments are a struct with `options` (name, trainable, dtype, input_shape, …) and
/// `visit(io)`, which names each argument to a reader or a writer.
template <class ArgumentsOfLayer>
class ConfiguredLayer : public LayerImpl {
 public:
  using Arguments = ArgumentsOfLayer;
  ConfiguredLayer(const char* class_name, Arguments arguments)
      : LayerImpl(class_name, arguments.options.name, arguments.options.input_shape),
        class_name_(class_name),
        arguments_(std::move(arguments)) {
    if (!options().dtype.empty()) set_dtype_policy(options().dtype);
    if (!options().trainable) LayerImpl::set_trainable(false);
    if constexpr (HasActivityRegularizer<decltype(arguments_.options)>)
      activity_regularizer_ = options().activity_regularizer;
  }
  std::string class_name() const final { return class_name_; }
  std::string config() const final {
    Json json = base_config(*this);
    Arguments arguments = arguments_;
    arguments.visit(ArgumentWriter(json));
    return json.dump();
  }

 protected:
  const Arguments& arguments() const { return arguments_; }
  const auto& options() const { return arguments_.options; }
  /// The output itself; its penalty is added to the loss.
  Tensor penalised(Tensor output) {
    if (activity_regularizer_.defined()) add_penalty(activity_regularizer_, output);
    return output;
  }
  Regularizer activity_regularizer_;

 private:
  std::string class_name_;
  Arguments arguments_;
};

/// Arguments of a layer that has no others than those of LayerOptions.
struct NoArguments {
  LayerOptions options;
  template <class Io>
  void visit(Io&& io) {}
};

/// The way from a file to a ConfiguredLayer.
template <class Impl>
Layer make_configured(const Json& json, const LayerBase& base) {
  typename Impl::Arguments arguments;
  arguments.visit(ArgumentReader(json, base.limits.custom));
  arguments.options.name = base.name;
  arguments.options.input_shape = base.input_shape;
  arguments.options.trainable = base.trainable;
  arguments.options.dtype = base.dtype;
  return std::make_shared<Impl>(std::move(arguments));
}

inline void check_positive(const LayerImpl& layer, const char* what, int64_t value) {
  if (value >= 1) return;
  throw InvalidArgument(cat(layer.class_name(), " [", layer.name(), "]: ", what, " ", value,
                            ", expected at least 1"));
}

/// `axis` counted from the front; InvalidArgument when the input has no such axis.
inline int64_t axis_of(const LayerImpl& layer, int64_t axis, const Shape& input) {
  const auto rank = static_cast<int64_t>(input.size());
  if (axis >= -rank && axis < rank) return axis < 0 ? axis + rank : axis;
  throw InvalidArgument(cat(layer.class_name(), " [", layer.name(), "]: input of shape ",
                            shape_text(input), " with axis ", axis, ", expected an axis from ",
                            -rank, " to ", rank - 1));
}

/// In place where that is safe: `fresh` was made by the layer and nobody else has it.
inline Tensor activate(const keras::Activation& activation, Tensor fresh) {
  if (activation.name() == "relu") return at::relu_(fresh);
  return activation(fresh);
}

/// A mask [batch, …] made to broadcast with a tensor of `rank` axes.
inline Tensor mask_for(const Tensor& mask, int64_t rank) {
  Tensor wide = mask;
  while (wide.dim() < rank) wide = wide.unsqueeze(-1);
  return wide;
}

}  // namespace tutti::keras::layers
