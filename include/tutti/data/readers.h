#pragma once
// Datasets that read files: TFRecord, records of one length, comma-separated values.
//
// The files are read one after the other, or, with num_parallel_reads = n, n of them by turns, one
// element each; the order is always the same. A file is opened when its turn comes: NotFound and
// the like surface there, and the pass goes on with the next file. An iterator's place is saved as
// files and bytes; packed files are unpacked up to there when it is restored.
// AutoShardPolicy::kFile gives each worker its own files. The checksum of a packed file stands at
// its end: elements in front of the DataLoss that it gives may be wrong, but for TFRecords, which
// have their own.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/data/dataset.h"
#include "tutti/tensor/string_tensor.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::data {

struct TFRecordDatasetOptions {
  /// "", "GZIP" or "ZLIB"
  std::string compression_type = "";
  int64_t buffer_size = 256 << 10;
  int64_t num_parallel_reads = 1;
};
struct FixedLengthRecordDatasetOptions {
  int64_t header_bytes = 0;
  int64_t footer_bytes = 0;
  int64_t buffer_size = 256 << 10;
  std::string compression_type = "";
  int64_t num_parallel_reads = 1;
};

/// Elements: the records, scalar strings. A damaged record is DataLoss, with the file and the byte
/// where it begins. Behind damaged data the pass goes on with the next record; behind a damaged
/// length the rest of the file cannot be read, and it goes on with the next file.
class TFRecordDataset : public Dataset<StringTensor> {
 public:
  explicit TFRecordDataset(std::vector<std::string> filenames,
                           const TFRecordDatasetOptions& options = {});
};

/// Elements: `record_bytes` bytes each, scalar strings, of what stands between the first
/// `header_bytes` and the last `footer_bytes` of each file. InvalidArgument, in place of the file's
/// first element (of the last one, if it is packed), when that is no whole number of records.
class FixedLengthRecordDataset : public Dataset<StringTensor> {
 public:
  FixedLengthRecordDataset(std::vector<std::string> filenames, int64_t record_bytes,
                           const FixedLengthRecordDatasetOptions& options = {});
};

/// What a column of a CSV file holds: its dtype (float32, float64, int32, int64 or string), and the
/// value where a field is empty; without one the field is required.
class CsvColumn {
 public:
  /// A required one.
  CsvColumn(at::ScalarType dtype) : dtype_(dtype) {}             // NOLINT: as TensorFlow writes it
  CsvColumn(float value) : dtype_(at::kFloat), value_(value) {}  // NOLINT
  CsvColumn(double value) : dtype_(at::kDouble), value_(value) {}              // NOLINT
  CsvColumn(int value) : dtype_(at::kInt), value_(int64_t{value}) {}           // NOLINT
  CsvColumn(int64_t value) : dtype_(at::kLong), value_(value) {}               // NOLINT
  CsvColumn(std::string value) : dtype_(kString), value_(std::move(value)) {}  // NOLINT
  CsvColumn(const char* value) : CsvColumn(std::string(value)) {}              // NOLINT

  using Value = std::variant<int64_t, double, std::string>;
  at::ScalarType dtype() const { return dtype_; }
  const std::optional<Value>& default_value() const { return value_; }

 private:
  at::ScalarType dtype_;
  std::optional<Value> value_;
};

struct CsvDatasetOptions {
  std::string compression_type = "";
  int64_t buffer_size = 256 << 10;
  /// True: the first record of each file is passed over.
  bool header = false;
  char field_delim = ',';
  /// False: quotes are characters like others.
  bool use_quote_delim = true;
  /// Another text for a field that has no value.
  std::string na_value = "";
  /// Numbers of the columns that record_defaults are for, rising; unset: all of them.
  std::optional<std::vector<int64_t>> select_cols = std::nullopt;
};

/// Elements: tuples of scalars, one a column. A record with another number of fields, an empty
/// required field, or a field that is no number is InvalidArgument, with the file and the byte; the
/// pass goes on with the next record. Empty lines are passed over where there are several columns.
class CsvDataset : public Dataset<Nest> {
 public:
  CsvDataset(std::vector<std::string> filenames, std::vector<CsvColumn> record_defaults,
             const CsvDatasetOptions& options = {});
};

namespace experimental {

struct MakeCsvDatasetOptions {
  /// Unset: the first record of the first file.
  std::optional<std::vector<std::string>> column_names = std::nullopt;
  /// One a selected column. Unset: the narrowest of int32, int64, float32, float64 and string that
  /// holds the first records, with 0 or "" for empty fields.
  std::optional<std::vector<CsvColumn>> column_defaults = std::nullopt;
  /// Elements are then (features, label).
  std::optional<std::string> label_name = std::nullopt;
  /// Names of the columns wanted; unset: all of them.
  std::optional<std::vector<std::string>> select_columns = std::nullopt;
  char field_delim = ',';
  bool use_quote_delim = true;
  std::string na_value = "";
  bool header = true;
  /// Unset: for ever; then all batches are whole.
  std::optional<int64_t> num_epochs = std::nullopt;
  bool shuffle = true;
  int64_t shuffle_buffer_size = 10000;
  std::optional<int64_t> shuffle_seed = std::nullopt;
  int64_t prefetch_buffer_size = 1;
  int64_t num_parallel_reads = 1;
  int64_t num_rows_for_inference = 100;
  std::string compression_type = "";
};

/// Batches of the records of the files that match a pattern (sorted): {column: vector}, or a tuple
/// of that and the label's vector. Reads the heads of the files now: InvalidArgument when names are
/// missing or given twice, NotFound when no file matches.
Dataset<Nest> make_csv_dataset(const std::string& file_pattern, int64_t batch_size,
                               const MakeCsvDatasetOptions& options = {});
Dataset<Nest> make_csv_dataset(const std::vector<std::string>& files, int64_t batch_size,
                               const MakeCsvDatasetOptions& options = {});

}  // namespace experimental
}  // namespace tutti::data
