#include "tutti/tensor/device.h"

#include "support/expect.h"

namespace tutti {
namespace {

using Kind = DeviceName::Kind;

TEST(DeviceName, TakesEverySpellingOfTensorFlow) {
  const DeviceName cpu0{Kind::kCpu, 0};
  for (const char* text : {"cpu", "cpu:0", "CPU:0", "/cpu:0", "/device:CPU:0", "device:CPU:0",
                           "/job:localhost/replica:0/task:0/device:CPU:0"}) {
    EXPECT_EQ(DeviceName::parse(text), cpu0) << text;
  }
  const DeviceName cuda1{Kind::kCuda, 1};
  for (const char* text : {"cuda:1", "GPU:1", "gpu:1", "/gpu:1", "/device:GPU:1",
                           "/job:worker/replica:0/task:2/device:GPU:1"}) {
    EXPECT_EQ(DeviceName::parse(text), cuda1) << text;
  }
}

TEST(DeviceName, PrintsTheShortSpelling) {
  EXPECT_EQ(DeviceName::parse("/device:CPU:3").to_string(), "cpu:3");
  EXPECT_EQ(cat(DeviceName::parse("GPU:1")), "cuda:1");
}

TEST(DeviceName, LogicalCpusAreOneTorchDevice) {
  EXPECT_EQ(DeviceName::parse("cpu:63").torch_device(), c10::Device(c10::kCPU));
  EXPECT_EQ(DeviceName::parse("cuda:2").torch_device(), c10::Device(c10::kCUDA, 2));
}

TEST(DeviceName, RefusesWhatIsNoDeviceAndShowsTheSpellings) {
  for (const char* text : {"", "tpu:0", "cpu:", "cpu:x", "cpu:-1", "cpu:0:1", "cpu:64", "cuda:64",
                           "cpu:99999999999", " cpu:0", "nonsense/cpu:0", "/cpu:0/"}) {
    EXPECT_ERROR(DeviceName::parse(text), InvalidArgument, cat("device: \"", text, "\""));
    EXPECT_ERROR(DeviceName::parse(text), InvalidArgument, "expected cpu:i or cuda:i");
    EXPECT_ERROR(DeviceName::parse(text), InvalidArgument, "/job:localhost/replica:0");
  }
}

}  // namespace
}  // namespace tutti
