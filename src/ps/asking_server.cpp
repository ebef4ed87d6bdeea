#include "ps/asking_server.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tutti/base/text.h"

namespace tutti::ps {
namespace {

// A request is a tuple of these parts, a reply too. What does not fit is InvalidArgument, NotFound
// or OutOfRange from the nest itself, which reaches the caller.

Nest text(const std::string& value) { return StringTensor(value); }
const std::string& text_of(const Nest& nest) { return nest.strings().item(); }

Nest numbers(const std::vector<int64_t>& values) {
  Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), tensor.data_ptr<int64_t>());
  return tensor;
}
std::vector<int64_t> numbers_of(const Nest& nest) {
  const Tensor& tensor = nest.leaf();
  if (tensor.scalar_type() != at::kLong || tensor.dim() != 1)
    throw InvalidArgument(
        cat("ps: found ", TensorSpec::of(tensor), ", expected a vector of int64"));
  const auto* data = tensor.const_data_ptr<int64_t>();
  return {data, data + tensor.numel()};
}
int64_t number_of(const Nest& nest) {
  const std::vector<int64_t> all = numbers_of(nest);
  if (all.size() != 1) throw InvalidArgument(cat("ps: ", all.size(), " numbers, expected one"));
  return all[0];
}

Nest nest_of(const Tag& tag) {
  return Nest::tuple({text(tag.worker), numbers({static_cast<int64_t>(tag.incarnation),
                                                 static_cast<int64_t>(tag.sequence)})});
}
Tag tag_of(const Nest& nest) {
  const std::vector<int64_t> all = numbers_of(nest[1]);
  if (all.size() != 2) throw InvalidArgument("ps: a tag without its two numbers");
  return {text_of(nest[0]), static_cast<uint64_t>(all[0]), static_cast<uint64_t>(all[1])};
}

Nest nest_of(const Applied& applied) {
  return numbers({applied.repeated ? 1 : 0, applied.version});
}
Applied applied_of(const Nest& nest) {
  const std::vector<int64_t> all = numbers_of(nest);
  if (all.size() != 2) throw InvalidArgument("ps: a reply without its two numbers");
  return {all[0] != 0, all[1]};
}

Write write_of(const Nest& nest) {
  const int64_t number = number_of(nest);
  if (number < 0 || number > static_cast<int64_t>(Write::kSub))
    throw InvalidArgument(cat("ps: the write ", number, ", expected assign, add or sub"));
  return static_cast<Write>(number);
}

Nest list_of(const std::vector<Tensor>& tensors) {
  return Nest::list(std::vector<Nest>(tensors.begin(), tensors.end()));
}
std::vector<Tensor> tensors_of(const Nest& nest) {
  std::vector<Tensor> tensors;
  for (const Nest& item : nest.items()) tensors.push_back(item.leaf());
  return tensors;
}

Nest nest_of(const VariableInfo& info) {
  return Nest::tuple({numbers({info.id, info.description.trainable ? 1 : 0}),
                      text(info.description.name), text(dtype_name(info.description.spec.dtype)),
                      numbers(info.description.spec.shape)});
}
VariableInfo info_of(const Nest& nest) {
  const std::vector<int64_t> all = numbers_of(nest[0]);
  if (all.size() != 2) throw InvalidArgument("ps: a variable without its two numbers");
  return {
      all[0],
      {text_of(nest[1]), {numbers_of(nest[3]), dtype_from_name(text_of(nest[2]))}, all[1] != 0}};
}

Nest nest_of(const std::vector<Gradient>& gradients) {
  std::vector<int64_t> variables;
  std::vector<Nest> parts;
  for (const Gradient& gradient : gradients) {
    variables.push_back(gradient.variable);
    parts.push_back(gradient.values);
    parts.push_back(gradient.rows.defined() ? Nest(gradient.rows) : Nest());
  }
  return Nest::tuple({numbers(variables), Nest::list(std::move(parts))});
}
std::vector<Gradient> gradients_of(const Nest& nest) {
  std::vector<Gradient> gradients;
  for (int64_t variable : numbers_of(nest[0])) {
    const std::size_t at = 2 * gradients.size();
    gradients.push_back({variable, nest[1][at].leaf()});
    const Nest& rows = nest[1][at + 1];
    if (rows.kind() != NestKind::kNone) gradients.back().rows = rows.leaf();
  }
  return gradients;
}

}  // namespace

int64_t AskingServer::do_create(const VariableDescription& description, const Tensor& value) {
  return number_of(ask("ps.create", Nest::tuple({nest_of(VariableInfo{0, description}), value})));
}

std::vector<VariableInfo> AskingServer::do_variables() {
  const Nest reply = ask("ps.variables", Nest::tuple({}));
  std::vector<VariableInfo> all;
  for (const Nest& item : reply.items()) all.push_back(info_of(item));
  return all;
}

ReadResult AskingServer::do_read(const std::vector<int64_t>& variables) {
  const Nest reply = ask("ps.read", Nest::tuple({numbers(variables)}));
  return {tensors_of(reply[0]), number_of(reply[1])};
}

Tensor AskingServer::do_gather(int64_t variable, const Tensor& rows) {
  return ask("ps.gather", Nest::tuple({numbers({variable}), rows})).leaf();
}

Applied AskingServer::do_write(const Tag& tag, Write kind, const std::vector<int64_t>& variables,
                               const std::vector<Tensor>& values) {
  return applied_of(
      ask("ps.write", Nest::tuple({nest_of(tag), numbers({static_cast<int64_t>(kind)}),
                                   numbers(variables), list_of(values)})));
}

Applied AskingServer::do_scatter(const Tag& tag, Write kind, int64_t variable,
                                 const IndexedSlices& slices) {
  return applied_of(
      ask("ps.scatter", Nest::tuple({nest_of(tag), numbers({static_cast<int64_t>(kind)}),
                                     numbers({variable}), slices.values, slices.indices})));
}

int64_t AskingServer::do_create_optimizer(const OptimizerDescription& about) {
  return number_of(ask("ps.create_optimizer",
                       Nest::tuple({text(about.name), text(about.class_name), text(about.config),
                                    numbers(about.variables), numbers(about.without_decay)})));
}

Applied AskingServer::do_push(const Tag& tag, int64_t optimizer,
                              const std::vector<Gradient>& gradients) {
  return applied_of(
      ask("ps.push", Nest::tuple({nest_of(tag), numbers({optimizer}), nest_of(gradients)})));
}

int64_t AskingServer::do_iterations(int64_t optimizer) {
  return number_of(ask("ps.iterations", Nest::tuple({numbers({optimizer})})));
}

Applied AskingServer::do_set_learning_rate(const Tag& tag, int64_t optimizer, double rate) {
  return applied_of(
      ask("ps.set_learning_rate", Nest::tuple({nest_of(tag), numbers({optimizer}),
                                               Nest(at::scalar_tensor(rate, at::kDouble))})));
}

Nest AskingServer::do_state() { return ask("ps.state", Nest::tuple({})); }
void AskingServer::do_set_state(const Nest& state) { ask("ps.set_state", Nest::tuple({state})); }

std::map<std::string, remote::Method> methods_of(ParameterServer& server) {
  using remote::CallContext;
  std::map<std::string, remote::Method> methods;
  const auto add = [&](const char* name, std::function<Nest(const Nest&)> method) {
    methods.emplace(name, [method = std::move(method)](const CallContext&, const Nest& request) {
      return method(request);
    });
  };
  ParameterServer* to = &server;
  add("ps.create", [to](const Nest& in) {
    return numbers({to->create(info_of(in[0]).description, in[1].leaf())});
  });
  add("ps.variables", [to](const Nest&) {
    std::vector<Nest> all;
    for (const VariableInfo& info : to->variables()) all.push_back(nest_of(info));
    return Nest::list(std::move(all));
  });
  add("ps.read", [to](const Nest& in) {
    ReadResult result = to->read(numbers_of(in[0]));
    return Nest::tuple({list_of(result.values), numbers({result.version})});
  });
  add("ps.gather",
      [to](const Nest& in) { return Nest(to->gather(number_of(in[0]), in[1].leaf())); });
  add("ps.write", [to](const Nest& in) {
    return nest_of(to->write(tag_of(in[0]), write_of(in[1]), numbers_of(in[2]), tensors_of(in[3])));
  });
  add("ps.scatter", [to](const Nest& in) {
    return nest_of(to->scatter(tag_of(in[0]), write_of(in[1]), number_of(in[2]),
                               {in[3].leaf(), in[4].leaf(), {}}));
  });
  add("ps.create_optimizer", [to](const Nest& in) {
    return numbers({to->create_optimizer(
        {text_of(in[0]), text_of(in[1]), text_of(in[2]), numbers_of(in[3]), numbers_of(in[4])})});
  });
  add("ps.push", [to](const Nest& in) {
    return nest_of(to->push(tag_of(in[0]), number_of(in[1]), gradients_of(in[2])));
  });
  add("ps.iterations",
      [to](const Nest& in) { return numbers({to->iterations(number_of(in[0]))}); });
  add("ps.set_learning_rate", [to](const Nest& in) {
    const Tensor& rate = in[2].leaf();
    if (rate.numel() != 1 || rate.scalar_type() != at::kDouble)
      throw InvalidArgument("ps: a learning rate that is no float64 scalar");
    return nest_of(to->set_learning_rate(tag_of(in[0]), number_of(in[1]), rate.item<double>()));
  });
  add("ps.state", [to](const Nest&) { return to->state(); });
  add("ps.set_state", [to](const Nest& in) {
    to->set_state(in[0]);
    return Nest();
  });
  return methods;
}

bool has_changed(const std::string& method, const Nest& reply) {
  if (method == "ps.create" || method == "ps.create_optimizer" || method == "ps.set_state")
    return true;
  const bool tagged = method == "ps.write" || method == "ps.scatter" || method == "ps.push" ||
                      method == "ps.set_learning_rate";
  return tagged && !applied_of(reply).repeated;
}

}  // namespace tutti::ps
