#include "scaffolding/io/formats/torch_file.h"

#include "scaffolding/io/formats/pickle.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/ops/factory/factory.h"

namespace sf::io {
namespace {

class TorchFile : public TestFolder {};

Object dict(std::vector<Object> items) { return Object::container(Object::Dict, std::move(items)); }
Object read(const std::string& bytes, bool placeholders = false) {
  return load_torch(Bytes::borrow(bytes.data(), bytes.size(), "test"), {placeholders});
}
Object saved_and_loaded(const Object& o) {
  MemorySink sink;
  save_torch(o, sink);
  return load_torch(Bytes::take(std::move(sink.bytes), "memory"));
}

TEST_F(TorchFile, what_was_saved_is_loaded) {
  Object attributes = dict({Object("_metadata"), dict({})});
  Object ordered = Object::container(Object::OrderedDict, {Object("k"), Object(1.5)});
  ordered.node()->state = attributes;
  std::string big(300, '\x7f');
  Object tree = dict({Object("none"),
                      Object(),
                      Object("yes"),
                      Object(true),
                      Object("ints"),
                      Object::container(Object::List, {int64_t(0), int64_t(255), int64_t(65535), int64_t(-1),
                                                       int64_t(INT32_MIN), INT64_MAX, INT64_MIN}),
                      Object("long"),
                      Object(big, Object::BigInt),
                      Object("bytes"),
                      Object(std::string_view("\x00\x7f\x80\xff", 4), Object::Blob),
                      Object("array"),
                      Object("ab", Object::ByteArray),
                      Object("tuple"),
                      Object::container(Object::Tuple, {Object("x"), Object::container(Object::Tuple)}),
                      Object("set"),
                      Object::container(Object::Set, {int64_t(3)}),
                      Object("size"),
                      Object::container(Object::Size, {int64_t(2)}),
                      Object("dtype"),
                      Object(kBFloat16),
                      Object("device"),
                      Object("cuda:1", Object::DeviceName),
                      Object("complex"),
                      Object::container(Object::Complex, {Object(1.0), Object(-2.0)}),
                      Object("ordered"),
                      ordered,
                      Object("counter"),
                      Object::container(Object::Counter, {Object("a"), int64_t(2)})});
  Object got = saved_and_loaded(tree);
  EXPECT_TRUE(got.find("none")->is(Object::None));
  EXPECT_TRUE(got.find("yes")->as_bool());
  std::vector<int64_t> ints;
  for (auto& i : got.find("ints")->items()) ints.push_back(i.as_int());
  EXPECT_EQ(ints, (std::vector<int64_t>{0, 255, 65535, -1, INT32_MIN, INT64_MAX, INT64_MIN}));
  EXPECT_EQ(got.find("long")->text(), big);
  EXPECT_EQ(got.find("bytes")->text(), std::string("\x00\x7f\x80\xff", 4));
  EXPECT_TRUE(got.find("array")->is(Object::ByteArray));
  EXPECT_TRUE(got.find("tuple")->items().at(1).items().empty());
  EXPECT_EQ(got.find("set")->items().at(0).as_int(), 3);
  EXPECT_TRUE(got.find("size")->is(Object::Size));
  EXPECT_EQ(got.find("dtype")->as_dtype(), kBFloat16);
  EXPECT_EQ(got.find("device")->text(), "cuda:1");
  EXPECT_EQ(got.find("complex")->items().at(1).as_float(), -2);
  EXPECT_EQ(got.find("ordered")->find("k")->as_float(), 1.5);
  EXPECT_TRUE(got.find("ordered")->node()->state.find("_metadata")->is_dict());
  EXPECT_EQ(got.find("counter")->find("a")->as_int(), 2);
}

TEST_F(TorchFile, tensors_keep_dtypes_strides_and_shared_memory) {
  Tensor base = arange(0, 24).reshape({2, 3, 4});
  Object tree = dict({Object("base"), Object(base), Object("view"), Object(base.transpose(0, 2)), Object("part"),
                      Object(base.select(0, 1)), Object("parameter"), Object(full({2}, 1.5).requires_grad_(), true),
                      Object("empty"), Object(empty({0, 3})), Object("scalar"), Object(full({}, 2.0))});
  for (DType t : {kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kFloat32, kFloat64, kBool, kBFloat16, kFloat8E4M3,
                  kFloat8E5M2}) {
    tree.items().push_back(Object(name(t)));
    tree.items().push_back(Object(tensor({0, 1, 1}).to(t)));
  }
  Object got = saved_and_loaded(tree);
  for (size_t i = 0; i < tree.items().size(); i += 2) {
    const Tensor &want = tree.items()[i + 1].tensor(), &have = got.find(tree.items()[i].text())->tensor();
    EXPECT_EQ(have.dtype(), want.dtype());
    EXPECT_EQ(str(have.shape()), str(want.shape()));
    EXPECT_EQ(str(have.strides()), str(want.strides()));
    EXPECT_EQ(have.to_vector(), want.to_vector()) << tree.items()[i].text();
  }
  EXPECT_TRUE(got.find("parameter")->node()->parameter);
  EXPECT_TRUE(got.find("parameter")->tensor().requires_grad());
  Tensor part = got.find("part")->tensor();
  part.fill_(-1);
  EXPECT_EQ(got.find("base")->tensor().to_vector()[12], -1);
  EXPECT_EQ(got.find("view")->tensor().storage().get(), part.storage().get());
}

TEST_F(TorchFile, tensors_borrow_the_mapped_file_and_never_change_it) {
  save_torch(Object(tensor({1, 2, 3})), path("x.pt"));
  std::string before = bytes_of(path("x.pt"));
  Bytes file = Bytes::map(path("x.pt"));
  Tensor t = load_torch(file).tensor();
  auto* p = static_cast<const std::byte*>(t.data_ptr());
  EXPECT_TRUE(p >= file.data && p < file.data + file.size);
  EXPECT_EQ((p - file.data) % 64, 0);
  t.fill_(9);
  EXPECT_EQ(bytes_of(path("x.pt")), before);
}

TEST_F(TorchFile, equal_content_gives_equal_bytes) {
  auto make = [](const char* key) { return dict({Object(key), Object(tensor({1, 2}))}); };
  save_torch(make("a"), path("one"));
  save_torch(make("a"), path("two.pt"));
  EXPECT_EQ(bytes_of(path("one")), bytes_of(path("two.pt")));
}

TEST_F(TorchFile, one_list_in_two_places_stays_one) {
  Object list = Object::container(Object::List, {int64_t(1)});
  Object got = saved_and_loaded(dict({Object("a"), list, Object("b"), list}));
  EXPECT_EQ(got.find("a")->node(), got.find("b")->node());
}

TEST_F(TorchFile, unknown_classes_are_refused_or_become_placeholders) {
  constexpr std::string_view kProgram("\x80\x02}X\x01\0\0\0acsome.module\nClass\n(K\x05tR}X\x01\0\0\0sK\x07sbs.", 46);
  std::string program(kProgram);
  SF_EXPECT_ERROR(ValueError, "refers to some.module.Class", read(program));
  Object got = read(program, true);
  const Object* a = got.find("a");
  ASSERT_TRUE(a && a->is(Object::Instance));
  EXPECT_EQ(a->text(), "some.module.Class");
  EXPECT_EQ(a->items().at(0).as_int(), 5);
  EXPECT_EQ(a->node()->state.find("s")->as_int(), 7);
  MemorySink sink;
  SF_EXPECT_ERROR(TypeError, "cannot be saved", (save_torch(got, sink), 0));
}

TEST_F(TorchFile, what_cannot_be_saved_leaves_the_old_file) {
  save_torch(Object(int64_t(1)), path("x.pt"));
  std::string before = bytes_of(path("x.pt"));
  Tensor x = tensor({1, 2});
  Tensor as_int = Tensor::strided(x.storage(), {2}, {1}, 0, kInt32);
  EXPECT_THROW(save_torch(Object(empty({2}, kFloat32, Device::Meta)), path("x.pt")), RuntimeError);
  EXPECT_THROW(save_torch(dict({Object("a"), Object(x), Object("b"), Object(as_int)}), path("x.pt")), RuntimeError);
  Object ring = Object::container(Object::List);
  ring.items().push_back(ring);
  EXPECT_THROW(save_torch(ring, path("x.pt")), ValueError);
  ring.items().clear();
  EXPECT_EQ(bytes_of(path("x.pt")), before);
  EXPECT_EQ(files(), 1u);
}

TEST_F(TorchFile, a_shared_list_is_read_in_time_that_grows_with_the_file) {
  // Each list holds the one before it twice: 2^200 leaves in 1 kB.
  std::string program = "\x80\x02]q";
  program += '\0';
  for (int i = 1; i < 200; ++i) {
    program += "](h" + std::string(1, char(i - 1)) + "h" + std::string(1, char(i - 1)) + "eq" + std::string(1, char(i));
  }
  Object got = read(program + ".");
  EXPECT_EQ(named_tensors(got).size(), 0u);
}

TEST_F(TorchFile, calls_cannot_multiply_a_small_file) {
  // 1 MB of text, encoded to bytes again and again: each time with seven bytes of pickle.
  std::string program = "\x80\x02(X";
  program += std::string("\0\0\x10\0", 4) + std::string(1 << 20, 'x') +
             std::string(
                 "q\0X\x06\0\0\0latin1q\x01"
                 "c_codecs\nencode\nq\x02",
                 33);
  for (int i = 0; i < 1000; ++i) program += std::string("h\x02h\0h\x01\x86R", 8);
  SF_EXPECT_ERROR(ValueError, "by calls", read(program + "t."));
}

TEST_F(TorchFile, names_of_nested_tensors_stay_short) {
  Object inner(tensor({1}));
  for (int i = 0; i < 100; ++i) inner = dict({Object(std::string(1000, 'k')), inner});
  SF_EXPECT_ERROR(ValueError, "more than 16384 characters", named_tensors(inner));
}

}  // namespace
}  // namespace sf::io
