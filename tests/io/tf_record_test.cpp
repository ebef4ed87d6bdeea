#include "tutti/io/tf_record.h"

#include <sys/resource.h>

#include <algorithm>

#include "io/record_format.h"
#include "support/expect.h"
#include "support/hex.h"
#include "support/temporary_folder.h"

namespace tutti::io {
namespace {

using testing::from_hex;

using Records = std::vector<std::string>;

class TFRecords : public testing::TemporaryFolder {
 protected:
  std::string write_records(const Records& records, const TFRecordOptions& options = {}) const {
    TFRecordWriter writer(path("records"), options);
    for (const std::string& record : records) writer.write(record);
    writer.close();
    return path("records");
  }
  /// All that can be read, and how many times DataLoss was thrown between.
  static Records all(const std::string& file, const TFRecordOptions& options = {},
                     int* losses = nullptr) {
    TFRecordReader reader(file, options);
    Records records;
    for (;;) {
      try {
        const auto record = reader.next();
        if (!record) return records;
        records.emplace_back(*record);
      } catch (const DataLoss& error) {
        EXPECT_NE(std::string(error.what()).find(file), std::string::npos) << error.what();
        if (losses == nullptr) throw;
        ++*losses;
      }
    }
  }
};

TEST(Crc32c, IsCastagnolisWithAndWithoutTheMask) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(masked_crc32c("123456789"), 0xc78ab0e5U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(Crc32c, IsTheSameByTablesAndByInstructions) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(crc32c(bytes), crc32c_by_tables(bytes)) << i << " bytes";
    bytes += static_cast<char>(i * 37 + i / 7);
  }
}

TEST_F(TFRecords, AreWrittenAsTensorFlowWritesThem) {
  EXPECT_EQ(bytes_of(write_records({"", "hello"})),
            from_hex("000000000000000029039807d8ea82a2"
                     "0500000000000000eab2043e68656c6c6fbb1f1c19"));
}

TEST_F(TFRecords, AreReadAsTheyWereWrittenPlainAndPacked) {
  Records records{"", "a", std::string(100, 'b'), std::string(700000, 'c'), "d"};
  for (int i = 0; i < 1000; ++i) records.push_back(std::string(static_cast<std::size_t>(i), 'e'));
  for (const char* type : {"", "GZIP", "ZLIB"}) {
    for (int64_t buffer : {int64_t{1}, int64_t{100}, int64_t{256} << 10}) {
      SCOPED_TRACE(cat(type, " with a buffer of ", buffer));
      const TFRecordOptions options{
          .compression_type = type, .input_buffer_size = buffer, .output_buffer_size = buffer};
      EXPECT_EQ(all(write_records(records, options), options), records);
    }
  }
}

TEST_F(TFRecords, PackedInSeveralMembersAreReadThrough) {
  const std::string first = bytes_of(write_records({"a", "b"}, {.compression_type = "GZIP"}));
  const std::string second = bytes_of(write_records({"c"}, {.compression_type = "GZIP"}));
  EXPECT_EQ(all(write("both", first + second), {.compression_type = "GZIP"}),
            (Records{"a", "b", "c"}));
}

TEST_F(TFRecords, GoOnBehindDamagedDataButNotBehindADamagedLength) {
  const std::string whole = bytes_of(write_records({"first", "second", "third"}));
  std::string damaged = whole;
  damaged[21 + 12] ^= 1;  // in "second"
  TFRecordReader reader(write("x", damaged));
  EXPECT_EQ(reader.next(), "first");
  EXPECT_ERROR(reader.next(), DataLoss,
               cat("[", path("x"), ", byte 21]: corrupted record: the checksum of its 6 bytes"));
  EXPECT_EQ(reader.next(), "third");
  EXPECT_EQ(reader.next(), std::nullopt);

  damaged = whole;
  damaged[21] ^= 1;
  TFRecordReader stuck(write("x", damaged));
  EXPECT_EQ(stuck.next(), "first");
  EXPECT_ERROR(stuck.next(), DataLoss, ", byte 21]: corrupted record: the checksum of its length");
  EXPECT_EQ(stuck.offset(), -1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(stuck.next(), std::nullopt);
}

TEST_F(TFRecords, DamagedAnywhereAreNeverReadWrong) {
  const Records records{"", "one", std::string(20, 'x'), "end"};
  for (const char* type : {"", "GZIP", "ZLIB"}) {
    const TFRecordOptions options{.compression_type = type};
    const std::string whole = bytes_of(write_records(records, options));
    for_each_damage(whole, [&](const std::string& damaged, const std::string& what) {
      SCOPED_TRACE(cat(type, " ", what));
      int losses = 0;
      const Records read = all(write("x", damaged), options, &losses);
      EXPECT_LE(read.size(), records.size());
      for (const std::string& record : read)
        EXPECT_NE(std::find(records.begin(), records.end(), record), records.end()) << record;
      // A bit of a gzip header may say nothing about the data.
      if (damaged.size() == whole.size()) {
        EXPECT_TRUE(losses > 0 || (*type != '\0' && read == records));
      }
    });
  }
}

TEST_F(TFRecords, EveryTurnedBitOfAPlainFileIsFound) {
  const Records records{"abc", "", "defgh"};
  const std::string whole = bytes_of(write_records(records));
  for_each_damage(whole, [&](const std::string& damaged, const std::string& what) {
    SCOPED_TRACE(what);
    int losses = 0;
    const Records read = all(write("x", damaged), {}, &losses);
    if (damaged.size() < whole.size()) {
      const bool at_a_border = damaged.empty() || damaged.size() == 19 || damaged.size() == 35;
      EXPECT_EQ(losses, at_a_border ? 0 : 1);
      EXPECT_TRUE(std::equal(read.begin(), read.end(), records.begin()));
    } else {
      EXPECT_EQ(losses, 1);
      EXPECT_LT(read.size(), records.size());
    }
  });
}

TEST_F(TFRecords, WithALengthAboveTheFileTakeNoMemoryForIt) {
  for (uint64_t length : {uint64_t{1} << 40, uint64_t{1} << 62, ~uint64_t{0}, ~uint64_t{0} - 3}) {
    std::string header(8, '\0');
    std::memcpy(header.data(), &length, 8);
    const uint32_t check = masked_crc32c(header);
    header.append(reinterpret_cast<const char*>(&check), 4);
    struct rusage before = {}, after = {};
    getrusage(RUSAGE_SELF, &before);
    for (const char* type : {"", "GZIP"}) {
      const std::string bytes = *type == '\0' ? header : gzipped(header);
      TFRecordReader reader(write("x", bytes + ""), {.compression_type = type});
      EXPECT_ERROR(reader.next(), DataLoss, "byte 0]");
      EXPECT_EQ(reader.next(), std::nullopt);
    }
    getrusage(RUSAGE_SELF, &after);
    EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 16 << 10) << "KiB";
  }
}

TEST_F(TFRecords, AreFoundAgainByTheirOffsets) {
  const Records records{"a", "bb", "ccc"};
  for (const char* type : {"", "GZIP", "ZLIB"}) {
    const TFRecordOptions options{.compression_type = type};
    TFRecordReader reader(write_records(records, options), options);
    std::vector<int64_t> offsets;
    for (std::size_t i = 0; i <= records.size(); ++i) {
      offsets.push_back(reader.offset());
      reader.next();
    }
    EXPECT_EQ(offsets, (std::vector<int64_t>{0, 17, 35, 54}));
    for (std::size_t i : {2, 0, 1}) {
      reader.seek(offsets[i]);
      EXPECT_EQ(reader.next(), records[i]);
    }
    reader.seek(54);
    EXPECT_EQ(reader.next(), std::nullopt);
    EXPECT_ERROR(reader.seek(55), DataLoss, "ends in front of byte 55");
  }
}

TEST_F(TFRecords, AppendedToAnOpenFileAreReadNext) {
  TFRecordWriter writer(path("growing"));
  writer.write("a");
  writer.flush();
  TFRecordReader reader(path("growing"));
  EXPECT_EQ(reader.next(), "a");
  EXPECT_EQ(reader.next(), std::nullopt);
  writer.write("b");
  writer.flush();
  EXPECT_EQ(reader.next(), "b");
}

TEST_F(TFRecords, OfFilesThatCannotBeOpenedAreErrorsOfTheirKind) {
  EXPECT_ERROR(TFRecordReader(path("none")), NotFound, path("none"));
  EXPECT_ERROR(TFRecordReader(folder_.string()), FailedPrecondition, "directory");
  EXPECT_ERROR(TFRecordWriter(path("no/where")), NotFound, "no/where");
  EXPECT_ERROR(TFRecordReader(path("none"), {.compression_type = "LZ4"}), InvalidArgument,
               "\"LZ4\", expected \"\", \"GZIP\" or \"ZLIB\"");
  EXPECT_ERROR(TFRecordWriter(path("x"), {.compression_type = "GZIP", .compression_level = 11}),
               InvalidArgument, "compression_level 11");
}

TEST_F(TFRecords, OnAFullDiskAreResourceExhausted) {
  TFRecordWriter writer("/dev/full");
  EXPECT_ERROR(
      {
        writer.write(std::string(1 << 20, 'x'));
        writer.flush();
      },
      ResourceExhausted, "/dev/full");
}

TEST_F(TFRecords, WrittenAfterCloseAreRefused) {
  TFRecordWriter writer(path("x"));
  writer.close();
  writer.close();
  EXPECT_ERROR(writer.write("a"), FailedPrecondition, "closed");
}

}  // namespace
}  // namespace tutti::io
