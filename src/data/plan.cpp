#include "tutti/data/plan.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <ostream>

#include "data/iteration.h"
#include "data/pass_options.h"
#include "tensor/worker_peers.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/data/dataset.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::data {
namespace {

// A view would cost as much to make as this copy of a small row, and a map that writes into its
// argument would change the table for every later pass.
Tensor own_row(const Tensor& column, int64_t index) {
  if (!is_plain(column)) return column.select(0, index).clone();
  Tensor row = at::empty(column.sizes().slice(1), column.options());
  const std::size_t bytes = row.nbytes();
  if (bytes > 0) {
    std::memcpy(
        row.data_ptr(),
        static_cast<const char*>(column.const_data_ptr()) + static_cast<std::size_t>(index) * bytes,
        bytes);
  }
  return row;
}

}  // namespace

bool is_plain(const Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() &&
         !tensor.is_conj() && !tensor.is_neg();
}

Nest cloned(const Nest& element) {
  return element.map_leaves([](const Tensor& leaf) { return leaf.detach().clone(); });
}

Nest Iterator::save() const {
  throw FailedPrecondition(
      "save iterator: a pass over a source or function with a state of its own, expected a "
      "pipeline "
      "whose place can be told; take from_generator and the like out of it");
}

void Iterator::restore(const Nest& state) {
  throw FailedPrecondition(
      "restore iterator: a pass over a source or function with a state of its own, expected a "
      "pipeline whose place can be told");
}

namespace {
class IteratorState : public SharedTrackable {
 public:
  explicit IteratorState(Iterator& iterator) : iterator_(iterator) {}
  Nest state() const override { return cloned(iterator_.save()); }
  void check_state(const Nest& state) const override {}
  void set_state(const Nest& state) override { iterator_.restore(state); }
  bool differs_between_workers() const override { return true; }

 private:
  Iterator& iterator_;
};
}  // namespace

std::shared_ptr<Trackable> trackable(Iterator& iterator) {
  return std::make_shared<IteratorState>(iterator);
}

Nest RowTable::row(int64_t index) const {
  if (index >= num_rows && behind) return behind->row(index - num_rows);
  return structure.map_components([index](const Tensor& column) { return own_row(column, index); },
                                  [index](const StringTensor& column) { return column[index]; });
}

namespace {

Nest rows_of_columns(const Nest& structure, const std::vector<int64_t>& indices) {
  bool consecutive = !indices.empty();
  for (std::size_t i = 1; consecutive && i < indices.size(); ++i)
    consecutive = indices[i] == indices[i - 1] + 1;
  const auto count = static_cast<int64_t>(indices.size());
  if (consecutive) {
    return structure.map_components(
        [&](const Tensor& column) { return column.narrow(0, indices[0], count).clone(); },
        [&](const StringTensor& column) { return column.narrow(indices[0], count); });
  }
  const Tensor index = at::from_blob(const_cast<int64_t*>(indices.data()), {count}, at::kLong);
  return structure.map_components(
      [&](const Tensor& column) { return column.index_select(0, index.to(column.device())); },
      [&](const StringTensor& column) { return column.index_select(indices); });
}

}  // namespace

Nest RowTable::rows(const std::vector<int64_t>& indices) const {
  if (!behind) return rows_of_columns(structure, indices);
  std::vector<int64_t> here, there;
  for (int64_t index : indices) (index < num_rows ? here : there).push_back(index);
  for (int64_t& index : there) index -= num_rows;
  if (there.empty()) return rows_of_columns(structure, here);
  if (here.empty()) return behind->rows(there);
  // Both: the rows of each table in one read, then every row to its place.
  std::vector<int64_t> places;
  int64_t next_here = 0;
  auto next_there = static_cast<int64_t>(here.size());
  for (int64_t index : indices) places.push_back(index < num_rows ? next_here++ : next_there++);
  const bool in_place = std::is_sorted(places.begin(), places.end());
  const Nest rest = behind->rows(there);
  const auto second = flatten(rest);
  const auto second_strings = flatten_strings(rest);
  std::size_t column = 0, text = 0;
  return rows_of_columns(structure, here)
      .map_components(
          [&](const Tensor& first) {
            const Tensor joined = at::cat({first, second[column++]});
            return in_place ? joined : rows_of_columns(joined, places).leaf();
          },
          [&](const StringTensor& first) {
            const StringTensor joined = StringTensor::cat({first, second_strings[text++]});
            return in_place ? joined : joined.index_select(places);
          });
}

namespace {

class TextSpec : public NestObject {
 public:
  explicit TextSpec(std::string text) : text_(std::move(text)) {}
  std::string nest_text() const override { return text_; }
  NestObjectPtr nest_spec() const override { return std::make_shared<TextSpec>(text_); }

 private:
  std::string text_;
};

void append_tree(const Plan& plan, std::size_t depth, std::string& text) {
  if (depth > 0) text += cat("\n", std::string(2 * depth, ' '));
  text += cat(plan.name(), "(", plan.arguments(), ")");
  for (const PlanPtr& input : plan.inputs()) append_tree(*input, depth + 1, text);
}

}  // namespace

std::string Plan::nest_text() const { return cat("<dataset ", name(), ">"); }

NestObjectPtr Plan::nest_spec() const { return dataset_spec(element_spec()); }

NestObjectPtr text_spec(std::string text) { return std::make_shared<TextSpec>(std::move(text)); }

NestObjectPtr dataset_spec(const SpecNest& element_spec) {
  constexpr std::size_t kOneLine = 1 << 20;
  const auto text = layout_nest_text(
      element_spec.map_leaves([](const TensorSpec& leaf) { return leaf.to_string(); }), kOneLine);
  return text_spec(cat("DatasetSpec(", text, ", TensorShape([]))"));
}

std::string to_string(const Plan& plan) {
  std::string text;
  append_tree(plan, 0, text);
  return text;
}

std::ostream& operator<<(std::ostream& out, const Plan& plan) { return out << to_string(plan); }

SpecNest mapped_spec(const Plan& plan, const SeenSpec& seen) {
  bool rows_vary = false;
  plan.inputs()[0]->element_spec().for_each([&](const TensorSpec& leaf) {
    rows_vary = rows_vary || (!leaf.shape.empty() && leaf.shape[0] < 0);
  });
  const SpecNest spec = seen.of(plan);
  if (!rows_vary) return spec;
  return spec.map_leaves([](TensorSpec leaf) {
    if (!leaf.shape.empty()) leaf.shape[0] = -1;
    return leaf;
  });
}

void warn_of_deterministic(const char* operation, const std::optional<bool>& deterministic) {
  if (deterministic)
    log_once(LogLevel::kWarning, cat("data/deterministic/", operation),
             cat(operation, ": deterministic without num_parallel_calls does nothing"));
}

SpecNest common_spec(const char* operation, const std::vector<PlanPtr>& plans) {
  std::optional<SpecNest> common;
  for (const PlanPtr& plan : plans) {
    if (plan->cardinality() == 0) continue;
    const SpecNest spec = plan->element_spec();
    if (!common) {
      common = spec;
      continue;
    }
    const auto theirs = flatten(spec);
    const auto ours = flatten(*common);
    if (!same_structure(*common, spec) ||
        !std::equal(ours.begin(), ours.end(), theirs.begin(),
                    [](const auto& a, const auto& b) { return a.dtype == b.dtype; })) {
      throw InvalidArgument(cat(operation, ": elements ", *common, " and ", spec,
                                ", expected one structure and the same dtypes; convert one with "
                                "map first"));
    }
    std::size_t next = 0;
    common = common->map_leaves(
        [&](const TensorSpec& leaf) { return leaf.relaxed_with(theirs[next++]); });
  }
  // All are empty: as any of them.
  return common ? *common : plans[0]->element_spec();
}

SpecNest Plan::element_spec() const {
  auto first = preview()->next();
  if (!first)
    throw FailedPrecondition(
        cat("element_spec [", name(),
            "]: the dataset is empty, expected an element to tell its shape by; give "
            "from_generator a spec, or fill the source"));
  return spec_of(*first);
}

InputContext::InputContext(int num_input_pipelines, int input_pipeline_id, int num_replicas_in_sync)
    : num_input_pipelines_(num_input_pipelines),
      input_pipeline_id_(input_pipeline_id),
      num_replicas_in_sync_(num_replicas_in_sync) {
  if (num_input_pipelines < 1 || num_replicas_in_sync < 1 || input_pipeline_id < 0 ||
      input_pipeline_id >= num_input_pipelines) {
    throw InvalidArgument(cat("InputContext: pipeline ", input_pipeline_id, " of ",
                              num_input_pipelines, " for ", num_replicas_in_sync,
                              " replicas, expected positive numbers and a pipeline below their "
                              "number"));
  }
}

int64_t InputContext::get_per_replica_batch_size(int64_t global_batch_size) const {
  if (global_batch_size < 1) {
    throw InvalidArgument(
        cat("get_per_replica_batch_size: ", global_batch_size, " rows, expected at least 1"));
  }
  if (global_batch_size % num_replicas_in_sync_ != 0) {
    throw InvalidArgument(
        cat("get_per_replica_batch_size: ", global_batch_size, " rows for ", num_replicas_in_sync_,
            " replicas, expected a multiple; choose a global batch size that divides"));
  }
  return global_batch_size / num_replicas_in_sync_;
}

std::string InputContext::to_string() const {
  return cat("InputContext(input pipeline id ", input_pipeline_id_,
             ", total: ", num_input_pipelines_, ")");
}

namespace {

std::string found_text(const Tensor& value) {
  return value.defined() ? cat(dtype_name(value.scalar_type()), " ", shape_text(value.sizes()))
                         : "nothing";
}

}  // namespace

bool internal::one_bool(const char* operation, const Tensor& verdict) {
  if (!verdict.defined() || verdict.numel() != 1 || verdict.scalar_type() != at::kBool) {
    throw InvalidArgument(
        cat(operation, ": the predicate gave ", found_text(verdict), ", expected one bool"));
  }
  return verdict.item<bool>();
}

int64_t internal::one_integer(const char* operation, const Tensor& number) {
  if (!number.defined() || number.numel() != 1 ||
      !at::isIntegralType(number.scalar_type(), /*includeBool=*/true)) {
    throw InvalidArgument(
        cat(operation, ": the function gave ", found_text(number), ", expected one integer"));
  }
  return number.item<int64_t>();
}

void plans::for_each(const Plan& plan, const std::function<void(const Nest&)>& visit) {
  at::NoGradGuard no_grad;
  auto pass = plain_pass(plan);
  while (auto element = pass->next()) visit(*element);
}

Nest plans::single_element(const Plan& plan) {
  auto pass = plain_pass(plan);
  auto element = pass->next();
  if (!element) throw InvalidArgument("get_single_element: an empty dataset, expected one element");
  if (pass->next())
    throw InvalidArgument(
        "get_single_element: more than one element, expected one; use take(1), or a for");
  return std::move(*element);
}

int64_t plans::length(const Plan& plan) {
  const int64_t size = plan.cardinality();
  if (size == kInfinite)
    throw InvalidArgument("length: the dataset is infinite, expected an end; use take(n) first");
  if (size == kUnknown)
    throw InvalidArgument(
        "length: unknown before a pass, expected a dataset that can tell; count with reduce, or "
        "say it with assert_cardinality");
  return size;
}

bool plans::empty(const Plan& plan) {
  const int64_t size = plan.cardinality();
  return size == kUnknown ? !plan.preview()->next().has_value() : size == 0;
}

void plans::check_state(const char* operation, const Nest& before, const Nest& after) {
  const SpecNest was = spec_of(before);
  const SpecNest is = spec_of(after);
  const auto ours = flatten(was);
  const auto theirs = flatten(is);
  if (!same_structure(was, is) ||
      !std::equal(ours.begin(), ours.end(), theirs.begin(),
                  [](const auto& a, const auto& b) { return a.dtype == b.dtype; })) {
    throw InvalidArgument(cat(operation, ": the state became ", is, " from ", was,
                              ", expected its structure and dtypes to stay; convert it"));
  }
}

}  // namespace tutti::data
