#pragma once
// Sources that read files element by element.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/data/plan.h"

namespace tutti::data {

/// The elements of one file. After an exception next() goes on behind it, or gives nothing.
class RecordFile {
 public:
  virtual ~RecordFile() = default;
  virtual std::optional<Nest> next() = 0;
  /// Of the next element; -1 when nothing can be read any more.
  virtual int64_t offset() const = 0;
  /// To such an offset; DataLoss or InvalidArgument when it is none.
  virtual void seek(int64_t offset) = 0;
};

/// A plan over files: `open` gives the elements of one.
struct FileSource {
  std::string name;
  std::function<std::unique_ptr<RecordFile>(const std::string& path)> open;
  SpecNest element_spec;
  /// So many files are open at once and give one element each in turn.
  int64_t num_parallel_reads = 1;
};
/// InvalidArgument when num_parallel_reads is below 1.
PlanPtr read_files(std::vector<std::string> files, FileSource source);

}  // namespace tutti::data
