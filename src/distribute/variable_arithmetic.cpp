// A variable in arithmetic.

#include <ATen/ScalarOps.h>

#include "tutti/distribute/variable.h"

namespace tutti::internal {

Tensor operand(const c10::Scalar& number) { return at::native::wrapped_scalar_tensor(number); }

Tensor arithmetic(Arithmetic operation, const Tensor& a, const Tensor& b) {
  switch (operation) {
    case Arithmetic::kAdd:
      return at::add(a, b);
    case Arithmetic::kSub:
      return at::sub(a, b);
    case Arithmetic::kMul:
      return at::mul(a, b);
    case Arithmetic::kDiv:
      return at::div(a, b);
    case Arithmetic::kLt:
      return at::lt(a, b);
    case Arithmetic::kLe:
      return at::le(a, b);
    case Arithmetic::kGt:
      return at::gt(a, b);
    case Arithmetic::kGe:
      return at::ge(a, b);
    case Arithmetic::kEq:
      return at::eq(a, b);
    case Arithmetic::kNe:
      break;
  }
  return at::ne(a, b);
}

}  // namespace tutti::internal
