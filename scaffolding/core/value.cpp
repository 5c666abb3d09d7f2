#include "scaffolding/core/value.h"

namespace sf {

Value::Value() = default;
Value::Value(std::monostate) {}
Value::Value(Tensor tensor) : ValueVariant(std::move(tensor)) {}
Value::Value(bool flag) : ValueVariant(flag) {}
Value::Value(int number) : ValueVariant(int64_t(number)) {}
Value::Value(int64_t number) : ValueVariant(number) {}
Value::Value(double number) : ValueVariant(number) {}
Value::Value(const char* text) : ValueVariant(std::string(text)) {}
Value::Value(std::string text) : ValueVariant(std::move(text)) {}
Value::Value(Shape numbers) : ValueVariant(std::move(numbers)) {}
Value::Value(Floats numbers) : ValueVariant(std::move(numbers)) {}
Value::Value(Tensors tensors) : ValueVariant(std::move(tensors)) {}
Value::Value(DType dtype) : ValueVariant(dtype) {}
Value::Value(Device device) : ValueVariant(device) {}
Value::Value(Generator generator) : ValueVariant(std::move(generator)) {}
Value::Value(const Value&) = default;
Value::Value(Value&&) noexcept = default;
Value::~Value() = default;
Value& Value::operator=(const Value&) = default;
Value& Value::operator=(Value&&) noexcept = default;

}  // namespace sf
