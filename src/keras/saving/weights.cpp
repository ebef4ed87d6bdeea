// save_weights and load_weights.

#include <algorithm>
#include <map>

#include "distribute/variable_checkpoint.h"
#include "keras/json.h"
#include "keras/saving/named_state.h"
#include "keras/saving/shared_files.h"
#include "keras/saving/weights_file.h"
#include "tutti/base/log.h"
#include "tutti/keras/torch_model.h"

namespace tutti::keras {

void check_outside_replicas(const char* operation, const std::string& path) {
  const distribute::ReplicaContext* replica = distribute::get_replica_context();
  if (replica == nullptr || replica->strategy().is_default()) return;
  throw FailedPrecondition(cat(operation, " [", path, "]: called inside replica ",
                               replica->replica_id_in_sync_group(),
                               ", expected outside; call it between two runs, once for all"));
}

void warn_of_own_statistics(const Model& model, const Variable& weight) {
  if (weight.aggregation() != VariableAggregation::kOnlyFirstReplica) return;
  const std::vector<Tensor> components = weight.components();
  for (const Tensor& component : components) {
    if (at::equal(component.cpu(), components[0].cpu())) continue;
    log_once(LogLevel::kWarning, cat("keras/save/", model.name()),
             cat("save [", model.name(), "]: ", weight.name(),
                 " differs between replicas, and the file has the first one's, while evaluate and "
                 "predict use each replica's own; for numbers that agree with the file call "
                 "model.set_weights(model.get_weights()) first, or make the layer with "
                 "synchronized = true"));
    return;
  }
}

void put_weights(const Model& model, io::TensorFile& file) {
  for (const Variable& weight : model.weights()) {
    warn_of_own_statistics(model, weight);
    file.tensors.emplace_back(cat("weights/", weight.name()), tutti::internal::saved_value(weight));
  }
}

std::vector<const Tensor*> tensors_under(const io::TensorFile& file, const std::string& prefix) {
  std::vector<const Tensor*> found;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.rfind(prefix, 0) == 0) found.push_back(&tensor);
  }
  return found;
}

std::size_t count_tensors(const io::TensorFile& file, const std::string& prefix) {
  std::size_t count = 0;
  for (const auto& [name, tensor] : file.tensors) count += name.rfind(prefix, 0) == 0 ? 1 : 0;
  return count;
}

void take_weights(Model& model, const io::TensorFile& file, const std::string& path) {
  const std::size_t count = count_tensors(file, "weights/");
  if (count != model.weights().size()) {
    throw InvalidArgument(cat("load_weights [", path, "]: ", count, " weights for a model with ",
                              model.weights().size(),
                              ", expected the same architecture; nothing was changed"));
  }
  std::vector<Tensor> values;
  for (const Tensor* value : tensors_under(file, "weights/")) values.push_back(*value);
  model.set_weights(values);
}

namespace {

constexpr char kPrefix[] = "weights/";

/// PyTorch separates by ".", Keras by "/".
std::string plain(std::string name) {
  std::replace(name.begin(), name.end(), '.', '/');
  return name;
}

/// The tensors for the weights, undefined where there is none that fits, and what does not fit.
struct Match {
  std::vector<Tensor> values;
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  std::vector<std::string> shapes;

  bool complete() const { return missing.empty() && unexpected.empty() && shapes.empty(); }
  std::string text() const {
    std::vector<std::string> parts;
    const auto add = [&](const char* what, const std::vector<std::string>& names) {
      if (!names.empty()) parts.push_back(cat(what, shortened(names)));
    };
    add("missing in the file: ", missing);
    add("in the file only: ", unexpected);
    add("of other shapes: ", shapes);
    return join(parts, "; ");
  }
  void add(const std::string& name, const Variable& weight, const Tensor& value) {
    if (value.sizes() == weight.sizes()) {
      values.push_back(value);
      return;
    }
    values.emplace_back();
    shapes.push_back(
        cat(name, " ", shape_text(value.sizes()), " for ", shape_text(weight.sizes())));
  }
};

Match match_by_place(const internal::NamedVariables& own, const io::TensorFile& file) {
  Match match;
  const std::vector<const Tensor*> values = tensors_under(file, kPrefix);
  for (std::size_t i = 0; i < own.size(); ++i)
    match.add(own[i].first, own[i].second, *values.at(i));
  return match;
}

Match match_by_name(const internal::NamedVariables& own, const io::TensorFile& file) {
  const bool prefixed = count_tensors(file, kPrefix) > 0;
  std::map<std::string, std::pair<std::string, const Tensor*>> in_file;
  for (const auto& [name, tensor] : file.tensors) {
    if (prefixed && name.rfind(kPrefix, 0) != 0) continue;
    const std::string bare = prefixed ? name.substr(sizeof(kPrefix) - 1) : name;
    in_file.emplace(plain(bare), std::pair(bare, &tensor));
  }
  std::vector<std::string> names;
  for (const auto& [name, weight] : own) names.push_back(plain(name));
  names = unique_names(std::move(names));
  Match match;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto found = in_file.find(names[i]);
    if (found == in_file.end()) {
      match.missing.push_back(own[i].first);
      match.values.emplace_back();
      continue;
    }
    match.add(own[i].first, own[i].second, *found->second.second);
    in_file.erase(found);
  }
  for (const auto& [name, entry] : in_file) match.unexpected.push_back(entry.first);
  return match;
}

}  // namespace

namespace internal {

void load_named_weights(const NamedVariables& own, const std::string& path,
                        const LoadWeightsOptions& options) {
  check_outside_replicas("load_weights", path);
  const io::TensorFile file = own.empty()
                                  ? io::read_tensor_file(path)
                                  : read_together(own[0].second.strategy(), "load_weights", path);
  const std::size_t count = count_tensors(file, kPrefix);
  // Files of other programs have no description.
  bool by_place = !options.by_name && !file.metadata.empty() && count > 0;
  if (by_place && count != own.size()) {
    if (!options.skip_mismatch)
      throw InvalidArgument(cat("load_weights [", path, "]: ", count, " weights for a model with ",
                                own.size(),
                                ", expected the same architecture; nothing was changed"));
    by_place = false;
  }
  const Match match = by_place ? match_by_place(own, file) : match_by_name(own, file);
  if (!match.complete()) {
    if (!options.skip_mismatch)
      throw InvalidArgument(cat("load_weights [", path, "]: ", match.text(),
                                ", expected the weights of the model; nothing was changed"));
    log_warning("load_weights [", path, "]: passed over, as skip_mismatch says: ", match.text());
  }
  for (std::size_t i = 0; i < own.size(); ++i) {
    const Variable& weight = own[i].second;
    if (match.values[i].defined())
      tutti::internal::restore_value(weight, match.values[i].to(weight.dtype()));
  }
}

void save_named_weights(const NamedVariables& own, const std::string& path) {
  check_outside_replicas("save_weights", path);
  const auto collect = [&] {
    io::TensorFile file;
    for (const auto& [name, weight] : own)
      file.tensors.emplace_back(name, tutti::internal::saved_value(weight));
    return file;
  };
  if (own.empty()) return io::write_tensor_file(path, collect());
  save_together(own[0].second.strategy(), "save_weights", path, collect);
}

}  // namespace internal

void save_weights_file(const Model& model, const std::string& path, bool make_folder) {
  check_outside_replicas("save_weights", path);
  const auto collect = [&] {
    io::TensorFile file{Json{{"format", kModelFormat}, {"kind", "weights"}}.dump(), {}};
    put_weights(model, file);
    return file;
  };
  save_together(model.strategy(), "save_weights", path, collect, make_folder);
}

void Model::save_weights(const std::string& path) const {
  save_weights_file(*this, path, /*make_folder=*/false);
}

void Model::load_weights(const std::string& path, const LoadWeightsOptions& options) {
  check_outside_replicas("load_weights", path);
  internal::load_named_weights(named_variables(), path, options);
}
}  // namespace tutti::keras
