#pragma once
// Elements in files: `prefix.index` and `prefix.data`, and `prefix.lock` while they are written.
// docs/formats.md has the bytes.

#include <memory>
#include <optional>
#include <string>

#include "tutti/io/tf_record.h"
#include "tutti/tensor/nest.h"

namespace tutti::data {

struct ElementFiles {
  std::string prefix;
  std::string compression;
  std::string index() const { return prefix + ".index"; }
  std::string data() const { return prefix + ".data"; }
  std::string lock() const { return prefix + ".lock"; }
  /// The index is written last, so there is all or nothing.
  bool complete() const;
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

/// Writes to temporary names; finish() puts them in place of what is there. Without it nothing is
/// left behind.
class ElementWriter {
 public:
  ElementWriter(const ElementFiles& files, std::unique_ptr<WriterLock> lock);
  ~ElementWriter();
  ElementWriter(const ElementWriter&) = delete;
  ElementWriter& operator=(const ElementWriter&) = delete;
  void add(const Nest& element);
  void finish();

 private:
  std::string temporary() const { return files_.data() + ".tmp"; }
  ElementFiles files_;
  std::unique_ptr<WriterLock> lock_;
  std::optional<io::TFRecordWriter> writer_;
  std::string bytes_;
  int64_t count_ = 0;
};

class ElementReader {
 public:
  /// NotFound when there is no index, DataLoss when the files do not agree.
  explicit ElementReader(const ElementFiles& files);
  int64_t size() const { return size_; }
  /// DataLoss, with the file, for damaged elements; the next call goes on behind them.
  std::optional<Nest> next();
  /// Of the next element: its place in the file and its number.
  int64_t offset() const { return records_->offset(); }
  int64_t number() const { return number_; }
  void seek(int64_t offset, int64_t number);

 private:
  ElementFiles files_;
  int64_t size_ = 0;
  int64_t number_ = 0;
  bool done_ = false;
  std::optional<io::TFRecordReader> records_;
};

}  // namespace tutti::data
