// CsvDataset and make_csv_dataset.

#include <ATen/ATen.h>
#include <glob.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <set>

#include "data/file_records.h"
#include "data/iteration.h"
#include "io/csv_reader.h"
#include "tutti/data/readers.h"

namespace tutti::data {
namespace {

std::string name_of(at::ScalarType dtype) {
  return dtype == kString ? "string" : dtype_name(dtype);
}

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

/// The whole field as a number, blanks around it aside.
template <class Number>
std::optional<Number> number_in(std::string_view text) {
  text = trimmed(text);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  Number value{};
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ptr != end || text.empty() || result.ec == std::errc::invalid_argument)
    return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) {
    if constexpr (std::is_floating_point_v<Number>) {
      // Too large or too small: infinity or zero, or what is next to it.
      return static_cast<Number>(std::strtod(std::string(text).c_str(), nullptr));
    } else {
      return std::nullopt;
    }
  }
  return value;
}

/// Which columns of a file are wanted, and what is in them.
struct CsvLayout {
  io::CsvFormat format;
  std::vector<CsvColumn> columns;
  std::optional<std::vector<int64_t>> selected;
  std::string na_value;
  bool header = false;
  bool has_several() const {
    return selected ? selected->size() > 1 || selected->front() > 0 : columns.size() > 1;
  }
};

template <class Number>
Nest scalar_of(const std::optional<Number>& value, at::ScalarType dtype) {
  Tensor scalar = at::empty({}, at::TensorOptions().dtype(dtype));
  *scalar.data_ptr<Number>() = *value;
  return scalar;
}

class CsvFile : public RecordFile {
 public:
  CsvFile(const std::string& path, std::shared_ptr<const CsvLayout> layout)
      : layout_(std::move(layout)), reader_(path, layout_->format) {}

  std::optional<Nest> next() override {
    if (!started_ && layout_->header) {
      started_ = true;
      reader_.next(fields_);
    }
    started_ = true;
    do {
      if (!reader_.next(fields_)) return std::nullopt;
    } while (fields_.size() == 1 && fields_[0].empty() && layout_->has_several());
    return element();
  }
  int64_t offset() const override { return reader_.offset(); }
  void seek(int64_t offset) override {
    reader_.seek(offset);
    started_ = offset != 0;
  }

 private:
  Nest element() const {
    const std::size_t wanted = layout_->columns.size();
    if (!layout_->selected && fields_.size() != wanted)
      refuse(cat(fields_.size(), " fields, expected ", wanted));
    std::vector<Nest> items;
    items.reserve(wanted);
    for (std::size_t i = 0; i < wanted; ++i) {
      const std::size_t field =
          layout_->selected ? static_cast<std::size_t>((*layout_->selected)[i]) : i;
      if (field >= fields_.size())
        refuse(cat(fields_.size(), " fields, expected more than ", field));
      items.push_back(item(layout_->columns[i], field));
    }
    return Nest::tuple(std::move(items));
  }

  Nest item(const CsvColumn& column, std::size_t field) const {
    const std::string_view text = fields_[field];
    const bool is_missing = text.empty() || text == layout_->na_value;
    if (is_missing && !column.default_value()) {
      refuse(cat("field ", field, " is required but missing, expected ", name_of(column.dtype()),
                 "; give its column a default value"));
    }
    if (column.dtype() == kString)
      return StringTensor(is_missing ? std::get<std::string>(*column.default_value())
                                     : std::string(text));
    switch (column.dtype()) {
      case at::kInt:
        return number<int32_t, int64_t>(column, field, is_missing);
      case at::kLong:
        return number<int64_t, int64_t>(column, field, is_missing);
      case at::kFloat:
        return number<float, double>(column, field, is_missing);
      default:
        return number<double, double>(column, field, is_missing);
    }
  }
  template <class Number, class Kept>
  Nest number(const CsvColumn& column, std::size_t field, bool is_missing) const {
    std::optional<Number> value;
    if (is_missing) {
      value = static_cast<Number>(std::get<Kept>(*column.default_value()));
    } else {
      value = number_in<Number>(fields_[field]);
    }
    if (!value)
      refuse(cat("field ", field, " is \"", std::string(fields_[field].substr(0, 64)),
                 "\", expected a valid ", name_of(column.dtype())));
    return scalar_of(value, column.dtype());
  }
  [[noreturn]] void refuse(const std::string& found_expected) const {
    throw InvalidArgument(cat("CsvDataset [", reader_.path(), ", record at byte ",
                              reader_.record_offset(), "]: ", found_expected));
  }

  std::shared_ptr<const CsvLayout> layout_;
  io::CsvReader reader_;
  std::vector<std::string_view> fields_;
  bool started_ = false;
};

io::CsvFormat format_of(const char* operation, const CsvDatasetOptions& options) {
  const char delim = options.field_delim;
  if (delim == '"' || delim == '\n' || delim == '\r')
    throw InvalidArgument(
        cat(operation, ": field_delim is a quote or an end of line, expected another character"));
  return {.field_delim = delim,
          .use_quote_delim = options.use_quote_delim,
          .compression = io::compression_from_name(operation, options.compression_type),
          .buffer_size = options.buffer_size};
}

void check_layout(const CsvLayout& layout) {
  if (layout.columns.empty())
    throw InvalidArgument("CsvDataset: no record_defaults, expected one a column");
  for (const CsvColumn& column : layout.columns) {
    const at::ScalarType dtype = column.dtype();
    if (dtype != kString && dtype != at::kInt && dtype != at::kLong && dtype != at::kFloat &&
        dtype != at::kDouble) {
      throw InvalidArgument(cat("CsvDataset: a column of ", name_of(dtype),
                                ", expected float32, float64, int32, int64 or string"));
    }
  }
  if (!layout.selected) return;
  const std::vector<int64_t>& selected = *layout.selected;
  const bool rising = std::adjacent_find(selected.begin(), selected.end(),
                                         std::greater_equal<>()) == selected.end();
  if (selected.size() != layout.columns.size() || !rising || selected.front() < 0) {
    throw InvalidArgument(cat("CsvDataset: select_cols ", join(selected, ", "), " for ",
                              layout.columns.size(),
                              " record_defaults, expected as many rising numbers from 0 on"));
  }
}

TensorSpec scalar_spec(const CsvColumn& column) { return {{}, column.dtype()}; }

PlanPtr csv_records(std::vector<std::string> files, CsvLayout layout, int64_t parallel_reads) {
  check_layout(layout);
  std::vector<SpecNest> specs;
  for (const CsvColumn& column : layout.columns) {
    specs.push_back(column.dtype() == kString ? spec_of(Nest(StringTensor()))
                                              : SpecNest(scalar_spec(column)));
  }
  auto shared = std::make_shared<const CsvLayout>(std::move(layout));
  return read_files(std::move(files),
                    {.name = "CsvDataset",
                     .open = [shared](const std::string& path) -> std::unique_ptr<RecordFile> {
                       return std::make_unique<CsvFile>(path, shared);
                     },
                     .element_spec = SpecNest::tuple(std::move(specs)),
                     .num_parallel_reads = parallel_reads});
}

PlanPtr csv_records(std::vector<std::string> files, std::vector<CsvColumn> columns,
                    const CsvDatasetOptions& options) {
  return csv_records(std::move(files),
                     {.format = format_of("CsvDataset", options),
                      .columns = std::move(columns),
                      .selected = options.select_cols,
                      .na_value = options.na_value,
                      .header = options.header},
                     1);
}

// --- make_csv_dataset --------------------------------------------------------------------------

using experimental::MakeCsvDatasetOptions;

/// Tuples of scalars to batches of named columns.
class ColumnBatchesPlan : public PassPlan {
 public:
  struct Columns {
    std::vector<std::string> names;
    std::optional<std::size_t> label;
  };
  ColumnBatchesPlan(PlanPtr input, int64_t size, bool drop_remainder, Columns columns)
      : PassPlan(std::move(input)),
        size_(size),
        drop_remainder_(drop_remainder),
        columns_(std::move(columns)) {}
  std::string name() const override { return "make_csv_dataset"; }
  int64_t cardinality() const override {
    return input().cardinality() == kInfinite ? kInfinite : kUnknown;
  }
  std::optional<int64_t> batch_size() const override { return size_; }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<ColumnBatchesPlan>(std::move(inputs[0]), size_, drop_remainder_,
                                               columns_);
  }
  SpecNest element_spec() const override {
    const int64_t rows = drop_remainder_ ? size_ : -1;
    std::vector<SpecNest> specs;
    const SpecNest scalars = input().element_spec();
    for (const SpecNest& scalar : scalars.items()) {
      if (!scalar.is_leaf()) {
        specs.push_back(scalar);
      } else {
        specs.emplace_back(TensorSpec{{rows}, scalar.leaf().dtype});
      }
    }
    return named(columns_, std::move(specs));
  }

  template <class Leaf>
  static NestOf<Leaf> named(const Columns& columns, std::vector<NestOf<Leaf>> values) {
    std::map<std::string, NestOf<Leaf>> features;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i != columns.label) features.emplace(columns.names[i], std::move(values[i]));
    }
    auto all = NestOf<Leaf>::map(std::move(features));
    if (!columns.label) return all;
    return NestOf<Leaf>::tuple({std::move(all), std::move(values[*columns.label])});
  }

 private:
  std::unique_ptr<Iterator> over(std::unique_ptr<Iterator> pass) const override {
    return std::make_unique<Pass>(std::move(pass), size_, drop_remainder_, columns_);
  }
  struct Pass : Iterator {
    Pass(std::unique_ptr<Iterator> input, int64_t size, bool drop, Columns columns)
        : input(std::move(input)), size(size), drop(drop), columns(std::move(columns)) {}
    std::optional<Nest> next() override {
      std::vector<Nest> rows;
      while (static_cast<int64_t>(rows.size()) < size) {
        auto row = input->next();
        if (!row) break;
        rows.push_back(std::move(*row));
      }
      if (rows.empty() || (drop && static_cast<int64_t>(rows.size()) < size)) return std::nullopt;
      std::vector<Nest> values;
      for (std::size_t i = 0; i < columns.names.size(); ++i) values.push_back(column(rows, i));
      return named(columns, std::move(values));
    }
    static Nest column(const std::vector<Nest>& rows, std::size_t i) {
      if (rows[0].items()[i].is_strings()) {
        std::vector<std::string> strings;
        for (const Nest& row : rows) strings.push_back(row.items()[i].strings().item());
        return StringTensor(std::move(strings));
      }
      std::vector<Tensor> scalars;
      for (const Nest& row : rows) scalars.push_back(row.items()[i].leaf());
      return at::stack(scalars);
    }
    Nest save() const override { return input->save(); }
    void restore(const Nest& state) override { input->restore(state); }
    std::unique_ptr<Iterator> input;
    int64_t size;
    bool drop;
    Columns columns;
  };
  int64_t size_;
  bool drop_remainder_;
  Columns columns_;
};

using Fields = std::vector<std::string>;

/// The first `count` records of a file.
std::vector<Fields> head_of(const std::string& file, const io::CsvFormat& format, int64_t count) {
  io::CsvReader reader(file, format);
  std::vector<std::string_view> fields;
  std::vector<Fields> records;
  while (static_cast<int64_t>(records.size()) < count && reader.next(fields))
    records.emplace_back(fields.begin(), fields.end());
  return records;
}

Fields column_names(const std::vector<std::string>& files, const io::CsvFormat& format,
                    const MakeCsvDatasetOptions& options) {
  if (options.column_names) return *options.column_names;
  if (!options.header) {
    throw InvalidArgument(
        "make_csv_dataset: neither column_names nor a header, expected one of them");
  }
  Fields names;
  for (const std::string& file : files) {
    const std::vector<Fields> head = head_of(file, format, 1);
    if (head.empty())
      throw InvalidArgument(cat("make_csv_dataset [", file, "]: empty, expected a header"));
    if (names.empty()) names = head[0];
    if (names != head[0]) {
      throw InvalidArgument(cat("make_csv_dataset [", file, "]: the header ", join(head[0], ", "),
                                ", expected ", join(names, ", "), " as in ", files[0]));
    }
  }
  return names;
}

/// The first of int32, int64, float32, float64, string (0 to 4), from `known` on, that holds it.
int type_of(const std::string& text, int known) {
  const auto is_float32 = [&] {
    const auto value = number_in<double>(text);
    return value && (!std::isfinite(*value) || std::abs(*value) <= 3.4028234663852886e38);
  };
  if (known <= 0 && number_in<int32_t>(text)) return 0;
  if (known <= 1 && number_in<int64_t>(text)) return 1;
  if (known <= 2 && is_float32()) return 2;
  return known <= 3 && number_in<double>(text) ? 3 : 4;
}

std::vector<CsvColumn> inferred(const std::vector<std::string>& files, const io::CsvFormat& format,
                                const MakeCsvDatasetOptions& options,
                                const std::vector<int64_t>& selected, std::size_t num_columns) {
  std::vector<int> types(selected.size(), -1);
  int64_t left = options.num_rows_for_inference;
  for (const std::string& file : files) {
    if (left <= 0) break;
    std::vector<Fields> records = head_of(file, format, left + (options.header ? 1 : 0));
    if (options.header && !records.empty()) records.erase(records.begin());
    for (const Fields& record : records) {
      if (record.size() == 1 && record[0].empty() && num_columns > 1) continue;
      if (record.size() != num_columns) {
        throw InvalidArgument(cat("make_csv_dataset [", file, "]: a record of ", record.size(),
                                  " fields, expected ", num_columns));
      }
      --left;
      for (std::size_t i = 0; i < selected.size(); ++i) {
        const std::string& text = record[static_cast<std::size_t>(selected[i])];
        if (!text.empty() && text != options.na_value) types[i] = type_of(text, types[i]);
      }
    }
  }
  std::vector<CsvColumn> columns;
  for (int type : types) {
    if (type == 0)
      columns.emplace_back(0);
    else if (type == 1)
      columns.emplace_back(int64_t{0});
    else if (type == 2)
      columns.emplace_back(0.0F);
    else if (type == 3)
      columns.emplace_back(0.0);
    else
      columns.emplace_back("");
  }
  return columns;
}

std::vector<int64_t> selected_columns(const Fields& names, const MakeCsvDatasetOptions& options) {
  if (std::set<std::string>(names.begin(), names.end()).size() != names.size()) {
    throw InvalidArgument(
        cat("make_csv_dataset: the columns ", join(names, ", "), ", expected no name twice"));
  }
  std::vector<int64_t> selected;
  const auto select = [&](const std::string& name) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      throw InvalidArgument(
          cat("make_csv_dataset: column \"", name, "\", expected one of ", join(names, ", ")));
    }
    selected.push_back(found - names.begin());
  };
  for (const std::string& name : options.select_columns.value_or(names)) select(name);
  std::sort(selected.begin(), selected.end());
  if (selected.empty() || std::adjacent_find(selected.begin(), selected.end()) != selected.end())
    throw InvalidArgument("make_csv_dataset: select_columns is empty or has a name twice");
  return selected;
}

PlanPtr csv_batches(const std::vector<std::string>& files, int64_t batch_size,
                    const MakeCsvDatasetOptions& options) {
  if (batch_size < 1)
    throw InvalidArgument(
        cat("make_csv_dataset: batch_size ", batch_size, ", expected at least 1"));
  if (files.empty()) throw NotFound("make_csv_dataset: no file, expected at least one");
  const io::CsvFormat format =
      format_of("make_csv_dataset", {.compression_type = options.compression_type,
                                     .field_delim = options.field_delim,
                                     .use_quote_delim = options.use_quote_delim});
  const Fields names = column_names(files, format, options);
  const std::vector<int64_t> selected = selected_columns(names, options);
  ColumnBatchesPlan::Columns columns;
  for (int64_t i : selected) {
    if (options.label_name == names[static_cast<std::size_t>(i)])
      columns.label = columns.names.size();
    columns.names.push_back(names[static_cast<std::size_t>(i)]);
  }
  if (options.label_name && !columns.label) {
    throw InvalidArgument(cat("make_csv_dataset: label_name \"", *options.label_name,
                              "\", expected one of ", join(columns.names, ", ")));
  }
  CsvLayout layout{.format = format,
                   .columns = options.column_defaults
                                  ? *options.column_defaults
                                  : inferred(files, format, options, selected, names.size()),
                   .selected = std::nullopt,
                   .na_value = options.na_value,
                   .header = options.header};
  if (layout.columns.size() != selected.size()) {
    throw InvalidArgument(cat("make_csv_dataset: ", layout.columns.size(),
                              " column_defaults, expected ", selected.size(), " for ",
                              join(columns.names, ", ")));
  }
  if (selected.size() < names.size()) layout.selected = selected;
  PlanPtr plan = csv_records(files, std::move(layout), options.num_parallel_reads);
  if (options.shuffle)
    plan = plans::shuffle(plan, options.shuffle_buffer_size, {.seed = options.shuffle_seed});
  if (options.num_epochs != 1) plan = plans::repeat(plan, options.num_epochs.value_or(-1));
  plan = std::make_shared<ColumnBatchesPlan>(std::move(plan), batch_size, !options.num_epochs,
                                             std::move(columns));
  return plans::prefetch(std::move(plan), options.prefetch_buffer_size);
}

std::vector<std::string> matching(const std::string& pattern) {
  glob_t found = {};
  const int result = glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
  std::vector<std::string> files(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  if (result != 0)
    throw NotFound(
        cat("make_csv_dataset: no file matches \"", pattern, "\", expected one at least"));
  return files;
}

}  // namespace

CsvDataset::CsvDataset(std::vector<std::string> filenames, std::vector<CsvColumn> record_defaults,
                       const CsvDatasetOptions& options)
    : Dataset(csv_records(std::move(filenames), std::move(record_defaults), options)) {}

namespace experimental {

Dataset<Nest> make_csv_dataset(const std::string& file_pattern, int64_t batch_size,
                               const MakeCsvDatasetOptions& options) {
  return make_csv_dataset(matching(file_pattern), batch_size, options);
}

Dataset<Nest> make_csv_dataset(const std::vector<std::string>& files, int64_t batch_size,
                               const MakeCsvDatasetOptions& options) {
  return Dataset<Nest>(csv_batches(files, batch_size, options));
}

}  // namespace experimental
}  // namespace tutti::data
