#pragma once
// What is in the files that a training leaves behind.

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/io/plot.h"

namespace tutti::tools {

enum class FileKind { kTensors, kRecords, kEvents, kCsv };
/// By the first bytes; a folder is one of event files. NotFound when there is nothing,
/// InvalidArgument when it is of no such kind.
FileKind kind_of(const std::string& path);

/// Lists the file's contents: tensors with their ranges, records with their features, tags of event
/// files with their first and last values, columns of a CSV log. What is damaged is named, and what
/// can be read behind it goes on.
void describe(const std::string& path, std::ostream& out);

/// The text with what a terminal would obey, as its bytes in \\x.. form; ends of line stay.
std::string printable(std::string_view text);

/// The curves of an event file, of a folder of them (and of the folders in it: their names stand in
/// front, as `validation/loss`), or of a CSV log. InvalidArgument when there are none.
std::vector<io::Curve> curves_of(const std::string& path);

}  // namespace tutti::tools
