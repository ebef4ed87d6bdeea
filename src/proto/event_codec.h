#pragma once
// Events of TensorBoard's files between bytes and plain values. Nothing of protobuf shows here.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::proto {

// TensorFlow's numbers of dtypes, as far as there are values for them here.
enum TensorDtype {
  kDtFloat = 1,
  kDtDouble = 2,
  kDtInt32 = 3,
  kDtUint8 = 4,
  kDtInt16 = 5,
  kDtInt8 = 6,
  kDtString = 7,
  kDtInt64 = 9,
  kDtBool = 10,
  kDtBfloat16 = 14,
  kDtUint16 = 17,
  kDtHalf = 19,
};
/// Bytes of a number of that dtype; 0 for strings and what is not known here.
std::size_t dtype_size(int dtype);

struct TensorData {
  int dtype = 0;
  std::vector<int64_t> shape;
  /// The values as they lie in memory. When read, there may be fewer than the shape says: then the
  /// last one stands for all that are missing.
  std::string content;
  std::vector<std::string> strings;
};
struct HistogramData {
  double min = 0;
  double max = 0;
  std::vector<double> limits;  // right ends
  std::vector<double> counts;
};
struct ImageData {
  int height = 0;
  int width = 0;
  std::string encoded;
};
struct SummaryValueData {
  enum class Kind { kNone, kSimple, kTensor, kImage, kHistogram };
  std::string tag;
  std::string plugin_name;
  std::string plugin_content;
  std::string display_name;
  std::string description;
  int data_class = 0;
  Kind kind = Kind::kNone;
  float simple = 0;
  TensorData tensor;
  HistogramData histogram;
  ImageData image;
};
struct EventData {
  /// The number of the field that is set.
  enum class What {
    kNone = 0,
    kFileVersion = 3,
    kGraph = 4,
    kSummary = 5,
    kLog = 6,
    kSession = 7,
    kRunMetadata = 8
  };
  double wall_time = 0;
  int64_t step = 0;
  What what = What::kNone;
  std::string file_version;
  std::vector<SummaryValueData> values;
};

/// Values of kind kSimple and kTensor (strings, or content) only.
std::string serialize_event(const EventData& event);
/// False: `bytes` are no such message; `event` is of no use then.
bool parse_event(std::string_view bytes, EventData& event);

}  // namespace tutti::proto
