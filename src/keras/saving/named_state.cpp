#include "keras/saving/named_state.h"

#include <algorithm>
#include <set>

#include "distribute/variable_checkpoint.h"
#include "tutti/base/text.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::keras {

std::string shortened(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 5;
  if (names.size() <= kShown + 1) return join(names, ", ");
  const std::vector<std::string> shown(names.begin(), names.begin() + kShown);
  return cat(join(shown, ", "), " and ", names.size() - kShown, " more");
}

std::vector<std::string> unique_names(std::vector<std::string> names) {
  std::set<std::string> used;
  for (std::string& name : names) {
    const std::string first = name;
    for (int number = 2; !used.insert(name).second; ++number) name = cat(first, "#", number);
  }
  return names;
}

std::vector<std::string> names_of(const std::vector<Variable>& variables) {
  std::vector<std::string> names;
  for (const Variable& variable : variables) names.push_back(variable.name());
  return unique_names(std::move(names));
}

Nest names_nest(const std::vector<std::string>& names) {
  return Nest(StringTensor(names, {static_cast<int64_t>(names.size())}));
}

const Nest* entry_of(const Nest& state, const std::string& key) {
  for (std::size_t i = 0; i < state.keys().size(); ++i) {
    if (state.keys()[i] == key) return &state.items()[i];
  }
  return nullptr;
}

const Nest& required_entry(const Nest& state, const std::string& key) {
  const Nest* found = entry_of(state, key);
  if (found == nullptr)
    throw InvalidArgument(cat("state: ", state.structure(), " without \"", key,
                              "\", expected the state of an object of this kind"));
  return *found;
}

namespace {
const Tensor& scalar_in(const Nest& state, const std::string& key, at::ScalarType dtype) {
  const Nest& entry = required_entry(state, key);
  if (!entry.is_leaf() || entry.leaf().numel() != 1 || entry.leaf().scalar_type() != dtype)
    throw InvalidArgument(
        cat("state [", key, "]: found ", entry.structure(), ", expected one ", dtype_name(dtype)));
  return entry.leaf();
}
}  // namespace

int64_t integer_in(const Nest& state, const std::string& key) {
  return scalar_in(state, key, at::kLong).item<int64_t>();
}
double number_in(const Nest& state, const std::string& key) {
  return scalar_in(state, key, at::kDouble).item<double>();
}

std::vector<std::string> names_in(const Nest& state, const std::string& key) {
  const Nest& entry = required_entry(state, key);
  if (!entry.is_strings())
    throw InvalidArgument(
        cat("state [", key, "]: found ", entry.structure(), ", expected the names of variables"));
  const auto names = entry.strings().values();
  return {names.begin(), names.end()};
}

Nest values_nest(const std::vector<std::string>& names, const std::vector<Variable>& variables) {
  std::map<std::string, Nest> values;
  for (std::size_t i = 0; i < names.size(); ++i)
    values.emplace(names[i], Nest(tutti::internal::saved_value(variables[i])));
  return Nest::map(std::move(values));
}

std::vector<std::string> places_in_file(const std::vector<std::string>& own,
                                        const std::vector<std::string>& in_file) {
  if (std::set(own.begin(), own.end()) == std::set(in_file.begin(), in_file.end())) return own;
  if (own.size() != in_file.size())
    throw InvalidArgument(cat("state: ", in_file.size(), " variables (", shortened(in_file),
                              "), expected ", own.size(), " (", shortened(own), ")"));
  return in_file;
}

std::vector<Tensor> values_for(const std::vector<Variable>& variables,
                               const std::vector<std::string>& names, const Nest& values) {
  std::map<std::string, const Nest*> by_name;
  for (std::size_t i = 0; i < values.keys().size(); ++i)
    by_name.emplace(values.keys()[i], &values.items()[i]);
  std::vector<Tensor> found;
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const auto at = by_name.find(names[i]);
    if (at == by_name.end() || !at->second->is_leaf())
      throw InvalidArgument(cat("state: no tensor \"", names[i],
                                "\", expected one for the variable ", variables[i].name()));
    const Tensor& value = at->second->leaf();
    if (value.sizes() != variables[i].sizes() || value.scalar_type() != variables[i].dtype()) {
      throw InvalidArgument(
          cat("state [", names[i], "]: ", dtype_name(value.scalar_type()), " ",
              shape_text(value.sizes()), ", expected ", dtype_name(variables[i].dtype()), " ",
              shape_text(variables[i].sizes()), " for the variable ", variables[i].name()));
    }
    found.push_back(value);
  }
  return found;
}

void restore(const std::vector<Variable>& variables, const std::vector<Tensor>& values) {
  for (std::size_t i = 0; i < variables.size(); ++i)
    tutti::internal::restore_value(variables[i], values[i]);
}

}  // namespace tutti::keras
