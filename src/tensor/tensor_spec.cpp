#include "tutti/tensor/tensor_spec.h"

#include <array>
#include <ostream>

namespace tutti {
namespace {

struct DtypeName {
  at::ScalarType dtype;
  const char* name;
};
constexpr std::array<DtypeName, 16> kDtypes{{{at::kFloat, "float32"},
                                             {at::kDouble, "float64"},
                                             {at::kHalf, "float16"},
                                             {at::kBFloat16, "bfloat16"},
                                             {at::kByte, "uint8"},
                                             {at::kChar, "int8"},
                                             {at::kShort, "int16"},
                                             {at::kInt, "int32"},
                                             {at::kLong, "int64"},
                                             {at::kUInt16, "uint16"},
                                             {at::kUInt32, "uint32"},
                                             {at::kUInt64, "uint64"},
                                             {at::kBool, "bool"},
                                             {at::kComplexFloat, "complex64"},
                                             {at::kComplexDouble, "complex128"},
                                             {kString, "string"}}};

const char* opening(const NestOf<std::string>& nest) {
  return nest.kind() == NestKind::kTuple ? "(" : nest.kind() == NestKind::kList ? "[" : "{";
}

const char* closing(const NestOf<std::string>& nest) {
  if (nest.kind() == NestKind::kTuple) return nest.size() == 1 ? ",)" : ")";
  return nest.kind() == NestKind::kList ? "]" : "}";
}

/// The text of a map's key, nothing for an item of a tuple or list.
std::string key_text(const NestOf<std::string>& nest, std::size_t item) {
  return nest.kind() == NestKind::kMap ? cat("'", nest.keys()[item], "': ") : "";
}

std::string one_line(const NestOf<std::string>& nest) {
  if (nest.kind() == NestKind::kNone) return "None";
  if (nest.is_leaf()) return nest.leaf();
  if (nest.kind() == NestKind::kObject) return nest.object()->nest_text();
  std::string text = opening(nest);
  for (std::size_t i = 0; i < nest.size(); ++i) {
    if (i) text += ", ";
    text += key_text(nest, i) + one_line(nest.items()[i]);
  }
  return text + closing(nest);
}

/// A leaf's text may itself have several lines; they are moved right with it.
std::string indented(const std::string& text, std::size_t columns) {
  std::string moved;
  for (char c : text) {
    moved += c;
    if (c == '\n') moved.append(columns, ' ');
  }
  return moved;
}

/// `after` characters (commas, closing brackets of outer nests) will stand behind the last line.
std::string layout(const NestOf<std::string>& nest, std::size_t columns, std::size_t after) {
  const std::string line = one_line(nest);
  const bool fits = line.size() + after <= columns && line.find('\n') == std::string::npos;
  if (nest.size() == 0 || fits) return line;
  const std::string end = closing(nest);
  std::string text = opening(nest);
  for (std::size_t i = 0; i < nest.size(); ++i) {
    if (i) text += ",\n ";
    const std::string key = key_text(nest, i);
    const std::size_t indent = 1 + key.size();
    const std::size_t behind = i + 1 < nest.size() ? 1 : end.size() + after;
    const std::size_t room = columns - std::min(columns, indent);
    text += key + indented(layout(nest.items()[i], room, behind), indent);
  }
  return text + end;
}

}  // namespace

std::string dtype_name(at::ScalarType dtype) {
  for (const DtypeName& known : kDtypes) {
    if (known.dtype == dtype) return known.name;
  }
  return c10::toString(dtype);
}

at::ScalarType dtype_from_name(const std::string& name) {
  std::vector<std::string> names;
  for (const DtypeName& known : kDtypes) {
    if (known.name == name) return known.dtype;
    names.push_back(known.name);
  }
  throw InvalidArgument(cat("dtype: \"", name, "\", expected one of ", join(names, ", ")));
}

TensorSpec TensorSpec::of(const Tensor& tensor) {
  if (!tensor.defined()) {
    throw InvalidArgument("TensorSpec::of: an undefined tensor, expected one with values");
  }
  return {tensor.sizes().vec(), tensor.scalar_type(), false};
}

TensorSpec TensorSpec::of(const StringTensor& strings) { return {strings.sizes(), kString, false}; }

std::string TensorSpec::to_string() const {
  return cat("TensorSpec(shape=", unknown_rank ? "<unknown>" : shape_text(shape),
             ", dtype=", dtype_name(dtype), ")");
}

bool TensorSpec::accepts(const TensorSpec& other) const {
  if (dtype != other.dtype) return false;
  if (unknown_rank) return true;
  if (other.unknown_rank || shape.size() != other.shape.size()) return false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] >= 0 && shape[i] != other.shape[i]) return false;
  }
  return true;
}

TensorSpec TensorSpec::relaxed_with(const TensorSpec& other) const {
  if (dtype != other.dtype) {
    throw InvalidArgument(cat("TensorSpec: dtypes ", dtype_name(dtype), " and ",
                              dtype_name(other.dtype), ", expected one; convert first"));
  }
  if (unknown_rank || other.unknown_rank || shape.size() != other.shape.size())
    return {{}, dtype, true};
  TensorSpec relaxed = *this;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != other.shape[i]) relaxed.shape[i] = -1;
  }
  return relaxed;
}

bool TensorSpec::is_static() const {
  if (unknown_rank) return false;
  for (int64_t size : shape) {
    if (size < 0) return false;
  }
  return true;
}

std::ostream& operator<<(std::ostream& out, const TensorSpec& spec) {
  return out << spec.to_string();
}

SpecNest spec_of(const Nest& nest) {
  return nest.map_parts<SpecNest>([](const Nest& part) -> SpecNest {
    if (part.is_leaf()) return TensorSpec::of(part.leaf());
    if (part.is_strings()) return TensorSpec::of(part.strings());
    return part.kind() == NestKind::kNone ? SpecNest() : SpecNest(part.object()->nest_spec());
  });
}

std::ostream& operator<<(std::ostream& out, const SpecNest& spec) {
  return out << layout_nest_text(
             spec.map_leaves([](const TensorSpec& leaf) { return leaf.to_string(); }));
}

std::string layout_nest_text(const NestOf<std::string>& nest, std::size_t columns) {
  return layout(nest, columns, 0);
}

}  // namespace tutti
