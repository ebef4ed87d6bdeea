// The checked front: what needs no look at the server.

#include "ps/parameter_server.h"

#include <set>

#include "tutti/base/text.h"

namespace tutti::ps {
namespace {

constexpr std::size_t kLongestName = 1024;

void check_tag(const char* operation, const Tag& tag) {
  if (tag.worker.empty() || tag.worker.size() > kLongestName || tag.sequence == 0 ||
      tag.sequence > INT64_MAX || tag.incarnation > INT64_MAX) {
    throw InvalidArgument(cat(operation, ": the tag (\"", tag.worker.substr(0, 100), "\", ",
                              tag.incarnation, ", ", tag.sequence,
                              "), expected a worker's name and a sequence from 1 on"));
  }
}

void check_name(const char* operation, const std::string& name) {
  if (name.empty() || name.size() > kLongestName) {
    throw InvalidArgument(
        cat(operation, ": a name of ", name.size(), " bytes, expected 1 to ", kLongestName));
  }
}

void check_dense(const char* operation, const Tensor& value) {
  if (!value.defined() || value.layout() != at::kStrided || !value.device().is_cpu())
    throw InvalidArgument(cat(operation, ": a tensor that is not dense and on the CPU"));
}

void check_rows(const char* operation, const Tensor& rows, const Tensor* values) {
  check_dense(operation, rows);
  if (rows.scalar_type() != at::kLong || rows.dim() != 1 ||
      (values != nullptr && (values->dim() < 1 || values->size(0) != rows.numel()))) {
    throw InvalidArgument(
        cat(operation, ": rows of shape ", shape_text(rows.sizes()),
            values == nullptr ? "" : cat(" for values of shape ", shape_text(values->sizes())),
            ", expected a vector of int64, one for each of the values"));
  }
}

void check_each_once(const char* operation, const std::vector<int64_t>& variables) {
  if (std::set<int64_t>(variables.begin(), variables.end()).size() != variables.size())
    throw InvalidArgument(cat(operation, ": a variable twice, expected each once"));
}

}  // namespace

int64_t ParameterServer::create(const VariableDescription& description, const Tensor& value) {
  check_name("ps create", description.name);
  check_dense("ps create", value);
  if (TensorSpec::of(value) != description.spec) {
    throw InvalidArgument(cat("ps create [", description.name, "]: a value of ",
                              TensorSpec::of(value), ", expected ", description.spec));
  }
  return do_create(description, value);
}

std::vector<VariableInfo> ParameterServer::variables() { return do_variables(); }

ReadResult ParameterServer::read(const std::vector<int64_t>& variables) {
  return do_read(variables);
}

Tensor ParameterServer::gather(int64_t variable, const Tensor& rows) {
  check_rows("ps gather", rows, nullptr);
  return do_gather(variable, rows);
}

Applied ParameterServer::write(const Tag& tag, Write kind, const std::vector<int64_t>& variables,
                               const std::vector<Tensor>& values) {
  check_tag("ps write", tag);
  if (variables.empty() || variables.size() != values.size()) {
    throw InvalidArgument(cat("ps write: ", values.size(), " values for ", variables.size(),
                              " variables, expected one each"));
  }
  check_each_once("ps write", variables);
  for (const Tensor& value : values) check_dense("ps write", value);
  return do_write(tag, kind, variables, values);
}

Applied ParameterServer::scatter(const Tag& tag, Write kind, int64_t variable,
                                 const IndexedSlices& slices) {
  check_tag("ps scatter", tag);
  check_dense("ps scatter", slices.values);
  check_rows("ps scatter", slices.indices, &slices.values);
  return do_scatter(tag, kind, variable, slices);
}

int64_t ParameterServer::create_optimizer(const OptimizerDescription& description) {
  check_name("ps create_optimizer", description.name);
  if (description.variables.empty())
    throw InvalidArgument("ps create_optimizer: no variables, expected one at least");
  check_each_once("ps create_optimizer", description.variables);
  return do_create_optimizer(description);
}

Applied ParameterServer::push(const Tag& tag, int64_t optimizer,
                              const std::vector<Gradient>& gradients) {
  check_tag("ps push", tag);
  if (gradients.empty()) throw InvalidArgument("ps push: no gradients, expected one at least");
  std::vector<int64_t> variables;
  for (const Gradient& gradient : gradients) {
    check_dense("ps push", gradient.values);
    if (gradient.rows.defined()) check_rows("ps push", gradient.rows, &gradient.values);
    variables.push_back(gradient.variable);
  }
  check_each_once("ps push", variables);
  return do_push(tag, optimizer, gradients);
}

int64_t ParameterServer::iterations(int64_t optimizer) { return do_iterations(optimizer); }

Applied ParameterServer::set_learning_rate(const Tag& tag, int64_t optimizer, double rate) {
  check_tag("ps set_learning_rate", tag);
  return do_set_learning_rate(tag, optimizer, rate);
}

Nest ParameterServer::state() { return do_state(); }
void ParameterServer::set_state(const Nest& state) { do_set_state(state); }

}  // namespace tutti::ps
