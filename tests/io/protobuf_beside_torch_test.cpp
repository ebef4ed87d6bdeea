// LibTorch carries a protobuf of its own inside; Tutti's messages use the system's. Both work in
// one program, and none of LibTorch's symbols stands for one of ours.

#include <ATen/ATen.h>
#include <dlfcn.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/serialization/export.h>

#include "support/expect.h"
#include "tutti/io/example.h"

namespace tutti::train {
namespace {

std::string graph_text() {
  auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::Value* input = graph->addInput("x");
  input->setType(c10::TensorType::createContiguous(at::kFloat, at::kCPU, {2, 3}));
  graph->registerOutput(input);
  return torch::jit::pretty_print_onnx(graph, {}, /*onnx_opset_version=*/13,
                                       /*defer_weight_export=*/false,
                                       torch::onnx::OperatorExportTypes::ONNX,
                                       /*google_printer=*/true);
}

TEST(ProtobufBesideTorch, BothMakeTheirMessagesByTurns) {
  const Example example({{"a", Int64List{{1, 2, 300}}}, {"c", BytesList{{"xy"}}}});
  std::string first;
  for (int i = 0; i < 3; ++i) {
    const std::string text = graph_text();
    EXPECT_NE(text.find("elem_type: 1"), std::string::npos) << text;
    EXPECT_EQ(Example::parse(example.serialize()), example);
    if (i == 0) first = text;
    EXPECT_EQ(text, first);
  }
}

TEST(ProtobufBesideTorch, LibTorchShowsNoneOfProtobufsOwnSymbols) {
  void* torch = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(torch, nullptr) << dlerror();
  // google::protobuf::MessageLite::ParseFromArray(void const*, int)
  void* symbol = dlsym(RTLD_DEFAULT, "_ZN6google8protobuf11MessageLite14ParseFromArrayEPKvi");
  ASSERT_NE(symbol, nullptr);
  Dl_info where = {};
  ASSERT_NE(dladdr(symbol, &where), 0);
  EXPECT_NE(std::string(where.dli_fname).find("libprotobuf.so"), std::string::npos)
      << where.dli_fname;
  dlclose(torch);
}

}  // namespace
}  // namespace tutti::train
