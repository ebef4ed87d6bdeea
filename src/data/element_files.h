#pragma once
// Elements in files: `prefix.index`, `prefix.data-G-S` for shard S of generation G, and
// `prefix.lock` while they are written. docs/formats.md has the bytes.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/io/tf_record.h"
#include "tutti/tensor/nest.h"

namespace tutti::data {

/// The most shards; each has a file that is open while elements are written.
inline constexpr int64_t kMostShards = 1024;

struct ElementFiles {
  std::string prefix;
  std::string compression;
  std::string index() const { return prefix + ".index"; }
  std::string lock() const { return prefix + ".lock"; }
  std::string data(int64_t generation, int64_t shard) const;
  /// The index is written last, so there is all or nothing.
  bool complete() const;
};

/// What an index says.
struct ElementIndex {
  /// Files of another one are no part of it: what replaces a dataset is the next generation, and
  /// who reads the old one never sees a byte of the new.
  int64_t generation = 0;
  std::string compression;
  // Of each shard. One without elements has no file.
  std::vector<int64_t> elements;
  std::vector<int64_t> data_bytes;

  int64_t num_shards() const { return static_cast<int64_t>(elements.size()); }
  /// Elements of all shards.
  int64_t size() const;
  /// NotFound when there is none, DataLoss when it is damaged, InvalidArgument for another format.
  static ElementIndex read(const ElementFiles& files);
  /// The one that is written as this element; `path` is for the errors.
  static ElementIndex of(const Nest& about, const std::string& path);
  Nest about() const;
};

/// The right to write, of one at a time on a machine. It ends with the object or its process.
class WriterLock {
 public:
  /// Null when another one has it. NotFound or PermissionDenied where the file cannot be made.
  static std::unique_ptr<WriterLock> take(const ElementFiles& files);
  /// Removes the file.
  ~WriterLock();
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

 private:
  WriterLock(std::string path, int file) : path_(std::move(path)), file_(file) {}
  std::string path_;
  int file_;
};

/// Writes a new generation; finish() makes it the one that is read, at once, and removes the
/// others. Without it nothing is left behind.
class ElementWriter {
 public:
  ElementWriter(const ElementFiles& files, std::unique_ptr<WriterLock> lock);
  ~ElementWriter();
  ElementWriter(const ElementWriter&) = delete;
  ElementWriter& operator=(const ElementWriter&) = delete;
  /// InvalidArgument for a shard below 0 or from kMostShards on.
  void add(const Nest& element, int64_t shard = 0);
  void finish();

 private:
  std::string path(int64_t shard) const { return files_.data(generation_, shard); }
  ElementFiles files_;
  std::unique_ptr<WriterLock> lock_;
  int64_t generation_;
  std::map<int64_t, io::TFRecordWriter> writers_;
  std::vector<int64_t> counts_;
  std::string bytes_;
  bool finished_ = false;
};

/// Reads one shard.
class ElementReader {
 public:
  /// DataLoss when the data are not those of the index; FailedPrecondition when another generation
  /// has replaced them.
  ElementReader(const ElementFiles& files, const ElementIndex& index, int64_t shard);
  /// DataLoss, with the file, for damaged elements; the next call goes on behind them.
  std::optional<Nest> next();
  /// Of the next element: its place in the file and its number.
  int64_t offset() const { return records_ ? records_->offset() : 0; }
  int64_t number() const { return number_; }
  void seek(int64_t offset, int64_t number);

 private:
  std::string path_;
  int64_t size_;
  int64_t number_ = 0;
  bool done_ = false;
  std::optional<io::TFRecordReader> records_;  // of a shard with elements
};

}  // namespace tutti::data
