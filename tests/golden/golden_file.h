#pragma once
// Golden files: what they hold, and how results are compared with them.

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tutti::golden {

using Json = nlohmann::json;

/// One file; `case` inputs may refer to its shared tensors.
class GoldenFile {
 public:
  /// Throws std::runtime_error with the reason when it cannot be read.
  explicit GoldenFile(const std::string& path);
  const std::string& name() const { return name_; }
  /// Where the file lies, with the slash behind it; "" for the working folder.
  const std::string& folder() const { return folder_; }
  const Json& cases() const { return json_.at("cases"); }
  /// A tensor, or the tensor that a {"ref"} names.
  at::Tensor tensor(const Json& json) const;
  std::vector<at::Tensor> tensors(const Json& list) const;
  /// {"ref": k} replaced by what it names.
  const Json& resolve(const Json& json) const;

 private:
  std::string name_;
  std::string folder_;
  Json json_;
};

/// Cases that docs/differences.md declares different, by name, each with its reason: rows of tables
/// that begin with `FILE: NAME` in backticks. `*` stands for any text; `NAME#PART` is one part of a
/// case (a row of a variable's matrix, say), and the rest of the case must still agree.
class Differences {
 public:
  Differences() = default;
  explicit Differences(const std::string& path);
  bool names(const std::string& file, const std::string& name) const;

 private:
  std::vector<std::string> patterns_;  // "FILE: NAME"
};

/// Collects what is wrong with one case.
class Verdict {
 public:
  explicit Verdict(double relative, std::string file = "", std::string name = "",
                   const Differences* differences = nullptr)
      : relative_(relative),
        file_(std::move(file)),
        name_(std::move(name)),
        differences_(differences) {}
  /// True when this part of the case is declared different: the runner leaves it out.
  bool differs(const std::string& part) const {
    return differences_ != nullptr && differences_->names(file_, name_ + "#" + part);
  }
  /// |found - expected| <= 1e-6 + r |expected|; NaN equals NaN.
  void close(const std::string& what, double found, const Json& expected);
  void close(const std::string& what, const at::Tensor& found, const at::Tensor& expected);
  void equal(const std::string& what, int64_t found, int64_t expected);
  void fail(const std::string& what) { failures_.push_back(what); }
  const std::vector<std::string>& failures() const { return failures_; }
  void clear() { failures_.clear(); }

 private:
  bool near(double found, double expected) const;
  double relative_;
  std::string file_;
  std::string name_;
  const Differences* differences_ = nullptr;
  std::vector<std::string> failures_;
};

/// A case that this program cannot run: it says what it does not know.
struct Unknown {
  std::string reason;
};

// Each runs one case of its file, adds to the verdict, or throws Unknown.
void run_training_case(const GoldenFile& file, const Json& entry, Verdict& verdict);
void run_optimizer_case(const GoldenFile& file, const Json& entry, Verdict& verdict);
void run_distribute_core_case(const GoldenFile& file, const Json& entry, Verdict& verdict);
void run_variable_case(const GoldenFile& file, const Json& entry, Verdict& verdict);
void run_distributed_dataset_case(const GoldenFile& file, const Json& entry, Verdict& verdict);
void run_data_case(const GoldenFile& file, const Json& entry, Verdict& verdict);
void run_schedule_case(const GoldenFile& file, const Json& entry, Verdict& verdict);
void run_losses_case(const GoldenFile& file, const Json& entry, Verdict& verdict);
void run_layer_case(const GoldenFile& file, const Json& entry, Verdict& verdict);
void run_metric_case(const GoldenFile& file, const Json& entry, Verdict& verdict);
void run_partitioner_case(const GoldenFile& file, const Json& entry, Verdict& verdict);

void run_format_case(const GoldenFile& file, const Json& entry, Verdict& verdict);
/// Of data.json. False: the case is none of a reader's, and nothing was done.
bool run_reader_case(const GoldenFile& file, const Json& entry, Verdict& verdict);
/// The cases summary/* of formats.json.
void run_summary_case(const GoldenFile& file, const Json& entry, Verdict& verdict);
/// The cases `progress/…` of formats.json.
void run_progress_case(const GoldenFile& file, const Json& entry, Verdict& verdict);

}  // namespace tutti::golden
