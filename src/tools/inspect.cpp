#include "tools/inspect.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/io/events.h"
#include "tutti/io/example.h"
#include "tutti/io/tensor_file.h"
#include "tutti/io/tf_record.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string first_bytes(const std::string& path, std::size_t count) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw NotFound(cat("inspect [", path, "]: no such file, expected one"));
  std::string bytes(count, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  return bytes;
}

/// "", "GZIP" or "ZLIB" when the file begins as a TFRecord file so packed, else nothing.
std::optional<std::string> packing_of(const std::string& path) {
  const std::string front = first_bytes(path, 12);
  if (front.size() == 12) {
    uint32_t crc = 0;
    std::memcpy(&crc, front.data() + 8, sizeof(crc));
    if (io::masked_crc32c(std::string_view(front).substr(0, 8)) == crc) return "";
  }
  const std::string packing = front.substr(0, 2) == "\x1f\x8b" ? "GZIP" : "ZLIB";
  if (packing == "ZLIB" && front.substr(0, 1) != "\x78") return std::nullopt;
  try {
    io::TFRecordReader reader(path, {.compression_type = packing});
    if (reader.next()) return packing;
  } catch (const DataLoss&) {
  }
  return std::nullopt;
}

bool begins_with_event(const std::string& path) {
  try {
    const auto event = io::EventFileReader(path).next();
    return event && event->kind == io::Event::Kind::kFileVersion;
  } catch (const Error&) {
    return false;
  }
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

std::string bytes_text(double bytes) {
  const char* units[] = {"B", "KB", "MB", "GB", "TB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.2f %s", bytes, units[unit]);
  return text;
}

/// Columns of equal width, two blanks between them; numbers stand right.
class Table {
 public:
  explicit Table(std::vector<std::string> heads) : rows_{std::move(heads)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void print(std::ostream& out) const {
    std::vector<std::size_t> widths(rows_[0].size());
    for (const auto& row : rows_) {
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    for (const auto& row : rows_) {
      std::string line = " ";
      for (std::size_t i = 0; i < row.size(); ++i) {
        const std::string fill(widths[i] - row[i].size(), ' ');
        line += cat(" ", i == 0 ? row[i] + fill : fill + row[i], " ");
      }
      line.resize(line.find_last_not_of(' ') + 1);
      out << line << "\n";
    }
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

// ---- tensors

/// What a description has there, whatever that is: a file need not be ours. Never a copy of a part,
/// which may be nested without end.
const Json* part_of(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() ? nullptr : &*found;
}
std::string text_in(const Json& json, const char* key, const std::string& fallback) {
  const Json* found = part_of(json, key);
  return found != nullptr && found->is_string() ? found->get<std::string>() : fallback;
}

void describe_metadata(const std::string& text, std::ostream& out) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    out << ", of another program\n";
    return;
  }
  const std::string kind = text_in(json, "kind", "?");
  out << ", kind " << (kind == "state" ? "checkpoint" : kind) << "\n";
  const std::string name = text_in(json, "name", "");
  if (!name.empty()) out << "model \"" << name << "\"";
  const Json* const layers = part_of(json, "layers");
  if (layers != nullptr && layers->is_array()) {
    std::vector<std::string> classes;
    for (const Json& layer : *layers)
      if (layer.is_object()) classes.push_back(text_in(layer, "class_name", "?"));
    out << ": " << join(classes, ", ");
  }
  if (!name.empty()) out << "\n";
  const Json* const compiled = part_of(json, "compiled");
  const Json* const optimizer = compiled != nullptr ? part_of(*compiled, "optimizer") : nullptr;
  if (optimizer == nullptr || !optimizer->is_object()) return;
  const Json* const steps = part_of(*compiled, "iterations");
  out << "optimizer " << text_in(*optimizer, "class_name", "?") << " after "
      << (steps != nullptr && steps->is_number_integer() ? steps->get<int64_t>() : 0) << " steps\n";
}

void describe_tensors(const std::string& path, std::ostream& out) {
  const io::TensorFile file = io::read_tensor_file(path);
  out << path << ": safetensors";
  describe_metadata(file.metadata, out);
  Table table({"tensor", "dtype", "shape", "min", "mean", "max"});
  int64_t values = 0;
  double bytes = 0;
  for (const auto& [name, tensor] : file.tensors) {
    values += tensor.numel();
    bytes += static_cast<double>(tensor.nbytes());
    std::vector<std::string> row{name, dtype_name(tensor.scalar_type()),
                                 shape_text(tensor.sizes())};
    if (tensor.numel() > 0) {
      const Tensor wide = tensor.to(at::kDouble);
      row.push_back(number(wide.min().item<double>()));
      row.push_back(number(wide.mean().item<double>()));
      row.push_back(number(wide.max().item<double>()));
    }
    table.add(std::move(row));
  }
  table.print(out);
  out << file.tensors.size() << " tensors, " << values << " values, " << bytes_text(bytes) << "\n";
}

// ---- records

template <class List>
std::string preview(const List& list) {
  std::string text;
  std::size_t shown = 0;
  for (const auto& value : list.value) {
    if (shown++ == 3) return text + ", …";
    text += text.empty() ? "" : ", ";
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
      const std::string part = value.substr(0, 24);
      const bool printable =
          std::all_of(part.begin(), part.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
      text += printable && part.size() == value.size() ? cat("\"", part, "\"")
                                                       : cat(value.size(), " bytes");
    } else {
      text += number(static_cast<double>(value));
    }
  }
  return text;
}

void describe_example(const train::Example& example, std::ostream& out) {
  Table table({"feature of the first record", "kind", "values", ""});
  for (const auto& [name, feature] : example.features.feature) {
    if (feature.has_bytes_list()) {
      table.add({name, "bytes", std::to_string(feature.bytes_list().value.size()),
                 preview(feature.bytes_list())});
    } else if (feature.has_float_list()) {
      table.add({name, "float", std::to_string(feature.float_list().value.size()),
                 preview(feature.float_list())});
    } else if (feature.has_int64_list()) {
      table.add({name, "int64", std::to_string(feature.int64_list().value.size()),
                 preview(feature.int64_list())});
    } else {
      table.add({name, "none", "0", ""});
    }
  }
  table.print(out);
}

void describe_records(const std::string& path, std::ostream& out) {
  const std::string packing = packing_of(path).value_or("");
  io::TFRecordReader reader(path, {.compression_type = packing});
  int64_t count = 0, damaged = 0;
  std::size_t bytes = 0, smallest = std::numeric_limits<std::size_t>::max(), largest = 0;
  std::optional<train::Example> first;
  std::vector<std::string> errors;
  for (;;) {
    try {
      const auto record = reader.next();
      if (!record) break;
      bytes += record->size();
      smallest = std::min(smallest, record->size());
      largest = std::max(largest, record->size());
      if (count++ == 0) {
        try {
          first = train::Example::parse(*record);
        } catch (const InvalidArgument&) {
        }
      }
    } catch (const DataLoss& error) {
      if (damaged++ < 10) errors.emplace_back(error.what());
    }
  }
  out << path << ": TFRecord" << (packing.empty() ? "" : cat(", ", packing)) << ", " << count
      << " records, " << bytes_text(static_cast<double>(bytes));
  if (count > 0) out << ", of " << smallest << " to " << largest << " bytes";
  out << "\n";
  if (first && !first->features.feature.empty()) describe_example(*first, out);
  for (const std::string& error : errors) out << "damaged: " << error << "\n";
  if (damaged > 0) out << damaged << " records are damaged\n";
}

// ---- events

/// The event files of a folder and of the folders in it, with what stands in front of their tags.
std::vector<std::pair<std::string, std::string>> files_with_run(const std::string& path) {
  std::vector<std::pair<std::string, std::string>> files;
  if (!fs::is_directory(path)) return {{path, ""}};
  for (const std::string& file : io::event_files(path)) files.emplace_back(file, "");
  std::vector<fs::path> folders;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  for (const fs::path& folder : folders) {
    for (const std::string& file : io::event_files(folder.string()))
      files.emplace_back(file, fs::relative(folder, path).string() + "/");
  }
  return files;
}

template <class Visit>
void for_each_event(const std::string& file, Visit&& visit, std::vector<std::string>* errors) {
  io::EventFileReader reader(file);
  for (;;) {
    try {
      const auto event = reader.next();
      if (!event) return;
      visit(*event);
    } catch (const DataLoss& error) {
      if (errors != nullptr) errors->emplace_back(error.what());
    }
  }
}

struct TagSummary {
  std::string plugin;
  int64_t count = 0;
  int64_t first_step = 0, last_step = 0;
  std::optional<double> last;
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
};

void describe_events(const std::string& path, std::ostream& out) {
  std::map<std::string, TagSummary> tags;
  std::vector<std::string> errors;
  int64_t events = 0;
  const auto files = files_with_run(path);
  for (const auto& [file, run] : files) {
    for_each_event(
        file,
        [&, run = run](const io::Event& event) {
          ++events;
          for (const io::SummaryValue& value : event.values) {
            TagSummary& tag = tags[run + value.tag];
            if (!value.plugin_name.empty()) tag.plugin = value.plugin_name;
            if (tag.count++ == 0) tag.first_step = event.step;
            tag.last_step = event.step;
            const auto scalar = value.scalar();
            if (!scalar) continue;
            tag.last = scalar;
            tag.low = std::min(tag.low, *scalar);
            tag.high = std::max(tag.high, *scalar);
          }
        },
        &errors);
  }
  out << path << ": " << files.size() << " event file" << (files.size() == 1 ? "" : "s") << ", "
      << events << " events\n";
  Table table({"tag", "kind", "values", "steps", "min", "max", "last"});
  for (const auto& [name, tag] : tags) {
    std::vector<std::string> row{name, tag.plugin, std::to_string(tag.count),
                                 cat(tag.first_step, " to ", tag.last_step)};
    if (tag.last) row.insert(row.end(), {number(tag.low), number(tag.high), number(*tag.last)});
    table.add(std::move(row));
  }
  table.print(out);
  for (const std::string& error : errors) out << "damaged: " << error << "\n";
}

std::vector<io::Curve> event_curves(const std::string& path) {
  std::map<std::string, io::Curve> curves;
  for (const auto& [file, run] : files_with_run(path)) {
    for_each_event(
        file,
        [&, run = run](const io::Event& event) {
          for (const io::SummaryValue& value : event.values) {
            const auto scalar = value.scalar();
            if (!scalar) continue;
            io::Curve& curve = curves[run + value.tag];
            curve.name = run + value.tag;
            curve.x.push_back(static_cast<double>(event.step));
            curve.y.push_back(*scalar);
          }
        },
        nullptr);
  }
  std::vector<io::Curve> list;
  for (auto& [name, curve] : curves) list.push_back(std::move(curve));
  return list;
}

// ---- CSV logs

struct Log {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

Log read_log(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw NotFound(cat("inspect [", path, "]: no such file, expected one"));
  Log log;
  std::string line;
  std::getline(file, line);
  const char separator =
      line.find(',') == std::string::npos && line.find(';') != std::string::npos ? ';' : ',';
  const auto cells = [&](std::string text) {
    if (!text.empty() && text.back() == '\r') text.pop_back();
    return split(text, separator);
  };
  log.columns = cells(line);
  while (std::getline(file, line)) {
    std::vector<std::string> row = cells(line);
    row.resize(log.columns.size());
    log.rows.push_back(std::move(row));
  }
  return log;
}

/// Nothing where a cell is no number: epochs without validation have "NA".
std::optional<double> number_in(const std::string& cell) {
  char* end = nullptr;
  const double value = std::strtod(cell.c_str(), &end);
  if (cell.empty() || end != cell.c_str() + cell.size()) return std::nullopt;
  return value;
}

std::vector<io::Curve> log_curves(const std::string& path) {
  const Log log = read_log(path);
  std::vector<io::Curve> curves;
  const bool counted =
      !log.columns.empty() && (log.columns[0] == "epoch" || log.columns[0] == "step");
  for (std::size_t column = counted ? 1 : 0; column < log.columns.size(); ++column) {
    io::Curve curve{log.columns[column], {}, {}};
    for (std::size_t row = 0; row < log.rows.size(); ++row) {
      const auto value = number_in(log.rows[row][column]);
      if (!value) continue;
      const double count = number_in(log.rows[row][0]).value_or(std::nan(""));
      curve.x.push_back(counted ? count : static_cast<double>(row));
      curve.y.push_back(*value);
    }
    if (!curve.y.empty()) curves.push_back(std::move(curve));
  }
  return curves;
}

void describe_log(const std::string& path, std::ostream& out) {
  const Log log = read_log(path);
  out << path << ": CSV, " << log.rows.size() << " rows\n";
  Table table({"column", "first", "last", "min", "max"});
  for (std::size_t column = 0; column < log.columns.size(); ++column) {
    if (log.rows.empty()) {
      table.add({log.columns[column]});
      continue;
    }
    double low = std::numeric_limits<double>::infinity(), high = -low;
    for (const auto& row : log.rows) {
      const auto value = number_in(row[column]);
      if (!value) continue;
      low = std::fmin(low, *value);
      high = std::fmax(high, *value);
    }
    table.add({log.columns[column], log.rows.front()[column], log.rows.back()[column],
               low <= high ? number(low) : "", low <= high ? number(high) : ""});
  }
  table.print(out);
}

}  // namespace

FileKind kind_of(const std::string& path) {
  if (fs::is_directory(path)) return FileKind::kEvents;
  const std::string front = first_bytes(path, 512);
  if (front.size() > 9 && front[8] == '{' && front.substr(3, 5) == std::string(5, '\0'))
    return FileKind::kTensors;
  if (packing_of(path)) return begins_with_event(path) ? FileKind::kEvents : FileKind::kRecords;
  const std::string line = front.substr(0, front.find('\n'));
  const bool text = std::all_of(line.begin(), line.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 || c == '\r' || c == '\t';
  });
  if (text && (line.find(',') != std::string::npos || line.find(';') != std::string::npos))
    return FileKind::kCsv;
  throw InvalidArgument(cat("inspect [", path,
                            "]: of no kind that is known here, expected a safetensors file, "
                            "TFRecords, events or a CSV log"));
}

std::string printable(std::string_view text) {
  std::string shown;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0U;
    const bool second_control = byte == 0xc2 && next >= 0x80 && next < 0xa0;  // U+0080 to U+009F
    if ((byte < 0x20 && byte != '\n') || byte == 0x7f || second_control) {
      char hex[5];
      std::snprintf(hex, sizeof(hex), "\\x%02x", second_control ? next : byte);
      shown += hex;
      i += second_control ? 1 : 0;
    } else {
      shown += text[i];
    }
  }
  return shown;
}

void describe(const std::string& path, std::ostream& out) {
  std::ostringstream text;
  switch (kind_of(path)) {
    case FileKind::kTensors:
      describe_tensors(path, text);
      break;
    case FileKind::kRecords:
      describe_records(path, text);
      break;
    case FileKind::kEvents:
      describe_events(path, text);
      break;
    case FileKind::kCsv:
      describe_log(path, text);
      break;
  }
  out << printable(text.str());
}

std::vector<io::Curve> curves_of(const std::string& path) {
  const FileKind kind = kind_of(path);
  std::vector<io::Curve> curves;
  if (kind == FileKind::kEvents) curves = event_curves(path);
  if (kind == FileKind::kCsv) curves = log_curves(path);
  if (curves.empty())
    throw InvalidArgument(cat("plot [", path,
                              "]: no curves in it, expected an event file or folder with scalars, "
                              "or a CSV log"));
  return curves;
}

}  // namespace tutti::tools
