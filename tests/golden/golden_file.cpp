#include "golden/golden_file.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <stdexcept>

#include "tutti/base/text.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::golden {
namespace {

double number(const Json& json) {
  if (json.is_string()) {
    const std::string text = json.get<std::string>();
    if (text == "NaN") return std::nan("");
    if (text == "Infinity") return std::numeric_limits<double>::infinity();
    if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
    throw std::runtime_error(cat("a number was expected, not \"", text, "\""));
  }
  return json.is_boolean() ? (json.get<bool>() ? 1 : 0) : json.get<double>();
}

}  // namespace

GoldenFile::GoldenFile(const std::string& path)
    : name_(path.substr(path.rfind('/') + 1)), folder_(path.substr(0, path.rfind('/') + 1)) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(cat(path, ": cannot be opened"));
  json_ = Json::parse(file);
  if (!json_.contains("cases"))
    throw std::runtime_error(cat(path, ": has no \"cases\", so it is no golden file"));
}

const Json& GoldenFile::resolve(const Json& json) const {
  if (json.is_object() && json.contains("ref"))
    return json_.at("tensors").at(json.at("ref").get<std::string>());
  return json;
}

at::Tensor GoldenFile::tensor(const Json& json) const {
  const Json& value = resolve(json);
  const auto shape = value.at("shape").get<std::vector<int64_t>>();
  const at::ScalarType dtype = dtype_from_name(value.at("dtype").get<std::string>());
  const Json& data = value.at("data");
  if (at::isIntegralType(dtype, /*includeBool=*/false)) {
    return at::tensor(data.get<std::vector<int64_t>>(), at::kLong).reshape(shape).to(dtype);
  }
  std::vector<double> numbers;
  for (const Json& item : data) numbers.push_back(number(item));
  return at::tensor(numbers, at::kDouble).reshape(shape).to(dtype);
}

std::vector<at::Tensor> GoldenFile::tensors(const Json& list) const {
  std::vector<at::Tensor> all;
  for (const Json& item : resolve(list)) all.push_back(tensor(item));
  return all;
}

bool Verdict::near(double found, double expected) const {
  if (std::isnan(found) || std::isnan(expected)) return std::isnan(found) && std::isnan(expected);
  if (std::isinf(expected)) return found == expected;
  return std::abs(found - expected) <= 1e-6 + relative_ * std::abs(expected);
}

void Verdict::close(const std::string& what, double found, const Json& expected) {
  if (!near(found, number(expected))) fail(cat(what, ": ", found, ", expected ", number(expected)));
}

void Verdict::close(const std::string& what, const at::Tensor& found, const at::Tensor& expected) {
  if (found.sizes() != expected.sizes())
    return fail(cat(what, ": shape ", shape_text(found.sizes()), ", expected ",
                    shape_text(expected.sizes())));
  const at::Tensor a = found.detach().to(at::kDouble).contiguous();
  const at::Tensor b = expected.to(at::kDouble).contiguous();
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double x = a.const_data_ptr<double>()[i];
    const double y = b.const_data_ptr<double>()[i];
    if (!near(x, y)) return fail(cat(what, ": entry ", i, " is ", x, ", expected ", y));
  }
}

void Verdict::equal(const std::string& what, int64_t found, int64_t expected) {
  if (found != expected) fail(cat(what, ": ", found, ", expected ", expected));
}

Differences::Differences(const std::string& path) {
  std::ifstream stream(path);
  if (!stream) throw std::runtime_error("cannot read " + path);
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind("| `", 0) != 0) continue;
    const auto end = line.find('`', 3);
    if (end != std::string::npos && line.find(".json: ") < end)
      patterns_.push_back(line.substr(3, end - 3));
  }
}

namespace {
bool matches(const char* pattern, const char* text) {
  if (*pattern == 0) return *text == 0;
  if (*pattern == '*')
    return matches(pattern + 1, text) || (*text != 0 && matches(pattern, text + 1));
  return *pattern == *text && matches(pattern + 1, text + 1);
}
}  // namespace

bool Differences::names(const std::string& file, const std::string& name) const {
  const std::string full = file + ": " + name;
  for (const std::string& pattern : patterns_) {
    if (matches(pattern.c_str(), full.c_str())) return true;
  }
  return false;
}

}  // namespace tutti::golden
