#include "tutti/io/events.h"

#include <png.h>

#include <cmath>
#include <limits>
#include <regex>

#include "support/expect.h"
#include "support/temporary_folder.h"
#include "tutti/io/tf_record.h"

namespace tutti::io {
namespace {

class Events : public testing::TemporaryFolder {
 protected:
  static std::vector<Event> all(const std::string& file) {
    EventFileReader reader(file);
    std::vector<Event> events;
    while (auto event = reader.next()) events.push_back(std::move(*event));
    return events;
  }
  /// The one value of the one summary that `write` adds.
  template <class Write>
  SummaryValue written(Write write) const {
    EventFileWriter writer(path("log"));
    write(writer);
    writer.close();
    const std::vector<Event> events = all(writer.path());
    EXPECT_EQ(events.size(), 2u);
    EXPECT_EQ(events.back().values.size(), 1u);
    return events.back().values.at(0);
  }
  static std::vector<uint8_t> decoded(const std::string& png, int channels) {
    png_image image = {};
    image.version = PNG_IMAGE_VERSION;
    EXPECT_NE(png_image_begin_read_from_memory(&image, png.data(), png.size()), 0);
    constexpr png_uint_32 kFormats[] = {PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB,
                                        PNG_FORMAT_RGBA};
    EXPECT_EQ(image.format, kFormats[channels - 1]);
    std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(image));
    EXPECT_NE(png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr), 0);
    return pixels;
  }
};

TEST_F(Events, BeginWithTheVersionOfTheFile) {
  EventFileWriter writer(path("a/b"), {.clock = [] { return 0.0; }});
  const std::string bytes = bytes_of(writer.path());
  EXPECT_EQ(bytes.substr(12, 15),
            "\x1a\x0d"
            "brain.Event:2");
  EXPECT_EQ(bytes.size(), 31u);
  const auto events = all(writer.path());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, Event::Kind::kFileVersion);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
}

TEST_F(Events, AreInFilesThatTensorBoardFinds) {
  EventFileWriter one(path("log"), {.clock = [] { return 1700000000.75; }});
  EventFileWriter two(path("log"), {.clock = [] { return 1700000000.75; }});
  const std::string name = std::filesystem::path(one.path()).filename();
  EXPECT_TRUE(std::regex_match(
      name, std::regex("events\\.out\\.tfevents\\.1700000000\\.[^/]+\\.[0-9]+\\.0\\.v2")))
      << name;
  EXPECT_NE(one.path(), two.path());
  EXPECT_EQ(event_files(path("log")), (std::vector<std::string>{one.path(), two.path()}));
  EXPECT_ERROR(event_files(path("none")), NotFound, path("none"));
}

TEST_F(Events, HoldScalarsAsTensorBoardHasThem) {
  const SummaryValue value =
      written([](EventFileWriter& writer) { writer.scalar("loss", 0.1, 7); });
  EXPECT_EQ(value.tag, "loss");
  EXPECT_EQ(value.plugin_name, "scalars");
  EXPECT_EQ(value.tensor_dtype, 1);
  EXPECT_EQ(value.scalar(), static_cast<double>(0.1F));
  EXPECT_EQ(value.value.leaf().dim(), 0);
}

TEST_F(Events, HaveStepAndTime) {
  double now = 100;
  EventFileWriter writer(path("log"), {.clock = [&now] { return now; }});
  now = 100.5;
  writer.scalar("a", 1, 5);
  now = 101;
  writer.scalar("b", 2, -1);
  writer.close();
  const auto events = all(writer.path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].wall_time, 100.5);
  EXPECT_EQ(events[1].step, 5);
  EXPECT_EQ(events[2].wall_time, 101);
  EXPECT_EQ(events[2].step, -1);
}

TEST_F(Events, AreWrittenWhenTheQueueIsFullOrOldOrByFlush) {
  double now = 0;
  EventFileWriter writer(path("log"),
                         {.max_queue = 3, .flush_secs = 120, .clock = [&now] { return now; }});
  const auto count = [&] { return all(writer.path()).size() - 1; };
  writer.scalar("a", 1, 1);
  writer.scalar("a", 1, 2);
  EXPECT_EQ(count(), 0u);
  writer.scalar("a", 1, 3);
  EXPECT_EQ(count(), 3u);
  now = 119;
  writer.scalar("a", 1, 4);
  EXPECT_EQ(count(), 3u);
  now = 120;
  writer.scalar("a", 1, 5);
  EXPECT_EQ(count(), 5u);
  writer.scalar("a", 1, 6);
  writer.flush();
  EXPECT_EQ(count(), 6u);
}

TEST_F(Events, AreRefusedAfterClose) {
  EventFileWriter writer(path("log"));
  writer.close();
  writer.close();
  EXPECT_ERROR(writer.scalar("a", 1, 1), FailedPrecondition, "after close()");
}

TEST_F(Events, HoldHistogramsOfEqualBuckets) {
  const SummaryValue value = written([](EventFileWriter& writer) {
    writer.histogram("w", at::tensor({0.0F, 0.5F, 1.0F, 1.9F, 2.0F, 4.0F}), 1, {.buckets = 4});
  });
  EXPECT_EQ(value.plugin_name, "histograms");
  EXPECT_EQ(value.tensor_dtype, 2);
  EXPECT_TENSOR_NEAR(value.value.leaf(),
                     at::tensor({0, 1, 2, 1, 2, 2, 2, 3, 1, 3, 4, 1}).reshape({4, 3}), 1e-12);
}

TEST_F(Events, HoldHistogramsOfWhateverValuesThereAre) {
  const auto histogram = [&](const Tensor& values, int64_t buckets) {
    return written([&](EventFileWriter& writer) {
             writer.histogram("w", values, 1, {.buckets = buckets});
           })
        .value.leaf();
  };
  EXPECT_TENSOR_EQ(histogram(at::full({5}, 2, at::kInt), 2),
                   at::tensor({2, 2, 0, 2, 2, 5}).reshape({2, 3}));
  EXPECT_TENSOR_EQ(histogram(at::zeros({0, 3}), 2), at::zeros({2, 3}));
  const double inf = std::numeric_limits<double>::infinity();
  const double most = std::numeric_limits<double>::max();
  EXPECT_TENSOR_EQ(histogram(at::tensor({std::nan(""), inf, 1.0, -inf, 2.0}), 1),
                   at::tensor({1, 2, 2}).reshape({1, 3}));
  EXPECT_TENSOR_EQ(histogram(at::tensor({-most, most}, at::kDouble), 2),
                   at::tensor({-most, 0.0, 1.0, 0.0, most, 1.0}, at::kDouble).reshape({2, 3}));
  EXPECT_TENSOR_EQ(histogram(at::tensor({1, 0, 1}).to(at::kBool), 2).select(1, 2),
                   at::tensor({1.0, 2.0}));
  EXPECT_EQ(histogram(at::rand({100}), 30).select(1, 2).sum().item<double>(), 100);
  EventFileWriter writer(path("log"));
  EXPECT_ERROR(writer.histogram("w", at::rand({2}), 1, {.buckets = 0}), InvalidArgument,
               "0 buckets");
}

TEST_F(Events, HoldImagesAsPng) {
  for (int channels = 1; channels <= 4; ++channels) {
    SCOPED_TRACE(channels);
    const Tensor pixels =
        (at::arange(2 * 3 * 5 * channels) * 3).to(at::kByte).reshape({2, 3, 5, channels});
    const SummaryValue value =
        written([&](EventFileWriter& writer) { writer.image("picture", pixels, 1); });
    EXPECT_EQ(value.plugin_name, "images");
    const auto strings = value.value.strings().values();
    ASSERT_EQ(strings.size(), 4u);
    EXPECT_EQ(strings[0], "5");
    EXPECT_EQ(strings[1], "3");
    for (int i = 0; i < 2; ++i) {
      const Tensor found = at::tensor(decoded(strings[static_cast<std::size_t>(2 + i)], channels));
      EXPECT_TENSOR_EQ(found.reshape({3, 5, channels}), pixels[i]);
    }
  }
}

TEST_F(Events, CutFloatImagesOffAndKeepTheFirstOfMany) {
  const Tensor one = at::tensor({-1.0F, 0.0F, 0.5F, 1.0F, 7.0F, std::nanf("")}).reshape({2, 3, 1});
  const SummaryValue value =
      written([&](EventFileWriter& writer) { writer.image("picture", one, 1); });
  EXPECT_EQ(decoded(value.value.strings().values()[2], 1),
            (std::vector<uint8_t>{0, 0, 127, 255, 255, 0}));
  const SummaryValue few = written([&](EventFileWriter& writer) {
    writer.image("picture", at::zeros({9, 2, 2, 3}), 1, {.max_outputs = 4});
  });
  EXPECT_EQ(few.value.strings().numel(), 2 + 4);
}

TEST_F(Events, RefuseWhatIsNoImage) {
  EventFileWriter writer(path("log"));
  for (const Tensor& wrong : {at::zeros({2, 2}), at::zeros({2, 2, 5}),
                              at::zeros({2, 2, 1}, at::kInt), at::zeros({1, 1, 2, 2, 3})})
    EXPECT_ERROR(writer.image("x", wrong, 1), InvalidArgument, "image summary [x]: ");
  EXPECT_ERROR(writer.image("x", at::zeros({0, 2, 1}), 1), InvalidArgument, "0 x 2 pixels");
}

TEST_F(Events, HoldText) {
  const SummaryValue value =
      written([](EventFileWriter& writer) { writer.text("note", "**bold** \xff", 1); });
  EXPECT_EQ(value.plugin_name, "text");
  EXPECT_EQ(value.tensor_dtype, 7);
  EXPECT_EQ(value.value.strings().item(), "**bold** \xff");
}

TEST_F(Events, OfOlderWritersAreRead) {
  // simple_value; a histogram of three buckets, the first of them empty; an image.
  TFRecordWriter writer(path("old"));
  writer.write(std::string("\x2a\x08\x0a\x06\x0a\x01"
                           "a\x15\x00\x00\xc0\x3f",
                           13)
                   .substr(0, 13));
  writer.close();
  EXPECT_ERROR(all(path("old")), DataLoss, "no event");

  const std::string simple(
      "\x0a\x01"
      "a\x15\x00\x00\xc0\x3f",
      8);
  std::string histogram(
      "\x09\x00\x00\x00\x00\x00\x00\xf0\xbf"
      "\x11\x00\x00\x00\x00\x00\x00\x08\x40",
      18);
  const auto list = [&histogram](char tag, std::initializer_list<double> values) {
    histogram += tag;
    histogram += static_cast<char>(8 * values.size());
    for (double value : values) histogram.append(reinterpret_cast<const char*>(&value), 8);
  };
  list('\x32', {-2, 0, 5});
  list('\x3a', {0, 4, 6});
  const auto field = [](char tag, const std::string& bytes) {
    return std::string(1, tag) + static_cast<char>(bytes.size()) + bytes;
  };
  const std::string image =
      field('\x0a', "i") + field('\x22', std::string("\x08\x02\x10\x03", 4) + field('\x22', "png"));
  const std::string summary = field('\x0a', simple) +
                              field('\x0a', field('\x0a', "h") + field('\x2a', histogram)) +
                              field('\x0a', image);
  TFRecordWriter again(path("old"));
  ASSERT_LT(summary.size(), 128u);
  again.write(field('\x2a', summary));
  again.close();
  const auto events = all(path("old"));
  ASSERT_EQ(events.size(), 1u);
  const auto& values = events[0].values;
  ASSERT_EQ(values.size(), 3u);
  EXPECT_EQ(values[0].scalar(), 1.5);
  EXPECT_EQ(values[0].plugin_name, "scalars");
  EXPECT_TENSOR_EQ(values[1].value.leaf(), at::tensor({-1, 0, 4, 0, 3, 6}).reshape({2, 3}));
  EXPECT_EQ(values[2].value.strings(), (StringTensor{"3", "2", "png"}));
}

TEST_F(Events, WhoseTensorsClaimMoreThanTheyHoldAreDataLoss) {
  // Summary{Value{tensor{dtype 1, shape [2^40], float_val [1]}}}
  const std::string tensor(
      "\x08\x01\x12\x0a\x12\x08\x08\x80\x80\x80\x80\x80\x80\x01\x2a\x04\x00\x00\x80\x3f", 20);
  const auto field = [](char tag, const std::string& bytes) {
    return std::string(1, tag) + static_cast<char>(bytes.size()) + bytes;
  };
  TFRecordWriter writer(path("x"));
  writer.write(field('\x2a', field('\x0a', field('\x42', tensor))));
  writer.close();
  EXPECT_ERROR(all(path("x")), DataLoss,
               "byte 0]: a tensor of 1 values for the shape (4398046511104,)");
}

TEST_F(Events, DamagedAnywhereAreRefusedOrRight) {
  EventFileWriter writer(path("log"));
  writer.scalar("loss", 0.5, 1);
  writer.histogram("w", at::tensor({1.0F, 2.0F}), 2, {.buckets = 2});
  writer.text("t", "x", 3);
  writer.close();
  const std::string whole = bytes_of(writer.path());
  for_each_damage(whole, [&](const std::string& damaged, const std::string& what) {
    SCOPED_TRACE(what);
    EventFileReader reader(write("x", damaged));
    int losses = 0, read = 0;
    for (bool more = true; more;) {
      try {
        const auto event = reader.next();
        more = event.has_value();
        read += more ? 1 : 0;
      } catch (const DataLoss& error) {
        EXPECT_NE(std::string(error.what()).find(path("x")), std::string::npos);
        ++losses;
      }
    }
    EXPECT_LT(read, 4);
    EXPECT_LE(losses, 1);
    if (damaged.size() == whole.size()) {
      EXPECT_EQ(losses, 1);
    }
  });
}

TEST_F(Events, WhoseRecordsAreDamagedBehindTheirChecksumsAreRefusedOrRead) {
  // The checksums are right, the messages are not.
  EventFileWriter writer(path("log"));
  writer.histogram("w", at::tensor({1.0F, 2.0F}), 2, {.buckets = 2});
  writer.image("i", at::zeros({1, 1, 1}), 3);
  writer.scalar("s", 1, 3);
  writer.close();
  TFRecordReader records(writer.path());
  while (const auto record = records.next()) {
    for_each_damage(std::string(*record), [&](const std::string& damaged, const std::string& what) {
      SCOPED_TRACE(what);
      TFRecordWriter hostile(path("x"));
      hostile.write(damaged);
      hostile.close();
      try {
        all(path("x"));
      } catch (const DataLoss&) {
      }
    });
  }
}

TEST_F(Events, InAFolderThatCannotBeMadeAreNotFound) {
  write("file", "");
  EXPECT_ERROR(EventFileWriter(path("file/log")), NotFound, "file/log");
  EXPECT_ERROR(EventFileReader(path("none")), NotFound, "none");
}

/// One event whose values are these tensors.
std::string event_of(const std::vector<std::string>& tensors) {
  const auto field = [](char tag, const std::string& bytes) {
    std::string size;
    for (std::size_t left = bytes.size();; left >>= 7) {
      size += static_cast<char>(left < 128 ? left : 128 | (left & 127));
      if (left < 128) break;
    }
    return std::string(1, tag) + size + bytes;
  };
  std::string values;
  for (const std::string& tensor : tensors) values += field('\x0a', field('\x42', tensor));
  return field('\x2a', values);
}

TEST_F(Events, WhoseEmptyTensorsHaveAxesWithoutEndAreDataLoss) {
  // dtype 1, shape [0, 2^62, 2^62]
  const std::string axis("\x12\x0a\x08\x80\x80\x80\x80\x80\x80\x80\x80\x40", 12);
  const std::string shape = std::string("\x12\x02\x08\x00", 4);
  for (const std::string& dims : {shape + axis + axis, axis + axis + shape}) {
    TFRecordWriter writer(path("x"));
    writer.write(
        event_of({"\x08\x01\x12" + std::string(1, static_cast<char>(dims.size())) + dims}));
    writer.close();
    EXPECT_ERROR(all(path("x")), DataLoss, "expected sound sizes");
  }
}

TEST_F(Events, OfAFewBytesDoNotStandForAnyNumberOfThem) {
  // dtype 1, shape [2^20], float_val [1]: 4 MiB
  const std::string million("\x08\x01\x12\x06\x12\x04\x08\x80\x80\x40\x2a\x04\x00\x00\x80\x3f", 16);
  TFRecordWriter writer(path("x"));
  writer.write(event_of({million}));
  writer.write(event_of(std::vector(1000, million)));
  // dtype 7, shape [2^14], string_val [2^12 bytes]: 64 MiB
  writer.write(event_of({std::string("\x08\x07\x12\x06\x12\x04\x08\x80\x80\x01\x42\x80\x20", 13) +
                         std::string(4096, 'x')}));
  writer.close();
  EventFileReader reader(path("x"));
  EXPECT_TENSOR_EQ(reader.next()->values.at(0).value.leaf(), at::ones({1 << 20}));
  EXPECT_ERROR(reader.next(), DataLoss, "expected as many as it holds");
  EXPECT_ERROR(reader.next(), DataLoss, "expected as many as it holds");
}

}  // namespace
}  // namespace tutti::io
